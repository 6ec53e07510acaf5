//! The same requests on each backend: what one instance hands out another settles, where leases can be handed on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::format_push_string
)]

#[path = "http/bed.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod bed;
#[path = "http/client.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod client;
#[path = "backends/rows.rs"]
mod rows;

use std::time::Duration;

use anyqueue::Queue;
use anyqueue_testkit::{Ministack, Postgres, Provided, RabbitMq, Redis, provide};
use bed::Bed;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Two tests each need these, and they take seconds to start.
static RABBITMQ: OnceCell<Provided> = OnceCell::const_new();
static SQS: OnceCell<Provided> = OnceCell::const_new();

/// A URL of RabbitMQ with queues of this name's own; none where it is not installed, which was said.
async fn rabbitmq(name: &str) -> Option<String> {
    let server = RABBITMQ.get_or_init(async || provide(RabbitMq::new()).await.unwrap()).await;
    Some(with(server.url()?, &format!("prefix={name}_{}", std::process::id())))
}

/// The same of SQS.
async fn sqs(name: &str) -> Option<String> {
    let server = SQS.get_or_init(async || provide(Ministack::new()).await.unwrap()).await;
    let endpoint = server.url()?;
    Some(format!("sqs://test:test@us-east-1/{name}_{}?endpoint={endpoint}", std::process::id()))
}

async fn open(url: &str) -> Queue {
    let queue = Queue::new(anyqueue_backends::open(url).await.unwrap()).unwrap();
    queue.init().await.unwrap();
    queue
}

fn with(url: &str, option: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{option}")
}

