//! How many tasks ended, and how long they took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::Queue;
use anyqueue::adapter::{Capabilities, Forward, QueueStorage as _, Storage};
use anyqueue_memory::MemoryQueue;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::bed::{Bed, over};
use crate::counting::Counting;

/// A backend that does not count ends.
#[derive(Debug)]
struct Uncounted(MemoryQueue, Capabilities);

impl Forward for Uncounted {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }
}

/// A queue over one.
pub(crate) fn uncounted() -> Queue {
    let memory = MemoryQueue::new();
    let capabilities = Capabilities { series: false, ..memory.capabilities().clone() };
    over(Arc::new(Uncounted(memory, capabilities)))
}

async fn ends(bed: &Bed, kind: &str, status: &str) {
    bed.push("mail", json!({ "payload": "x", "kind": kind })).await;
    let mail = bed.pull("mail").await;
    bed.settle(json!({ "delivery": mail["delivery"], "status": status })).await;
}

/// Of all times, so that midnight may come in between.
fn told(answer: &Value) -> Vec<(&str, &str, u64)> {
    let mut sums = BTreeMap::new();
    for row in answer["rows"].as_array().unwrap() {
        let of = (row["kind"].as_str().unwrap(), row["state"].as_str().unwrap());
        *sums.entry(of).or_insert(0) += row["tasks"].as_u64().unwrap();
    }
    sums.into_iter().map(|((kind, state), tasks)| (kind, state, tasks)).collect()
}

#[tokio::test]
async fn ends_are_told_by_step_of_time_kind_and_state() {
    let bed = Bed::new().await;
    for (kind, status) in
        [("send", "processed"), ("send", "processed"), ("send", "poisonous"), ("read", "processed")]
    {
        ends(&bed, kind, status).await;
    }
    let all = bed.client.get("/v1/tasks/series?partition=mail&by=day").await.ok();
    assert_eq!(told(&all), [("read", "succeeded", 1), ("send", "failed", 1), ("send", "succeeded", 2)]);
    for row in all["rows"].as_array().unwrap() {
        for histogram in ["ran_histogram", "waited_histogram"] {
            let buckets = row[histogram].as_array().unwrap();
            let tasks: u64 = buckets.iter().map(|tasks| tasks.as_u64().unwrap()).sum();
            assert_eq!(json!(tasks), row["tasks"], "{row}");
            assert!(buckets.last().unwrap().as_u64().unwrap() > 0, "{row}");
        }
        assert!(row["at"].as_str().unwrap().ends_with("T00:00:00.000Z") && row["ran_us"].is_u64(), "{row}");
    }
    let read = bed.client.get("/v1/tasks/series?partition=mail&by=day&kind=read").await.ok();
    assert_eq!(told(&read), [("read", "succeeded", 1)]);
    assert_eq!(bed.client.get("/v1/tasks/series?partition=other").await.ok(), json!({ "rows": [] }));
}

#[tokio::test]
async fn what_cannot_be_told_is_refused_with_what_to_ask_instead() {
    let bed = Bed::new().await;
    for (query, text) in [
        ("by=week", "minute, hour or day"),
        ("since=yesterday", "write it as"),
        ("since=2001-01-01T00:00:00Z", "from a later time on"),
        ("when=now", "unknown field"),
    ] {
        let answer = bed.client.get(&format!("/v1/tasks/series?partition=mail&{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains(text), "{query}: {detail}");
    }
    let minutes = "since=2001-01-01T00:00:00Z&before=2001-01-01T00:10:00Z&by=minute";
    assert_eq!(bed.client.get(&format!("/v1/tasks/series?partition=mail&{minutes}")).await.status, 400);
}

#[tokio::test]
async fn few_are_asked_at_once_and_none_for_longer_than_five_seconds() {
    let (queue, ledger) = Counting::queue();
    let bed = Bed::over(queue).await;
    ledger.told(|told| told.hangs = vec!["mail"]);
    let begun = Instant::now();
    let asked = (0..12).map(|_| bed.client.get("/v1/tasks/series?partition=mail"));
    for answer in join_all(asked).await {
        assert_eq!((answer.status, &answer.json()["retry"]), (503, &json!("safe")));
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(ledger.told(|told| told.most_under_way), 4, "the others waited");
    ledger.told(|told| told.hangs.clear());
    let asked = (0..12).map(|_| bed.client.get("/v1/tasks/series?partition=mail"));
    for answer in join_all(asked).await {
        assert_eq!(answer.ok(), json!({ "rows": [] }), "one after the other");
    }
}

#[tokio::test]
async fn where_ends_are_not_counted_the_answer_says_so() {
    let bed = Bed::over(uncounted()).await;
    let answer = bed.client.get("/v1/tasks/series?partition=mail").await;
    assert_eq!(answer.status, 501);
}
