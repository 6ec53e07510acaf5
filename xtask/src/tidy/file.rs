//! A file that is checked, and what is found in it.

use std::fmt;
use std::path::Path;

/// A rule that does not hold somewhere.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(super) file: String,
    /// The line, from 1.
    pub(super) line: usize,
    pub(super) rule: &'static str,
    /// What to do about it.
    pub(super) advice: String,
}

impl Finding {
    pub(super) fn new(file: &File, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Self { file: file.path.clone(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.advice)
    }
}

/// A text file of the repository.
#[derive(Debug)]
pub(crate) struct File {
    /// From the top folder, with `/` between the parts.
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    pub(super) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }

    /// Returns the line (from 1) that first contains the text; 1 if none does.
    pub(super) fn line_of(&self, text: &str) -> usize {
        self.text.lines().position(|line| line.contains(text)).map_or(1, |index| index + 1)
    }
}

/// Returns whether cargo takes the file for the root of a crate. Its place decides, as for all our crates.
pub(super) fn is_root(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let within =
        |kinds: &[&str], folder: &str| kinds.iter().any(|kind| folder.ends_with(&format!("/{kind}")));
    let targets = ["src/bin", "tests", "examples", "benches"];
    let of_folder = folder.rsplit_once('/').is_some_and(|(above, _)| within(&targets, above));
    within(&["src"], folder) && ["lib.rs", "main.rs"].contains(&name)
        || within(&targets, folder)
        || of_folder && name == "main.rs"
}

/// A file for the rules' tests.
#[cfg(test)]
pub(super) fn sample(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_with_place_rule_and_advice() {
        let file = sample("core/src/lib.rs", "");
        let finding = Finding::new(&file, 7, "header", "start with //!");
        assert_eq!(finding.to_string(), "core/src/lib.rs:7: header: start with //!");
    }

    #[test]
    fn the_roots_of_crates_are_known_by_their_places() {
        for root in [
            "a/src/lib.rs",
            "a/src/main.rs",
            "a/src/bin/b.rs",
            "a/src/bin/b/main.rs",
            "a/tests/b.rs",
            "a/tests/b/main.rs",
        ] {
            assert!(is_root(root), "{root}");
        }
        for other in [
            "a/src/b.rs",
            "a/src/b/mod.rs",
            "a/tests/b/c.rs",
            "a/tests/b/mod.rs",
            "a/src/bin/b/c.rs",
            "lib.rs",
        ] {
            assert!(!is_root(other), "{other}");
        }
    }
}
