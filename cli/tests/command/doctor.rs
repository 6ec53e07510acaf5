//! Doctor: what it finds, and its exit codes. And the small bench.

use serde_json::Value;

use crate::bed::Bed;

fn verdict<'a>(findings: &'a [Value], check: &str) -> Vec<&'a str> {
    findings.iter().filter(|f| f["check"] == check).map(|f| f["verdict"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_healthy_backend_passes_the_gate() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "1"]).await;
    let findings = bed.ok(&["doctor", "--strict", "--probe", "--json"]).await.objects();
    for check in ["open", "health", "durability", "probe"] {
        assert_eq!(verdict(&findings, check), ["ok"], "{check} of {findings:?}");
    }
    assert_eq!(bed.counts("anyqueue-doctor").await, [0, 0, 0, 0], "the probe leaves nothing");
    assert!(bed.ok(&["doctor"]).await.out.contains("survive the loss of power"));
}

#[tokio::test]
async fn a_warning_fails_the_strict_gate_only() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "1"]).await;
    let url = "sqlite:jobs.db?synchronous=normal";
    let findings = bed.ok(&["doctor", url, "--json"]).await.objects();
    assert_eq!(verdict(&findings, "durability"), ["warning"]);
    bed.run(&["doctor", url, "--strict"]).await.ended_with(3);
}

#[tokio::test]
async fn what_cannot_be_used_fails_the_gate() {
    let bed = Bed::new();
    let missing = bed.run(&["doctor", "--json"]).await.ended_with(3);
    assert_eq!(verdict(&missing.objects(), "open"), ["failed"]);
    std::fs::write(
        bed.path("jobs.db"),
        "this is no database, and long enough to be looked at as one".repeat(100),
    )
    .unwrap();
    let broken = bed.run(&["doctor"]).await.ended_with(3);
    assert!(broken.out.contains("FAILED"), "{broken:?}");
}

#[tokio::test]
async fn limits_are_part_of_the_gate() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "1", "2"]).await;
    bed.ok(&["doctor", "--max-dead", "0", "--max-ready", "2"]).await;
    let full = bed.run(&["doctor", "--max-ready", "1"]).await.ended_with(3);
    assert!(full.out.contains("q: 2 ready, more than 1"), "{full:?}");
    bed.ok(&["pull", "q", "--settle", "poisonous"]).await;
    bed.run(&["doctor", "--max-dead", "0"]).await.ended_with(3);
    bed.ok(&["doctor", "--max-dead", "0", "--queue", "other"]).await;
}

#[tokio::test]
async fn the_bench_takes_out_all_that_it_puts_in() {
    let bed = Bed::new();
    let rows =
        bed.ok(&["bench", "--messages", "200", "--pings", "5", "--tasks", "8", "--json"]).await.objects();
    assert_eq!(rows.len(), 7, "{rows:?}");
    assert!(rows[..6].iter().all(|row| row["per_second"].as_u64().unwrap() > 0), "{rows:?}");
    assert!(rows[6]["p50_us"].as_u64().unwrap() <= rows[6]["p99_us"].as_u64().unwrap(), "{rows:?}");
    for row in bed.ok(&["stats", "--json"]).await.objects() {
        assert_eq!(row["ready"], 0, "{row}");
    }
}
