//! Push, pull, peek, stats, pause and purge.

use std::process::Stdio;

use serde_json::json;

use crate::bed::{Bed, ended, numbers, until};

#[tokio::test]
async fn what_is_pushed_is_pulled_in_order_and_gone() {
    let bed = Bed::new();
    let pushed = bed.ok(&["push", "mail", "one", "two"]).await;
    assert_eq!(pushed.out.lines().filter(|line| line.starts_with("stored ")).count(), 2, "{pushed:?}");
    assert_eq!(bed.ok(&["pull", "mail", "--max", "5"]).await.out, "one\ntwo\n");
    assert_eq!(bed.run(&["pull", "mail"]).await.ended_with(4).out, "");
}

#[tokio::test]
async fn standard_input_is_a_payload_byte_for_byte() {
    let bed = Bed::new();
    let payload = b"\xff\x00\nlines\r\n\x1b";
    bed.run_with(&["push", "raw"], payload).await.ended_with(0);
    let shown = bed.ok(&["pull", "raw", "--json", "--settle", "waiting"]).await;
    assert_eq!(shown.objects()[0]["payload_base64"], "/wAKbGluZXMNChs=");
    assert_eq!(bed.ok(&["pull", "raw"]).await.bytes, [payload.as_slice(), b"\n"].concat());
}

#[tokio::test]
async fn options_travel_with_the_message() {
    let bed = Bed::new();
    let options = [
        "push",
        "q",
        "late",
        "--priority",
        "2",
        "--header",
        "a=b=c",
        "--kind",
        "k",
        "--task-id",
        "t",
        "--session-id",
        "s",
        "--group",
        "g",
        "--dedup-key",
        "d",
        "--ttl",
        "1h",
        "--max-retries",
        "3",
        "--max-duration",
        "5s",
    ];
    bed.ok(&options).await;
    bed.ok(&["push", "q", "urgent", "--priority", "9"]).await;
    bed.ok(&["push", "q", "later", "--delay", "1h"]).await;
    assert_eq!(bed.counts("q").await, [2, 1, 0, 0]);
    assert!(bed.ok(&["push", "q", "again", "--dedup-key", "d"]).await.out.starts_with("duplicate "));
    let found = bed.ok(&["pull", "q", "--max", "5", "--json"]).await.objects();
    assert_eq!(found[0]["payload"], "urgent");
    let wanted = json!({
        "payload": "late", "priority": 2, "headers": { "a": "b=c", "task-kind": "k" }, "task_id": "t",
        "session_id": "s", "group": "g", "dedup_key": "d", "ttl": "1h", "max_retries": 3, "max_duration": "5s",
        "queue": "q", "deliveries": 1,
    });
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(&found[1][name], value, "{name} of {}", found[1]);
    }
    assert_eq!(found.len(), 2, "what is delayed does not come");
}

#[tokio::test]
async fn lines_become_messages() {
    let bed = Bed::new();
    let pushed = bed.run_with(&["push", "many", "--lines", "--json"], &numbers(0..2500)).await.ended_with(0);
    assert_eq!(pushed.objects(), [json!({ "stored": 2500, "duplicates": 0, "refused": 0 })]);
    assert_eq!(bed.counts("many").await, [2500, 0, 0, 0]);
    assert_eq!(bed.ok(&["pull", "many", "-n", "2"]).await.out, "0\n1\n");
}

#[tokio::test]
async fn a_bad_line_is_reported_and_harms_no_other() {
    let bed = Bed::new();
    let lines = b"{\"payload\":\"good\"}\n{\"payload\":\"x\",\"prio\":3}\n\nnonsense\n{\"payload\":\"also good\"}\n{\"payload\":\"x\",\"priority\":99}\n";
    std::fs::write(bed.path("jobs.ndjson"), lines).unwrap();
    let pushed = bed.run(&["push", "q", "--ndjson", "jobs.ndjson"]).await.ended_with(1);
    assert_eq!(pushed.out, "stored 2, duplicates 0, refused 3\n");
    for words in ["line 2:", "prio", "line 4:", "line 6:", "priority 99"] {
        assert!(pushed.err.contains(words), "{words} is not in {}", pushed.err);
    }
    assert_eq!(bed.ok(&["pull", "q", "-n", "9"]).await.out, "good\nalso good\n");
}

#[tokio::test]
async fn a_bulk_push_with_ids_can_be_repeated() {
    let bed = Bed::new();
    bed.ok(&["push", "from", "a", "b", "c", "--header", "h=1", "--priority", "4"]).await;
    let found = bed.ok(&["peek", "from", "--json"]).await;
    let first = bed.run_with(&["push", "to", "--ndjson"], &found.bytes).await.ended_with(0);
    assert_eq!(first.out, "stored 3, duplicates 0, refused 0\n");
    let again = bed.run_with(&["push", "to", "--ndjson"], &found.bytes).await.ended_with(0);
    assert_eq!(again.out, "stored 0, duplicates 3, refused 0\n");
    let copies = bed.ok(&["peek", "to", "--json"]).await.objects();
    let key = |v: &serde_json::Value| {
        [v["id"].clone(), v["payload"].clone(), v["headers"].clone(), v["priority"].clone()]
    };
    assert_eq!(
        copies.iter().map(key).collect::<Vec<_>>(),
        found.objects().iter().map(key).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn peeking_takes_and_counts_nothing() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "one", "two", "three"]).await;
    let all = bed.ok(&["peek", "q", "--json"]).await.objects();
    assert_eq!(all.len(), 3);
    let id = all[1]["id"].as_str().unwrap();
    let one = bed.ok(&["peek", "q", "--id", id, "--json"]).await.objects();
    assert_eq!((one.len(), &one[0]["payload"], &one[0]["state"]), (1, &json!("two"), &json!("ready")));
    assert!(bed.ok(&["peek", "q", "-n", "1"]).await.out.contains("one"));
    assert_eq!(one[0]["deliveries"], 0);
    bed.run(&["peek", "q", "--id", "00000000-0000-7000-8000-000000000000"]).await.ended_with(4);
    bed.run(&["peek", "empty"]).await.ended_with(4);
    assert_eq!(bed.counts("q").await, [3, 0, 0, 0]);
}

