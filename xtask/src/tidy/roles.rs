//! The same word for a role in all adapters: whoever knows the files of one adapter finds the way in the
//! others.

use std::collections::BTreeSet;

use super::file::{File, Finding};
use super::source::Source;

/// The modules that every adapter has.
const NEEDED: &[&str] =
    &["backend", "capabilities", "config", "error", "inspect", "limits", "pull", "push", "settle", "storage"];

/// What must be in the file of its role, and nowhere else in an adapter.
const PLACES: &[(&str, &str)] = &[
    ("impl QueueStorage for ", "storage"),
    ("impl Storage for ", "storage"),
    ("impl PushQueueStorage for ", "push"),
    ("impl PullQueueStorage for ", "pull"),
    ("impl InspectQueueStorage for ", "inspect"),
    ("impl PauseQueueStorage for ", "inspect"),
    ("pub fn backend() -> Backend ", "backend"),
    ("pub(crate) fn capabilities(", "capabilities"),
];

/// Other words for a role than ours.
const OTHER_WORDS: &[(&str, &[&str])] = &[
    ("backend", &["registration", "registry"]),
    ("capabilities", &["caps", "declared", "features"]),
    ("config", &["builder", "configuration", "options", "settings"]),
    ("error", &["errors", "faults"]),
    ("inspect", &["browsing", "introspection", "management"]),
    ("limits", &["bounds", "maxima"]),
    ("pull", &["consume", "dequeue", "fetch", "receiving"]),
    ("push", &["enqueue", "publish", "send", "store"]),
    ("record", &["encoded", "message", "row", "stored"]),
    ("settle", &["ack", "acknowledge", "complete", "settlement"]),
    ("storage", &["handle", "queue"]),
    ("token", &["proof", "receipt", "tokens"]),
    ("waiters", &["waiting", "wake", "wakeups", "waker"]),
];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut had: BTreeSet<(&str, &str)> = BTreeSet::new();
    for file in files {
        let Some((adapter, module)) = place(file) else { continue };
        had.insert((adapter, module));
        findings.extend(misplaced(file, module));
        findings.extend(misnamed(file, module));
    }
    for file in files.iter().filter(|file| place(file).is_some_and(|(_, module)| module == "lib")) {
        let Some((adapter, _)) = place(file) else { continue };
        for role in NEEDED.iter().filter(|role| !had.contains(&(adapter, **role))) {
            let advice = format!("{role}.rs is missing: every adapter has this role in a file of this name");
            findings.push(Finding::new(file, 1, "role", advice));
        }
    }
    findings
}

/// Returns the adapter, and the top-level module that the file belongs to.
fn place(file: &File) -> Option<(&str, &str)> {
    let (adapter, rest) = file.path.strip_prefix("adapters/")?.split_once("/src/")?;
    let module = rest.split('/').next()?;
    file.is_rust().then(|| (adapter, module.strip_suffix(".rs").unwrap_or(module)))
}

fn misplaced(file: &File, module: &str) -> Vec<Finding> {
    let source = Source::parse(&file.text);
    let mut findings = Vec::new();
    for (number, line) in (1..source.tests_begin()).zip(source.code.lines()) {
        for (start, role) in PLACES.iter().filter(|(start, _)| line.starts_with(start)) {
            if module != *role {
                let advice = format!("`{}` stands in {role}.rs", start.trim_end_matches([' ', '(']));
                findings.push(Finding::new(file, number, "role", advice));
            }
        }
    }
    findings
}

fn misnamed(file: &File, module: &str) -> Option<Finding> {
    let (role, _) = OTHER_WORDS.iter().find(|(_, words)| words.contains(&module))?;
    Some(Finding::new(file, 1, "role", format!("the adapters' word for `{module}` is `{role}`")))
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    /// An adapter with everything it needs, and more files.
    fn adapter(more: &[(&str, &str)]) -> Vec<File> {
        let file = |name: &str, text: &str| sample(&format!("adapters/x/src/{name}"), text);
        let all = NEEDED.iter().map(|role| file(&format!("{role}.rs"), "//! A.\n"));
        all.chain([file("lib.rs", "//! A.\n")])
            .chain(more.iter().map(|(name, text)| file(name, text)))
            .collect()
    }

    fn found(files: &[File]) -> Vec<(String, usize)> {
        let name = |path: String| path.strip_prefix("adapters/x/src/").map(str::to_owned).unwrap_or(path);
        check(files).into_iter().map(|finding| (name(finding.file), finding.line)).collect()
    }

    #[test]
    fn an_adapter_has_every_role_in_its_file_or_folder() {
        assert_eq!(found(&adapter(&[("waiters.rs", ""), ("script.rs", "")])), []);
        let without = |role: &str| {
            let mut files = adapter(&[]);
            files.retain(|file| !file.path.ends_with(&format!("/{role}.rs")));
            files
        };
        for role in NEEDED {
            assert_eq!(found(&without(role)), [("lib.rs".to_owned(), 1)], "{role}");
        }
        let mut folder = without("push");
        folder.push(sample("adapters/x/src/push/mod.rs", "//! A.\nimpl PushQueueStorage for X {}\n"));
        assert_eq!(found(&folder), []);
    }

    #[test]
    fn what_is_of_a_role_stands_in_its_file() {
        for (start, _) in PLACES {
            let text = format!("//! A.\n{start}X {{}}\n");
            assert_eq!(found(&adapter(&[("lanes.rs", &text)])), [("lanes.rs".to_owned(), 2)], "{start}");
            let text = format!("//! A.\n// {start}X {{}}\n#[cfg(test)]\nmod tests {{\n{start}X {{}}\n}}\n");
            assert_eq!(found(&adapter(&[("lanes.rs", &text)])), [], "{start}");
        }
    }

    #[test]
    fn a_role_has_no_other_name() {
        for name in
            ["wake.rs", "options.rs", "errors.rs", "publish.rs", "stored.rs", "tokens.rs", "wake/line.rs"]
        {
            assert_eq!(found(&adapter(&[(name, "//! A.\n")])), [(name.to_owned(), 1)], "{name}");
        }
    }

    #[test]
    fn only_adapters_have_these_roles() {
        assert_eq!(check(&[sample("worker/src/options.rs", ""), sample("adapters/x/tests/ack.rs", "")]), []);
    }
}
