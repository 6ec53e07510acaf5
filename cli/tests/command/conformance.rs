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
