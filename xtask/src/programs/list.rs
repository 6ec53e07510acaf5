//! What `cargo test` would run, and how. Cargo itself is asked: it gets a runner that notes each program and
//! runs none.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::room::short_of_disk;
use crate::workspace::{Result, cargo, line, root, run};

/// The file to which the runner writes.
const NOTES: &str = "ANYQUEUE_XTASK_NOTES";

/// A test program, as cargo would run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) package: String,
    /// Its name in the package; for unit tests, the name of their library or program, as Rust writes it.
    pub(crate) target: String,
    /// The program, then its arguments.
    words: Vec<String>,
    folder: PathBuf,
    environment: BTreeMap<String, String>,
}

impl Program {
    /// Returns the name that people see.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.package, self.target)
    }

    /// Returns a unique name for its files.
    pub(crate) fn file_stem(&self) -> String {
        let program = self.words.first().map(Path::new).and_then(Path::file_stem).unwrap_or_default();
        format!("{}.{}", self.package, program.to_string_lossy())
    }

    /// Runs it as cargo would: in its package's folder, with the same environment.
    pub(crate) fn command(&self) -> Command {
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().map_or("", String::as_str));
        command.args(words).current_dir(&self.folder).env_clear().envs(&self.environment);
        command
    }
}

/// Returns the programs that `cargo test` would run with these arguments, building them if necessary.
pub(crate) fn list(selection: &[&str]) -> Result<Vec<Program>> {
    let notes = root().join("target/programs.jsonl");
    let fault = |error: std::io::Error| format!("cannot use {}: {error}", notes.display());
    fs::create_dir_all(root().join("target")).map_err(fault)?;
    fs::write(&notes, "").map_err(fault)?;
    let own = env::current_exe().map_err(|error| format!("cannot tell where this program is: {error}"))?;
    run(cargo(&["test", "--no-run"]).args(selection)).map_err(|error| {
        let short = short_of_disk(&root().join("target"));
        short.map_or_else(|| error.clone(), |short| format!("{error}: {short}"))
    })?;
    let runner = json!([own.to_string_lossy(), "note-program"]);
    let mut command = cargo(&["test", "--no-fail-fast"]);
    command.arg("--config").arg(format!("target.'cfg(all())'.runner = {runner}"));
    command.args(selection).env(NOTES, &notes);
    let ended = command.output().map_err(|error| format!("cannot run `{}`: {error}", line(&command)))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        return Err(format!("`{}` failed ({}):\n{said}", line(&command), ended.status));
    }
    let text = fs::read_to_string(&notes).map_err(fault)?;
    let programs = text.lines().map(parse).collect::<Result<Vec<_>>>()?;
    if programs.is_empty() { Err(format!("`{}` runs no program", line(&command))) } else { Ok(programs) }
}

/// Acts as cargo's runner: notes the program that it should run, with everything that cargo gives it.
pub(crate) fn note(words: &[String]) -> Result<()> {
    let notes = env::var(NOTES).map_err(|_| format!("only `cargo xtask test` sets {NOTES}"))?;
    let folder = env::current_dir().map_err(|error| format!("cannot tell the folder: {error}"))?;
    // A variable that is not text does not come from cargo.
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let environment: BTreeMap<String, String> =
        env::vars_os().filter_map(text).filter(|(name, _)| name != NOTES).collect();
    let note = json!({ "words": words, "folder": folder.to_string_lossy(), "environment": environment });
    let written =
        fs::OpenOptions::new().append(true).open(&notes).and_then(|mut file| writeln!(file, "{note}"));
    written.map_err(|error| format!("cannot write {notes}: {error}"))
}

fn parse(note: &str) -> Result<Program> {
    let note: Value = serde_json::from_str(note).map_err(|error| format!("not a note ({error}): {note}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let get = |key: &str| note.get(key).cloned().unwrap_or_default();
    let words: Vec<String> = get("words").as_array().into_iter().flatten().map(text).collect();
    let environment: BTreeMap<String, String> = get("environment")
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect();
    let package = environment.get("CARGO_PKG_NAME").cloned().unwrap_or_default();
    let target = words.first().map(|program| target_of(program)).unwrap_or_default();
    if package.is_empty() || target.is_empty() {
        return Err(format!("cargo named no package or no program: {note}"));
    }
    Ok(Program { package, target, words, folder: text(&get("folder")).into(), environment })
}

/// Returns the program's file name without the hash that cargo appends.
fn target_of(program: &str) -> String {
    let stem = Path::new(program).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match stem.rsplit_once('-') {
        Some((name, mark)) if mark.len() == 16 && mark.chars().all(|c| c.is_ascii_hexdigit()) => {
            name.to_owned()
        }
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_the_program_that_cargo_would_run() {
        let note = json!({
            "words": ["/t/debug/deps/conformance-0123456789abcdef", "--bench"],
            "folder": "/",
            "environment": { "CARGO_PKG_NAME": "some-adapter", "SHELL": "sh" },
        });
        let program = parse(&note.to_string()).unwrap();
        assert_eq!(program.name(), "some-adapter/conformance");
        assert_eq!(program.file_stem(), "some-adapter.conformance-0123456789abcdef");
        let command = program.command();
        assert_eq!(command.get_program(), "/t/debug/deps/conformance-0123456789abcdef");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["--bench"]);
        assert_eq!(command.get_current_dir(), Some(Path::new("/")));
        assert_eq!(command.get_envs().count(), 2);
    }

    #[test]
    fn what_is_no_note_of_cargos_is_refused() {
        for note in
            ["", "{}", r#"{"words":["a"],"environment":{}}"#, r#"{"environment":{"CARGO_PKG_NAME":"a"}}"#]
        {
            assert!(parse(note).is_err(), "{note}");
        }
    }

    #[test]
    fn only_cargos_mark_is_taken_off_a_name() {
        assert_eq!(target_of("/t/two_words-0123456789abcdef"), "two_words");
        assert_eq!(target_of("two-words"), "two-words");
    }
}
