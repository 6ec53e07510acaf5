//! Circles in small sources.

use super::super::file::sample;
use super::*;

/// Returns the circles of a crate with these files.
fn found(sources: &[(&str, &str)]) -> Vec<Circle> {
    let files: Vec<File> =
        sources.iter().map(|(path, text)| sample(&format!("a/src/{path}"), text)).collect();
    let findings = check(&files);
    let circle = |finding: &Finding| {
        let lines = finding.advice.lines().filter_map(|line| line.strip_prefix("    a/src/"));
        lines.map(str::to_owned).collect()
    };
    findings.iter().map(circle).collect()
}

const ROOT: (&str, &str) = ("lib.rs", "mod one;\nmod two;\n");

#[test]
fn two_files_that_use_one_another_are_a_circle() {
    let one = ("one.rs", "use crate::two::Two;\npub struct One(Two);\n");
    for two in [
        "use crate::one::One;\npub struct Two(Box<One>);",
        "use super::one;\npub struct Two(Box<one::One>);",
        "pub struct Two(Box<super::one::One>);",
        "pub struct Two;\nfn two() { use crate::one::{self, One as First}; }",
        "pub struct Two;\nfn two() { assert!(vec![crate::one::One::new()].is_empty()); }",
        "use super::one::*;\npub struct Two(Box<One>);",
        "pub struct Two;\nmod inner { fn two(_: super::super::one::One) {} }",
    ] {
        assert_eq!(found(&[ROOT, one, ("two.rs", two)]), [["one.rs", "two.rs"]], "{two}");
    }
}

#[test]
fn what_is_no_import_makes_no_circle() {
    let one = ("one.rs", "use crate::two::Two;\npub struct One(Two);\n");
    for two in [
        "pub struct Two;",
        "use crate::one;\npub struct Two;",
        "pub struct Two;\n#[cfg(test)]\nmod tests { use crate::one::One; }",
        "pub struct Two;\n#[cfg(test)]\nfn two(_: crate::one::One) {}",
        "pub struct Two;\nfn two() { one::One::new() }",
        "/// As [`crate::one::One`].\npub struct Two;",
        "use one::One;\npub struct Two(One);",
    ] {
        assert_eq!(found(&[ROOT, one, ("two.rs", two)]), [] as [Circle; 0], "{two}");
    }
}

#[test]
fn a_name_that_is_passed_on_is_of_the_file_that_defines_it() {
    let root = |own: &str| format!("mod one;\nmod two;\npub use self::one::One;\n{own}");
    let one = ("one.rs", "pub struct One;");
    let two = ("two.rs", "use crate::One;\npub struct Two(One);");
    assert_eq!(found(&[("lib.rs", &root("")), one, two]), [] as [Circle; 0]);
    // Through the re-exported name, `one` uses `two` and `two` uses `one`.
    let both = ("one.rs", "use crate::two::Two;\npub struct One(Two);");
    assert_eq!(found(&[("lib.rs", &root("")), both, two]), [["one.rs", "two.rs"]]);
    // What the root itself defines belongs to the root.
    let above = ("one.rs", "use crate::Top;\npub struct One(Top);");
    assert_eq!(found(&[("lib.rs", &root("pub struct Top;")), above, two]), [] as [Circle; 0]);
    assert_eq!(found(&[("lib.rs", &root("pub struct Top(One);")), above, two]), [["lib.rs", "one.rs"]]);
}

/// Each of three globs may contain the first words of the others: that is looked up once, not three times at
/// each step.
#[test]
fn stars_of_other_crates_end() {
    let two = "use alpha::*;\nuse beta::gamma::*;\nuse delta::*;\nuse super::one::*;\npub struct Two(One);";
    let one = ("one.rs", "use crate::two::Two;\npub struct One(Two);\n");
    assert_eq!(found(&[ROOT, one, ("two.rs", two)]), [["one.rs", "two.rs"]]);
}

#[test]
fn a_circle_of_many_is_one_and_apart_from_others() {
    let root = ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\nmod e;\n");
    let uses = |other: &str| format!("use super::{other}::X as Y;\npub struct X(Y);");
    let sources = [
        ("a.rs", uses("b")),
        ("b/mod.rs", uses("c")),
        ("c.rs", uses("a")),
        ("d.rs", uses("e")),
        ("e.rs", uses("d")),
    ];
    let mut files: Vec<(&str, &str)> = sources.iter().map(|(path, text)| (*path, text.as_str())).collect();
    files.push(root);
    assert_eq!(found(&files), [vec!["a.rs", "b/mod.rs", "c.rs"], vec!["d.rs", "e.rs"]]);
}

#[test]
fn the_lines_that_close_a_circle_are_told() {
    let files = [
        sample("a/src/lib.rs", ROOT.1),
        sample("a/src/one.rs", "//! One.\nuse crate::two::{\n    Two,\n};\npub struct One(Two);"),
        sample("a/src/two.rs", "pub struct Two(Box<crate::one::One>);"),
    ];
    let findings = check(&files);
    let advice = &findings[0].advice;
    assert!(advice.contains("a/src/one.rs\n        3: crate::two::Two of a/src/two.rs"), "{advice}");
    assert!(advice.contains("a/src/two.rs\n        1: crate::one::One of a/src/one.rs"), "{advice}");
}
