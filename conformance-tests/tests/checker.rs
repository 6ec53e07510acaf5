//! The history checker judged: it accepts every right history, and finds in each wrong one what is wrong with it.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its data has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyqueue_conformance::{Trace, invariants};

fn corpus(kind: &str) -> Vec<(String, Trace)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(kind);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let trace = Trace::from_jsonl(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), trace)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn right_histories_are_accepted() {
    let all = corpus("good");
    assert!(all.len() >= 10);
    for (name, trace) in all {
        assert_eq!(trace.check(), Ok(()), "{name}");
    }
}

/// A file is called by the invariant that its history breaks, with a word after a dot where there are several.
#[test]
fn each_wrong_history_is_rejected_for_what_is_wrong_with_it() {
    for (name, trace) in corpus("bad") {
        let expected = name.split('.').next().unwrap();
        let broken = trace.check().err().map(|violation| violation.invariant);
        assert_eq!(broken, Some(expected), "{name}: {:?}", trace.check());
    }
}

#[test]
fn each_invariant_has_a_history_that_breaks_it() {
    let broken: BTreeSet<String> =
        corpus("bad").into_iter().map(|(name, _)| name.split('.').next().unwrap().to_owned()).collect();
    let named: BTreeSet<String> = invariants().map(str::to_owned).collect();
    assert_eq!(broken, named);
}

#[test]
fn what_is_written_is_read_back_the_same() {
    for (name, trace) in corpus("good").into_iter().chain(corpus("bad")) {
        assert_eq!(Trace::from_jsonl(&trace.to_jsonl()), Ok(trace), "{name}");
    }
}

#[test]
fn a_line_that_is_no_call_is_named() {
    let error = Trace::from_jsonl("{}\n\n{\"process\":\"a\"}\n").unwrap_err();
    assert!(error.starts_with("line 3:"), "{error}");
    assert!(Trace::from_jsonl("").is_err());
}
