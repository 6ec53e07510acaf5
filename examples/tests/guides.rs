//! Checks that what the documents name exists: files and headings that they link to, cases and tests that
//! they cite.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The pages that cite tests. Citations are in backticks: a case as `group.case`, a test by its long name.
const CITING: [&str; 3] = ["docs/failure-modes.md", "docs/operating.md", "docs/scaling.md"];
/// A name with at least this many words is that of a test.
const WORDS_OF_A_TEST: usize = 5;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the files below `folder` whose names have this ending, except build products and hidden files.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// Returns the document without its code blocks.
fn prose(document: &str) -> String {
    document.split("```").step_by(2).collect()
}

/// Returns the targets of `[text](target)`.
fn links(prose: &str) -> Vec<&str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// Returns the headings as links name them: in lower case, with hyphens between words, without punctuation.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| -> String {
        let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let mut broken = Vec::new();
    let mut looked_at = 0;
    for page in files(&root(), ".md") {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&prose(&text)).into_iter().filter(|link| !link.contains("://")) {
            looked_at += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let has_anchor =
                || fs::read_to_string(&target).is_ok_and(|document| anchors(&document).contains(anchor));
            if !target.exists() || (!anchor.is_empty() && !has_anchor()) {
                broken.push(format!("{}: {link}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(looked_at > 100, "{looked_at} links are too few: has the search gone wrong?");
    assert!(broken.is_empty(), "these links lead nowhere: {broken:#?}");
}

#[test]
fn every_case_and_test_that_the_guides_cite_is_there() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let cases = read("docs/conformance/cases.md");
    let groups: BTreeSet<&str> = cases
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('.'))
        .map(|(group, _)| group)
        .collect();
    let sources: String =
        files(&root(), ".rs").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let (mut missing, mut cited) = (Vec::new(), 0);
    for page in CITING {
        let text = prose(&read(page));
        for name in text.split('`').skip(1).step_by(2) {
            let is_case = name.split_once('.').is_some_and(|(group, _)| groups.contains(group));
            let is_test = name.split('_').count() >= WORDS_OF_A_TEST
                && !name.contains(|c: char| !c.is_ascii_lowercase() && c != '_');
            let is_there = if is_case {
                cases.contains(&format!("| `{name}` |"))
            } else {
                sources.contains(&format!("fn {name}("))
            };
            cited += usize::from(is_case || is_test);
            if (is_case || is_test) && !is_there {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    assert!(cited > 80, "{cited} citations are too few: has the search gone wrong?");
    assert!(missing.is_empty(), "these cases and tests are not there: {missing:#?}");
}

#[test]
fn the_front_page_of_each_adapter_lists_every_option_of_its_urls() {
    for backend in anyqueue_backends::registry().backends() {
        let name = backend.name;
        let page = fs::read_to_string(root().join("adapters").join(name).join("src/lib.rs")).unwrap();
        let page = page.replace('`', "");
        let listed: Vec<&str> = page
            .lines()
            .skip_while(|line| *line != "//! # By URL")
            .skip_while(|line| *line != "//! |---|---|---|")
            .skip(1)
            .map_while(|line| line.strip_prefix("//! | "))
            .collect();
        let row = |option: &anyqueue::adapter::UrlOption| {
            format!("{} | {} | {} |", option.name, option.default, option.help)
        };
        assert_eq!(listed, backend.options.iter().map(row).collect::<Vec<_>>(), "{name}");
    }
}
