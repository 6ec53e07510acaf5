//! Bodies that were right until somebody changed them, and lengths that are wrong.

use std::cell::Cell;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bed::{Bed, memory};
use crate::client::Answer;

const PUSH: &str = "/v1/partitions/mail/messages";
const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";
/// `PROPTEST_CASES` may ask for more.
const CASES: u32 = 256;
/// Far more brackets than any reader goes into.
const MOST_DEEP: usize = 20_000;

/// A request that is right.
#[derive(Clone, Debug)]
struct Request {
    path: &'static str,
    kind: &'static str,
    body: String,
}

/// What is done to a body.
#[derive(Clone, Debug)]
enum Change {
    /// One bit is another.
    Flip(Index, u8),
    /// Nothing comes from here on.
    Cut(Index),
    /// What is between two places comes twice.
    Double(Index, Index),
    /// So many brackets open here, and may close again.
    Nest(Index, usize, bool),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Self::Flip(at, bit) => bytes[at.index(length)] ^= 1_u8 << *bit,
            Self::Cut(at) => bytes.truncate(at.index(length)),
            Self::Double(one, other) => {
                let (one, other) = (one.index(length), other.index(length));
                let part = bytes[one.min(other)..one.max(other)].to_vec();
                insert(bytes, one.max(other), &part);
            }
            Self::Nest(at, depth, closes) => {
                let closing = if *closes { "]".repeat(*depth) } else { String::new() };
                insert(bytes, at.index(length), format!("{}{closing}", "[".repeat(*depth)).as_bytes());
            }
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    let rest = bytes.split_off(at);
    bytes.extend_from_slice(part);
    bytes.extend(rest);
}

fn change() -> impl Strategy<Value = Change> {
    let place = || any::<Index>();
    prop_oneof![
        4 => (place(), 0_u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        2 => place().prop_map(Change::Cut),
        2 => (place(), place()).prop_map(|(one, other)| Change::Double(one, other)),
        1 => (place(), 1..MOST_DEEP, any::<bool>())
            .prop_map(|(at, depth, closes)| Change::Nest(at, depth, closes)),
    ]
}

/// A request of each sort, with a delivery that is held. None of them waits.
async fn requests(bed: &Bed) -> Vec<Request> {
    bed.push("held", json!({ "payload": "x" })).await;
    let held = bed.pull_with(json!({ "partitions": ["held"], "lease_ms": 600_000 })).await;
    let delivery = &held["deliveries"][0]["delivery"];
    let message = json!({
        "json": { "to": ["a", 1, null] }, "kind": "send", "task_id": "t", "session_id": "s",
        "headers": { "mine": "kept" }, "priority": 3, "delay_ms": 1, "time_to_live_ms": 60_000, "group": "g",
        "dedup_key": "d", "on_duplicate": "replace", "max_retries": 2, "max_duration_ms": 9000,
    });
    let pull = json!({ "partitions": ["mail"], "max": 2, "lease_ms": 60_000, "worker": "w", "received": "" });
    let settle = json!({ "delivery": delivery, "status": "processed", "result": { "n": 1 }, "worker": "w" });
    let of = |path, body: Value| Request { path, kind: JSON, body: body.to_string() };
    vec![
        of(PUSH, message.clone()),
        of(PUSH, json!([message, { "payload": "x" }])),
        Request { path: PUSH, kind: LINES, body: format!("{message}\n{{\"payload\":\"x\"}}\n") },
        of("/v1/pull", pull),
        of("/v1/settle", json!([settle])),
        of("/v1/settle", settle),
        of("/v1/extend", json!({ "delivery": delivery, "lease_ms": 600_000 })),
    ]
}

/// The statuses of an answer: its own, and those of the items that failed.
fn statuses(answer: &Answer) -> Vec<u64> {
    let mut all = vec![u64::from(answer.status)];
    if answer.status == 200 {
        let lines = answer.head.contains(LINES);
        let items = if lines { answer.lines() } else { vec![answer.json()] };
        let items = items.into_iter().flat_map(|item| match item {
            Value::Array(items) => items,
            item => vec![item],
        });
        all.extend(items.filter_map(|item| item["problem"]["status"].as_u64()));
    }
    all
}

/// A task goes its way.
async fn goes_on(bed: &Bed) {
    let id = bed.push("after", json!({ "payload": "x" })).await;
    let pulled = bed.pull("after").await;
    assert_eq!(pulled["id"], json!(id));
    let settled = bed.settle(json!({ "delivery": pulled["delivery"], "status": "processed" })).await;
    assert_eq!(settled["outcome"], "settled");
}

#[test]
fn a_body_that_was_right_and_was_changed_is_the_fault_of_its_sender_alone() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (bed, requests) = runtime.block_on(async {
        let bed = Bed::new().await;
        let requests = requests(&bed).await;
        for request in &requests {
            let kind = [("content-type", request.kind)];
            let answer = bed.client.send("POST", request.path, &kind, request.body.as_bytes()).await;
            assert_eq!(statuses(&answer), [200], "unchanged it is right: {request:?}");
        }
        (bed, requests)
    });
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(Config { cases: config.cases.max(CASES), ..config });
    let (answered, refused) = (Cell::new(0_u32), Cell::new(0_u32));
    runner
        .run(&(select(requests), vec(change(), 1..=4)), |(request, changes)| {
            let mut body = request.body.clone().into_bytes();
            for change in &changes {
                change.apply(&mut body);
            }
            let kind = [("content-type", request.kind)];
            let answer = runtime.block_on(bed.client.send("POST", request.path, &kind, &body));
            let statuses = statuses(&answer);
            let is_right = statuses.iter().all(|status| *status == 200 || (400..500).contains(status));
            prop_assert!(is_right, "{:?}: {}", statuses, String::from_utf8_lossy(&answer.body));
            let count = if answer.status == 200 { &answered } else { &refused };
            count.set(count.get() + 1);
            Ok(())
        })
        .unwrap();
    runtime.block_on(goes_on(&bed));
    // Both happened, so the changes are neither too small nor too large to find anything.
    assert!(answered.get() > 0 && refused.get() > answered.get(), "{answered:?}, {refused:?}");
}

/// A push that says that its body is so long.
fn push(bed: &Bed, length: &str) -> String {
    let host = bed.client.0;
    let head = format!("POST {PUSH} HTTP/1.1\r\nhost: {host}\r\ncontent-type: {JSON}\r\n");
    format!("{head}content-length: {length}\r\n\r\n{{\"payload\":\"x\"}}")
}

#[tokio::test]
async fn a_length_that_is_wrong_stores_nothing_and_the_service_goes_on() {
    let bed = Bed::with(memory(), |builder| builder.patience(Duration::from_millis(500))).await;
    // Shorter than the body; longer, so that the rest does not come; and none at all.
    let lengths =
        [("5", 400), ("14", 400), ("16", 408), ("1000", 408), ("-1", 400), ("15\r\ncontent-length: 16", 400)];
    for (length, status) in lengths {
        let answer = bed.client.raw(push(&bed, length).as_bytes()).await;
        assert_eq!(answer.status, status, "{length:?}: {}", String::from_utf8_lossy(&answer.body));
    }
    // Nothing more will come, which the service is told.
    let mut stream = TcpStream::connect(bed.client.0).await.unwrap();
    stream.write_all(push(&bed, "1000").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut answer)).await;
    let _ = ended.expect("the service hangs up");
    assert!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["ready"], 0);
    goes_on(&bed).await;
}
