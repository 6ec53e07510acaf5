//! What people have set, out of one service and into another.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyqueue::{Page, Queue};
use anyqueue_control::audit::Audit;
use anyqueue_control::tokens::{Rights, Tokens};
use anyqueue_memory::MemoryQueue;
use serde_json::{Value, json};

use crate::bed::{Bed, over};
use crate::between::Between;
use crate::client::Answer;
use crate::cron::put;

const LINES: (&str, &str) = ("content-type", "application/x-ndjson");

async fn send(bed: &Bed, path: &str, lines: &[Value]) -> Answer {
    let body = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    bed.client.send("POST", path, &[LINES], body.as_bytes()).await
}

/// What became of each line.
async fn import(bed: &Bed, lines: &[Value]) -> Vec<Value> {
    outcomes(&send(bed, "/v1/import", lines).await)
}

fn outcomes(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200);
    answer.lines().iter().map(|one| one["outcome"].clone()).collect()
}

async fn export(bed: &Bed) -> Vec<Value> {
    let answer = bed.client.get("/v1/export").await;
    assert_eq!(answer.status, 200);
    answer.lines()
}

/// A service with some of everything, and the export of it.
async fn filled() -> (Bed, Vec<Value>) {
    let bed = Bed::new().await;
    let full = json!({
        "spec": "0 7 * * MON-FRI", "zone": "Europe/Berlin", "gap": "skip", "overlap_hour": "last", "partition": "reports",
        "json": { "full": true }, "kind": "daily", "headers": { "h": "1" }, "priority": 3, "missed": "all:2",
        "deadline_ms": 90_000, "running": "allow"
    });
    put(bed.client, "/v1/cron/re%2Fport", &full).await.ok();
    let bytes = json!({ "spec": "@daily", "partition": "reports", "payload_base64": "/wAB" });
    put(bed.client, "/v1/cron/bytes", &bytes).await.ok();
    bed.client.send("POST", "/v1/cron/bytes/pause", &[], b"").await.ok();
    let limit = json!({ "partition": "mail", "cap": 5, "rate": { "per_second": 0.5, "burst": 2 } });
    put(bed.client, "/v1/limits/smtp", &limit).await.ok();
    put(bed.client, "/v1/limits/each", &json!({ "header": "customer", "cap": 3 })).await.ok();
    bed.push("mail", json!({ "payload": "secret payload" })).await;
    bed.client.send("POST", "/v1/partitions/mail/pause", &[], b"").await.ok();
    let lines = export(&bed).await;
    (bed, lines)
}

#[tokio::test]
async fn another_service_is_set_as_the_first_and_exports_the_same() {
    let (first, lines) = filled().await;
    assert_eq!(lines.last().unwrap(), &json!({ "what": "end", "count": 5, "without": [] }));
    let second = Bed::new().await;
    // What was paused there, and is not here, goes on.
    put(second.client, "/v1/cron/re%2Fport", &json!({ "spec": "@hourly", "partition": "x" })).await.ok();
    second.client.send("POST", "/v1/cron/re%2Fport/pause", &[], b"").await.ok();
    put(second.client, "/v1/limits/mine", &json!({ "kind": "k", "cap": 1 })).await.ok();
    second.push("mail", json!({ "payload": "x" })).await;
    let planned = outcomes(&send(&second, "/v1/import?dry_run=true", &lines).await);
    assert_eq!(export(&second).await.len(), 3, "nothing is set");
    let done = import(&second, &lines).await;
    assert_eq!(done, ["created", "changed", "created", "created", "changed", "skipped"]);
    assert_eq!(planned, done);
    assert_eq!(second.client.delete("/v1/limits/mine").await.status, 204, "what is not named stays");
    assert_eq!(export(&second).await, lines);
    for path in ["/v1/cron/re%2Fport", "/v1/cron/bytes"] {
        assert_eq!(second.client.get(path).await.ok(), first.client.get(path).await.ok());
    }
}

#[tokio::test]
async fn one_that_was_cut_is_repeated_and_leaves_alone_what_is_so_already() {
    let (_first, lines) = filled().await;
    let second = Bed::new().await;
    second.push("mail", json!({ "payload": "x" })).await;
    for cut in 0..lines.len() {
        import(&second, &lines[..cut]).await;
    }
    let before = second.client.get("/v1/limits/smtp").await;
    let again = import(&second, &lines).await;
    assert_eq!(again[..5], ["unchanged", "unchanged", "unchanged", "unchanged", "unchanged"]);
    assert_eq!(before.ok()["revision"], 1, "it was put once");
    // Somebody has resumed it since.
    second.client.send("POST", "/v1/cron/bytes/resume", &[], b"").await.ok();
    assert!(import(&second, &lines).await.contains(&json!("changed")));
    assert_eq!(export(&second).await, lines);
}

#[tokio::test]
async fn a_schedule_that_is_paused_there_is_never_live_here() {
    let (_first, lines) = filled().await;
    let watched = Arc::new(Between::new());
    let second = Bed::over(over(watched.clone())).await;
    let paused = lines.iter().find(|line| line["name"] == "bytes").unwrap();
    let mut changed = paused.clone();
    changed["put"]["priority"] = json!(1);
    for (line, outcome) in [(paused, "created"), (paused, "changed"), (&changed, "changed")] {
        assert_eq!(import(&second, std::slice::from_ref(line)).await, [outcome]);
        let written = watched.written("cron/bytes");
        assert!(!written.is_empty() && written.iter().all(|entry| entry["paused"] == true), "{written:?}");
        let resumed = second.client.send("POST", "/v1/cron/bytes/resume", &[], b"").await.ok();
        assert_eq!(resumed["paused"], false);
        watched.written("cron/bytes");
    }
}

