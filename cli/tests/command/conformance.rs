//! The suite by URL.

use serde_json::Value;

use crate::bed::Bed;

#[tokio::test]
async fn the_suite_runs_and_reports() {
    let bed = Bed::new();
    let ran = bed
        .ok(&[
            "conformance",
            "--case",
            "push.",
            "--junit",
            "r.xml",
            "--certificate",
            "r.md",
            "--json",
            "--seed",
            "7",
        ])
        .await;
    let report: Value = ran.objects().remove(0);
    assert_eq!((&report["backend"], &report["seed"]), (&"sqlite".into(), &7.into()));
    assert!(report["cases"].as_array().unwrap().len() >= 8, "{report}");
    assert!(std::fs::read_to_string(bed.path("r.xml")).unwrap().contains("<testsuite name=\"sqlite\""));
    assert!(std::fs::read_to_string(bed.path("r.md")).unwrap().starts_with("# Conformance of sqlite"));
    let left: Vec<_> = std::fs::read_dir(bed.path(".")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the places of the cases are removed: {left:?}");
}

#[tokio::test]
async fn skipped_cases_are_counted() {
    let bed = Bed::new();
    let ran = bed.ok(&["conformance", "--clause", "24"]).await;
    assert!(ran.out.contains("certificate: partial"), "{}", ran.out);
    assert!(ran.out.lines().last().unwrap().starts_with("skipped: "), "{}", ran.out);
    assert!(!ran.out.contains("skipped: 0"), "{}", ran.out);
}

#[tokio::test]
async fn a_run_of_nothing_is_a_mistake() {
    let bed = Bed::new();
    bed.run(&["conformance", "--case", "no such case"]).await.ended_with(2);
    bed.run(&["conformance", "pigeon://roof"]).await.ended_with(2);
    bed.run(&["conformance", "sqlite:no/such/folder/x.db"]).await.ended_with(1);
}

#[tokio::test]
async fn capabilities_are_shown_as_in_the_documents() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let page = include_str!("../../../docs/capabilities.md");
    let documented: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let documented = documented.split(|name| *name == "---").nth(1).unwrap();
    let shown = bed.ok(&["capabilities", "--json"]).await.objects().remove(0);
    assert_eq!(shown["backend"], "sqlite");
    let declared = shown["capabilities"].as_object().unwrap();
    assert_eq!(declared["groups"], "yes");
    assert_eq!(declared.len(), documented.len(), "{shown}");
    assert!(documented.iter().all(|name| declared.contains_key(*name)), "{documented:?} of {shown}");
    let table = bed.ok(&["capabilities", "sqlite:jobs.db", "sqlite:jobs.db?synchronous=normal"]).await.out;
    let row = table.lines().find(|line| line.starts_with("acknowledged push survives")).unwrap();
    assert!(row.contains("loss of power") && row.contains("crash of a process"), "a column for each: {row}");
    bed.run(&["capabilities", "sqlite:none.db"]).await.ended_with(1);
}
