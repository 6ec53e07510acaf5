//! Where the workspace is, and how commands run in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// The result of every helper. The message is for people: it says what to do.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Returns the workspace's top folder.
pub(crate) fn root() -> PathBuf {
    // Set by `cargo run`; correct even for a checkout that was moved after the build.
    let own = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map_or_else(|| own.clone(), Path::to_path_buf)
}

/// Creates a command that runs in the workspace's top folder.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Returns the cargo that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = command(&env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    // Cargo's variables about this program would reach build scripts, some of which (ring's) would then
    // rebuild everything.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_this_program(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

fn is_of_this_program(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

/// Runs a command to its end; its output goes where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("cannot run `{}`: {error}", line(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed ({status})", line(command))) }
}

/// Runs a command to its end and returns what it wrote to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run `{}`: {error}", line(command)))?;
    if !output.status.success() {
        return Err(format!("`{}` failed ({})", line(command), output.status));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| format!("`{}` wrote something that is not UTF-8", line(command)))
}

/// Returns whether a command runs and succeeds; its output is not shown.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    command(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Clones the commit into a temporary folder, works there, and removes the folder, however that ended. The
/// folder is outside the workspace: cargo would find the workspace's settings, which would hide that a file
/// is not committed.
pub(crate) fn in_clone(name: &str, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let clone = env::temp_dir().join(format!("anyqueue-{name}-{}", std::process::id()));
    remove(&clone)?;
    let cloned = run(command("git").args(["clone", "--quiet", "--no-hardlinks", "."]).arg(&clone));
    let result = cloned.and_then(|()| work(&clone));
    remove(&clone)?;
    result
}

fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).map_err(|error| format!("cannot remove {}: {error}", folder.display()))
}

/// Returns the command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut line = name.to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If it were, each switch between cargo and `cargo xtask` would rebuild the TLS stack and everything
    /// above it.
    #[test]
    fn cargo_is_not_told_which_package_this_program_is_of() {
        let command = cargo(&["build"]);
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            assert!(env::var_os(name).is_some(), "cargo runs this test");
            assert!(removed.iter().any(|(removed, _)| *removed == name), "{name}: {removed:?}");
        }
    }
}