#[tokio::test]
async fn neither_secrets_nor_messages_nor_holders_are_in_it() {
    let (bed, _) = filled().await;
    let tokens = Tokens::new(bed.queue.control().unwrap());
    tokens.create("spy", &Rights::everything(), None).await.unwrap().unwrap();
    let text = json!(export(&bed).await).to_string();
    let entries = bed.queue.control().unwrap().list_all("server/", 10).await.unwrap().value;
    let key: Value = serde_json::from_slice(&entries[0].value).unwrap();
    for secret in [key["key"].as_str().unwrap(), "secret payload", "spy", "server/", "holders"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn a_bad_line_is_answered_by_itself_and_harms_no_other() {
    let bed = Bed::new().await;
    let lines = [
        json!({ "what": "limit", "name": "", "put": { "partition": "mail", "cap": 5 } }),
        json!({ "what": "limit", "name": "none", "put": { "partition": "mail" } }),
        json!({ "what": "schedule", "name": "s", "paused": false, "put": { "spec": "nonsense", "partition": "p" } }),
        json!({ "what": "schedule", "name": "", "paused": false, "put": { "spec": "@daily", "partition": "p" } }),
        json!({ "what": "worker", "name": "w" }),
        json!({ "what": "pause", "partition": "\u{0}" }),
        json!({ "what": "limit", "name": "l", "put": { "partition": "mail", "cap": 5 }, "server/seal": "x" }),
        json!(17),
        json!({ "what": "limit", "name": "l", "put": { "partition": "mail", "cap": 5 } }),
        json!({ "what": "unreadable", "name": "x", "error": "y" }),
    ];
    let expected = [&["error"; 8][..], &["created", "skipped"]].concat();
    assert_eq!(outcomes(&send(&bed, "/v1/import?dry_run=true", &lines).await), expected);
    assert_eq!(import(&bed, &lines).await, expected);
    let set = export(&bed).await;
    assert_eq!(set.len(), 2, "{set:?}");
    let torn =
        b"{\"what\":\"limit\",\"name\":\"torn\",\"put\":{\"partition\":\"mail\",\"cap\":5}}\n{\"what\":\"lim";
    assert_eq!(bed.client.send("POST", "/v1/import", &[LINES], torn).await.status, 400);
    assert_eq!(export(&bed).await, set, "a body that is cut sets nothing");
}

#[tokio::test]
async fn the_audit_trail_says_of_an_import_whether_it_was_tried_only_and_how_much_it_put() {
    let (bed, mut lines) = filled().await;
    lines.push(json!({ "what": "limit", "name": "new", "put": { "partition": "mail", "cap": 5 } }));
    lines.push(json!({ "what": "limit", "name": "", "put": { "partition": "mail", "cap": 5 } }));
    lines.push(json!(17));
    let audit = Audit::new(bed.queue.control().unwrap());
    for (path, dry) in [("/v1/import?dry_run=true", "nothing was changed"), ("/v1/import", "no")] {
        send(&bed, path, &lines).await;
        let outcome = audit.list(Page::of(1)).await.unwrap().entries.remove(0).outcome.unwrap();
        let details: BTreeMap<_, _> =
            outcome.details.iter().map(|(name, value)| (&**name, &**value)).collect();
        let expected = [
            ("dry run", dry),
            ("schedules", "2 unchanged"),
            ("limits", "1 created, 1 failed, 2 unchanged"),
            ("pauses", "1 unchanged"),
            ("other lines", "1 failed, 1 skipped"),
        ];
        assert_eq!(details, BTreeMap::from(expected), "{path}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_nothing_is_put_over_it() {
    let bed = Bed::new().await;
    let (control, key) = (bed.queue.control().unwrap(), anyqueue::control::Key::new("limit/odd").unwrap());
    let change = anyqueue::control::Change::put(key, anyqueue::control::Expect::Absent, b"{".to_vec());
    control.apply(change).await.unwrap();
    let lines = export(&bed).await;
    assert_eq!((&lines[0]["what"], &lines[0]["name"]), (&json!("unreadable"), &json!("odd")));
    let over = json!({ "what": "limit", "name": "odd", "put": { "partition": "mail", "cap": 5 } });
    assert_eq!(import(&bed, &[over]).await, ["error"]);
}

#[tokio::test]
async fn a_service_that_only_reads_exports_and_tries_and_imports_nothing() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let bed = Bed::with(queue, |builder| builder.read_only(true)).await;
    assert_eq!(export(&bed).await.len(), 1);
    let line = json!({ "what": "limit", "name": "l", "put": { "partition": "mail", "cap": 5 } });
    assert_eq!(send(&bed, "/v1/import", std::slice::from_ref(&line)).await.status, 403);
    assert_eq!(outcomes(&send(&bed, "/v1/import?dry_run=true", &[line]).await), ["created"]);
}
