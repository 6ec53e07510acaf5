//! One module style: the file of a module with submodules is `name/mod.rs`, never `name.rs` beside `name/`.

use std::collections::BTreeSet;

use super::file::{File, Finding, is_root};

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let folders: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.is_rust())
        .flat_map(|file| file.path.match_indices('/').filter_map(|(at, _)| file.path.get(..at)))
        .collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && !is_root(&file.path)) {
        let Some(folder) = file.path.strip_suffix(".rs").filter(|folder| folders.contains(folder)) else {
            continue;
        };
        let advice = format!("it stands beside {folder}/: move it to {folder}/mod.rs");
        findings.push(Finding::new(file, 1, "module", advice));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    fn found(paths: &[&str]) -> Vec<String> {
        let files: Vec<File> = paths.iter().map(|path| sample(path, "//! A.\n")).collect();
        check(&files).into_iter().map(|finding| finding.file).collect()
    }

    #[test]
    fn a_module_with_others_below_it_is_in_its_folder() {
        assert_eq!(found(&["a/src/b.rs", "a/src/b/c.rs", "a/src/b/d.rs"]), ["a/src/b.rs"]);
        assert_eq!(found(&["a/src/b.rs", "a/src/b/c/d.rs"]), ["a/src/b.rs"]);
        assert_eq!(found(&["a/src/b/mod.rs", "a/src/b/c.rs", "a/src/d.rs"]), [""; 0]);
        // These are not modules: what is below them does not belong to them.
        assert_eq!(found(&["a/src/bin/b.rs", "a/src/bin/b/c.rs", "a/tests/d.rs", "a/tests/d/e.rs"]), [""; 0]);
        assert_eq!(found(&["a/src/b.rs", "a/src/b/notes.md"]), [""; 0]);
    }
}
