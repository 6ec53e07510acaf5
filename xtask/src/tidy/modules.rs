//! One module style: the file of a module that has others below it is `name/mod.rs`, never `name.rs` beside `name/`.

use std::collections::BTreeSet;

use super::file::{File, Finding, is_root};

/// Files of the other style that were there when it was forbidden. The list only shrinks.
const REMAINING: &[&str] = &[
    "adapters/memory/src/partition.rs",
    "adapters/rabbitmq/src/actor.rs",
    "adapters/rabbitmq/src/desk.rs",
    "adapters/rabbitmq/src/publisher.rs",
    "bench/src/scenario.rs",
    "bench/src/yardstick.rs",
    "bench/src/yardstick/postgres.rs",
    "bench/src/yardstick/rabbitmq.rs",
    "bench/src/yardstick/redis.rs",
    "bench/src/yardstick/sqlite.rs",
    "conformance-tests/src/cases/beside.rs",
    "conformance-tests/src/child.rs",
    "xtask/tables/src/benchmarks.rs",
];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    against(files, REMAINING)
}

fn against(files: &[File], remaining: &[&str]) -> Vec<Finding> {
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
        if !remaining.contains(&file.path.as_str()) {
            let advice = format!("it stands beside {folder}/: move it to {folder}/mod.rs");
            findings.push(Finding::new(file, 1, "module", advice));
        }
    }
    let stands = |path: &str| {
        path.strip_suffix(".rs").is_some_and(|folder| folders.contains(folder))
            && files.iter().any(|file| file.path == path)
    };
    let list = File { path: LIST.to_owned(), text: String::new() };
    findings.extend(remaining.iter().filter(|path| !stands(path)).map(|path| {
        Finding::new(
            &list,
            1,
            "module",
            format!("{path} is no longer of the other style: take it off the list"),
        )
    }));
    findings
}

const LIST: &str = "xtask/src/tidy/modules.rs";

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    fn found(paths: &[&str], remaining: &[&str]) -> Vec<String> {
        let files: Vec<File> = paths.iter().map(|path| sample(path, "//! A.\n")).collect();
        against(&files, remaining).into_iter().map(|finding| finding.file).collect()
    }

    #[test]
    fn a_module_with_others_below_it_is_in_its_folder() {
        assert_eq!(found(&["a/src/b.rs", "a/src/b/c.rs", "a/src/b/d.rs"], &[]), ["a/src/b.rs"]);
        assert_eq!(found(&["a/src/b.rs", "a/src/b/c/d.rs"], &[]), ["a/src/b.rs"]);
        assert_eq!(found(&["a/src/b/mod.rs", "a/src/b/c.rs", "a/src/d.rs"], &[]), [""; 0]);
        // Not modules: what lies below is not theirs.
        assert_eq!(
            found(&["a/src/bin/b.rs", "a/src/bin/b/c.rs", "a/tests/d.rs", "a/tests/d/e.rs"], &[]),
            [""; 0]
        );
        assert_eq!(found(&["a/src/b.rs", "a/src/b/notes.md"], &[]), [""; 0]);
    }

    #[test]
    fn the_list_holds_what_is_there_and_nothing_else() {
        assert_eq!(found(&["a/src/b.rs", "a/src/b/c.rs"], &["a/src/b.rs"]), [""; 0]);
        assert_eq!(found(&["a/src/b.rs"], &["a/src/b.rs"]), [LIST]);
        assert_eq!(found(&["a/src/b/mod.rs", "a/src/b/c.rs"], &["a/src/b.rs"]), [LIST]);
    }
}
