//! `cargo xtask fresh`: checks that the README's commands work in a clone that was never built.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::workspace::{Result, cargo, command, in_clone, output, run};

const CLONE: &str = "fresh";
/// The section of the README that contains the commands.
const SECTION: &str = "## Try it";
/// The README's name for the folder that the tutorial reads, and a folder of the clone that takes its place.
const FOLDER: (&str, &str) = ("DIR", "docs");

/// Clones the commit into an empty folder, and runs the README's commands there, one after the other.
pub(crate) fn run_fresh() -> Result<()> {
    in_clone(CLONE, run_commands)
}

fn run_commands(clone: &Path) -> Result<()> {
    let readme = fs::read_to_string(clone.join("README.md"))
        .map_err(|error| format!("the clone has no README.md: {error}"))?;
    let lines = commands(&readme);
    if lines.is_empty() {
        return Err(format!("README.md has no line `$ cargo …` under {SECTION:?}"));
    }
    let mut times: Vec<(String, Duration)> = Vec::new();
    for line in lines {
        println!("fresh: {line}");
        let begin = Instant::now();
        run(as_typed(&line, clone).current_dir(clone))?;
        times.push((line, begin.elapsed()));
    }
    let commit = output(command("git").args(["rev-parse", "--short", "HEAD"]).current_dir(clone))?;
    println!("fresh: commit {}", commit.trim());
    for (line, took) in times {
        println!("fresh: {:>8.1} s  {line}", took.as_secs_f64());
    }
    Ok(())
}

/// Returns the commands in the README's section, without the prompt.
fn commands(readme: &str) -> Vec<String> {
    let section = readme.split_once(SECTION).map_or("", |(_, rest)| rest);
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    section.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

/// Returns the command. It uses nothing that was built elsewhere, and puts nothing elsewhere.
fn as_typed(line: &str, clone: &Path) -> std::process::Command {
    let words = line.split_whitespace().skip(1); // after `cargo`
    let words: Vec<&str> = words.map(|word| if word == FOLDER.0 { FOLDER.1 } else { word }).collect();
    let mut command = cargo(&words);
    command.env("CARGO_TARGET_DIR", clone.join("target"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root;

    #[test]
    fn the_readme_has_a_command_to_try_and_one_to_test() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let lines = commands(&readme);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("cargo run ") && lines[0].ends_with(FOLDER.0), "{lines:?}");
        assert_eq!(lines[1], "cargo xtask test");
    }

    #[test]
    fn commands_of_other_sections_are_left_alone() {
        let readme = "$ cargo a\n## Try it\ntext\n```console\n$ cargo b DIR\n```\n## More\n$ cargo c\n";
        assert_eq!(commands(readme), ["cargo b DIR"]);
    }

    #[test]
    fn a_clone_is_built_in_itself() {
        let command = as_typed("cargo run --bin quickstart -- DIR", Path::new("there"));
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(words, ["run", "--bin", "quickstart", "--", "docs"]);
        let target = command.get_envs().find(|(name, _)| *name == "CARGO_TARGET_DIR");
        assert_eq!(target.and_then(|(_, value)| value), Some(Path::new("there/target").as_os_str()));
    }
}
