//! Progress for programs: on standard error, with `--json`, unless it is not wanted.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::bed::{Bed, PATIENCE};

#[tokio::test]
async fn a_long_push_tells_programs_how_far_it_is() {
    let bed = Bed::new();
    let mut push = bed.command(&["push", "q", "--lines", "--json"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = push.stdin.take().unwrap();
    let mut progress = BufReader::new(push.stderr.take().unwrap()).lines();
    input.write_all(b"one\ntwo\n").await.unwrap();
    let both = json!({ "progress": "pushed", "done": 2, "total": null });
    let seen = async {
        while progress.next_line().await.unwrap().map(|line| serde_json::from_str::<Value>(&line).unwrap())
            != Some(both.clone())
        {}
    };
    tokio::time::timeout(PATIENCE, seen).await.expect("it tells of both");
    drop(input);
    let ran = crate::bed::ended(push).await.ended_with(0);
    assert_eq!(ran.objects(), [json!({ "stored": 2, "duplicates": 0, "refused": 0 })], "only the result");
}

#[tokio::test]
async fn the_suite_tells_programs_how_far_it_is() {
    let bed = Bed::new();
    // A case that waits for longer than it takes until progress is shown.
    let ran = bed.ok(&["conformance", "--case", "lease.", "--parallel", "1", "--json"]).await;
    let lines: Vec<Value> = ran.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        lines.iter().any(|line| line["progress"] == "cases" && line["done"].as_u64() > Some(0)),
        "{ran:?}"
    );
    assert!(lines.is_sorted_by_key(|line| line["done"].as_u64()), "{ran:?}");
    let quiet = bed.ok(&["conformance", "--case", "lease.", "--parallel", "1", "--json", "--quiet"]).await;
    assert_eq!(quiet.err, "");
}