#[tokio::test]
async fn stats_are_of_all_queues_and_come_again() {
    let bed = Bed::new();
    bed.ok(&["push", "a", "1"]).await;
    bed.ok(&["push", "b", "1", "2"]).await;
    let table = bed.ok(&["stats"]).await.out;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["queue", "ready", "delayed", "leased", "disabled", "dead"]);
    assert_eq!(rows[1..], [vec!["a", "1", "0", "0", "0", "0"], vec!["b", "2", "0", "0", "0", "0"]]);
    let rounds = bed.ok(&["stats", "b", "--watch", "10ms", "--rounds", "3", "--json"]).await.objects();
    assert_eq!(rounds.iter().map(|row| row["ready"].as_u64()).collect::<Vec<_>>(), [Some(2); 3]);
}

#[tokio::test]
async fn a_paused_queue_delivers_nothing_until_it_is_resumed() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "waits"]).await;
    bed.ok(&["pause", "q"]).await;
    bed.run(&["pull", "q"]).await.ended_with(4);
    assert_eq!(bed.ok(&["stats", "q", "--json"]).await.objects()[0]["paused"], true);
    assert!(bed.ok(&["stats", "q"]).await.out.contains("paused"));
    bed.ok(&["resume", "q"]).await;
    assert_eq!(bed.ok(&["pull", "q"]).await.out, "waits\n");
}

#[tokio::test]
async fn a_purge_must_be_meant() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "1", "2"]).await;
    bed.ok(&["push", "q", "3", "--delay", "1h"]).await;
    let asked = bed.run(&["purge", "q"]).await.ended_with(2);
    assert!(asked.err.contains("2 ready and 1 delayed") && asked.err.contains("--yes"), "{asked:?}");
    assert_eq!(bed.counts("q").await, [2, 1, 0, 0]);
    assert_eq!(bed.ok(&["purge", "q", "--yes"]).await.out, "deleted 3 messages of q\n");
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn what_a_pull_says_becomes_of_messages_does() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "one"]).await;
    bed.ok(&["pull", "q", "--settle", "waiting"]).await;
    bed.ok(&["pull", "q", "--settle", "failed"]).await;
    assert_eq!(bed.counts("q").await, [1, 0, 0, 0]);
    bed.ok(&["pull", "q", "--settle", "postponed", "--delay", "1h"]).await;
    assert_eq!(bed.counts("q").await, [0, 1, 0, 0]);
    bed.ok(&["push", "q", "two"]).await;
    bed.ok(&["pull", "q", "--settle", "poisonous", "--reason", "it smells"]).await;
    let dead = bed.ok(&["dead", "list", "q", "--json"]).await.objects();
    assert_eq!(dead[0]["dead_reason"], "it smells");
    assert_eq!(bed.ok(&["pull", "q", "--dead"]).await.out, "two\n");
    assert_eq!(bed.counts("q").await, [0, 1, 0, 0]);
}

#[tokio::test]
async fn what_nobody_reads_is_released() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "precious"]).await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = bed.command(&["pull", "q"]).stdout(Stdio::from(writer)).spawn().unwrap();
    let ran = ended(child).await.ended_with(1);
    assert_eq!(ran.err, "", "a closed pipe is no reason to complain");
    assert_eq!(bed.ok(&["pull", "q"]).await.out, "precious\n");
}

#[tokio::test]
async fn who_has_read_enough_of_what_only_reads_is_no_failure() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "one", "65"]).await;
    bed.run(&["work", "q", "--once", "--exec", "exit 65"]).await;
    bed.ok(&["push", "q", "one"]).await;
    let reading: [&[&str]; 8] = [
        &["peek", "q"],
        &["peek", "q", "--json"],
        &["stats"],
        &["stats", "--watch", "20ms"],
        &["dead", "list", "q"],
        &["man"],
        &["completions", "bash"],
        &["--help"],
    ];
    for arguments in reading {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = bed.command(arguments).stdout(Stdio::from(writer)).spawn().unwrap();
        let ran = ended(child).await;
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[tokio::test]
async fn looking_by_hand_removes_nothing_that_has_expired() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x", "--ttl", "1ms"]).await;
    until("it has expired", async || {
        bed.run(&["pull", "q", "--settle", "waiting"]).await;
        (bed.counts("q").await == [0, 0, 0, 1]).then_some(())
    })
    .await;
}