/// What a worker elsewhere does with two tasks: one fails once and then succeeds, one dies.
async fn a_workers_way(url: &str) {
    // Where the backend keeps no control entries they share the key in the store of another.
    let borrowed = bed::memory();
    let bed = async || {
        let queue = open(url).await;
        let own = if queue.capabilities().control { queue.control() } else { borrowed.control() };
        Bed::with(queue, |builder| builder.control(own.unwrap())).await
    };
    let (first, second) = (bed().await, bed().await);
    let portable = first.queue.capabilities().lease.portable;
    first.push("q", json!({ "payload": "good", "headers": { "mine": "kept" } })).await;
    let good = first.pull("q").await;
    assert_eq!((&good["payload"], &good["headers"]["mine"]), (&json!("good"), &json!("kept")));
    let settle = |delivery: &Value, status: &str| json!({ "delivery": delivery["delivery"], "status": status, "error": "no", "delay_ms": 0 });
    if portable {
        let extend = json!([{ "delivery": good["delivery"], "lease_ms": 60_000 }]);
        assert_eq!(second.client.post("/v1/extend", &extend).await.ok()[0]["outcome"], "extended");
        let settled = second.settle(settle(&good, "failed")).await;
        assert_eq!(settled["outcome"], "settled", "{settled}");
    } else {
        let elsewhere = second.settle(settle(&good, "failed")).await;
        assert_eq!(elsewhere["problem"]["status"], 421, "{elsewhere}");
        assert_eq!(first.settle(settle(&good, "failed")).await["outcome"], "settled");
    }
    let again =
        first.pull_with(json!({ "partitions": ["q"], "wait_ms": 20_000 })).await["deliveries"][0].clone();
    assert_eq!(
        (&again["id"], &again["payload"], &again["headers"]["mine"]),
        (&good["id"], &json!("good"), &json!("kept"))
    );
    let settled = first
        .client
        .post("/v1/settle", &json!([{ "delivery": again["delivery"], "status": "processed" }]))
        .await
        .ok();
    assert_eq!(settled[0]["outcome"], "settled");
    assert_eq!(first.settle(settle(&again, "processed")).await["outcome"], "lost");

    first.push("q", json!({ "payload": "bad" })).await;
    let bad = first.pull("q").await;
    let by = if portable { &second } else { &first };
    assert_eq!(by.settle(settle(&bad, "poisonous")).await["outcome"], "settled");
    let dead = first.client.get("/v1/partitions/q/dead?payloads=true").await;
    if dead.status == 501 {
        assert_eq!(dead.json()["kind"], "unsupported");
    } else {
        // A broker may tell of it a moment later.
        let mut dead = dead.ok();
        for _ in 0..600 {
            if dead["dead"].as_array().is_some_and(|dead| !dead.is_empty()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            dead = first.client.get("/v1/partitions/q/dead?payloads=true").await.ok();
        }
        assert_eq!(
            (&dead["dead"][0]["payload"], &dead["dead"][0]["reason"]),
            (&json!("bad"), &json!("no")),
            "{dead}"
        );
    }
    assert_eq!(first.client.get("/readyz").await.status, 200);
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    a_workers_way(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await;
}

#[tokio::test]
async fn a_worker_beats_at_any_instance_and_any_other_misses_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let bed = async || Bed::over(open(&url).await).await;
    let (first, second) = (bed().await, bed().await);
    let said = json!({ "name": "w", "partitions": ["q"], "valid_ms": 8000 });
    let session = first.client.post("/v1/workers", &said).await.ok()["session"].as_str().unwrap().to_owned();
    let headers = [("content-type", "application/json"), ("worker-session", session.as_str())];
    let beat = async |bed: &Bed, said: Value| {
        bed.client.send("POST", "/v1/workers/w/beat", &headers, said.to_string().as_bytes()).await
    };
    let id = first.push("q", json!({ "payload": "x" })).await;
    let held = first.pull("q").await["delivery"].clone();
    // Orders are given at one instance and heard at the other.
    first.client.send("POST", "/v1/workers/w/quiet", &[], b"").await.ok();
    let heard = beat(&second, json!({ "held": [{ "delivery": held }], "lease_ms": 60_000 })).await.ok();
    assert_eq!((&heard["order"], &heard["held"][0]["outcome"]), (&json!("quiet"), &json!("extended")));
    assert_eq!(first.client.get("/v1/workers/w").await.ok()["held"][0]["id"], json!(id));
    // Where it was heard of last is gone, too.
    second.end().await;
    let registry = anyqueue_control::registry::Registry::new(first.queue.control().unwrap());
    let missed = async {
        loop {
            if let Some(lost) = registry.lost().await.unwrap().pop() {
                return lost;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let lost = tokio::time::timeout(Duration::from_mins(2), missed).await.expect("the other misses it");
    assert_eq!((lost.name.as_str(), &lost.held[0].id), ("w", &id));
    assert_eq!(beat(&first, json!({})).await.status, 410);
    first.end().await;
}

#[tokio::test]
async fn a_worker_that_knows_nothing_but_ids_is_served_by_any_instance() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let bed = async || Bed::over(open(&url).await).await;
    let (first, second) = (bed().await, bed().await);
    let call = async |bed: &Bed, name: &str, said: Value| {
        bed.client.post(&format!("/v1/jobs/{name}"), &said).await.ok()
    };
    let worker = call(&first, "RegisterWorker", json!({ "JobKinds": ["a", "b"] })).await;
    let older = call(&second, "Enqueue", json!({ "JobKind": "b", "JobData": "x" })).await;
    // Ages are told in milliseconds.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let newer = call(&first, "Enqueue", json!({ "JobKind": "a", "JobData": "y" })).await;
    for (bed, id) in [(&second, &older), (&first, &newer)] {
        assert_eq!(&call(bed, "Dequeue", json!({ "Id": worker })).await["Id"], id);
    }
    assert_eq!(call(&second, "AlivePing", json!({ "Id": worker })).await, true);
    // The next instance knows what those before have handed out.
    first.end().await;
    second.end().await;
    let third = bed().await;
    for id in [older, newer] {
        let said = json!({ "Id": id, "Outcome": "Succeeded", "WorkerId": worker });
        assert_eq!(call(&third, "SetOutcome", said.clone()).await, true);
        assert_eq!(call(&third, "SetOutcome", said).await, false);
    }
    third.end().await;
}

#[tokio::test]
async fn on_postgres() {
    let server = provide(Postgres::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    a_workers_way(&with(url, &format!("schema=http_{}", std::process::id()))).await;
}

#[tokio::test]
async fn on_redis() {
    let server = provide(Redis::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    a_workers_way(&with(url, &format!("prefix=http_{}", std::process::id()))).await;
}

#[tokio::test]
async fn on_rabbitmq() {
    let Some(url) = rabbitmq("http").await else { return };
    a_workers_way(&url).await;
}

#[tokio::test]
async fn on_sqs() {
    let Some(url) = sqs("http").await else { return };
    a_workers_way(&url).await;
}

#[tokio::test]
async fn what_rabbitmq_cannot_do_is_said_of_each_request() {
    let Some(url) = rabbitmq("rows").await else { return };
    rows::are_answered(open(&url).await).await;
}

#[tokio::test]
async fn what_sqs_cannot_do_is_said_of_each_request() {
    let Some(url) = sqs("rows").await else { return };
    rows::are_answered(open(&url).await).await;
}
