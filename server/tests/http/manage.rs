//! Looking inside, and managing.

use anyqueue_control::registry::{MemberOptions, Registry};
use anyqueue_worker::{Partition, Worker};
use serde_json::json;

use crate::bed::Bed;

#[tokio::test]
async fn queues_are_listed_with_their_counts_a_page_at_a_time() {
    let bed = Bed::new().await;
    for partition in ["a", "b", "c"] {
        bed.push(partition, json!({ "payload": "x" })).await;
    }
    let first = bed.client.get("/v1/partitions?limit=2").await.ok();
    assert_eq!((first["partitions"].as_array().unwrap().len(), &first["next"]), (2, &json!("b")));
    let second = bed.client.get("/v1/partitions?limit=2&after=b").await.ok();
    assert_eq!((&second["partitions"][0]["partition"], &second["next"]), (&json!("c"), &json!(null)));
    assert_eq!(second["partitions"][0]["ready"], 1);
}

#[tokio::test]
async fn a_paused_queue_delivers_nothing_until_it_is_resumed() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    bed.client.post("/v1/partitions/mail/pause", &json!({})).await.ok();
    let none = bed.pull_with(json!({ "partitions": ["mail"] })).await;
    assert_eq!(none["deliveries"], json!([]));
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["paused"], true);
    bed.client.post("/v1/partitions/mail/resume", &json!({})).await.ok();
    assert_eq!(bed.pull("mail").await["payload"], "x");
}

#[tokio::test]
async fn messages_are_looked_at_without_taking_them_and_deleted_only_on_purpose() {
    let bed = Bed::new().await;
    let id = bed.push("mail", json!({ "payload": "x", "delay_ms": 60_000 })).await;
    let found = bed.client.get("/v1/partitions/mail/messages?payloads=true").await.ok();
    assert_eq!((&found["messages"][0]["id"], &found["messages"][0]["payload"]), (&json!(id), &json!("x")));
    assert_eq!(found["messages"][0]["state"], "delayed");
    let without = bed.client.get("/v1/partitions/mail/messages").await.ok();
    assert_eq!(without["messages"][0]["payload"], json!(null));
    assert_eq!(bed.client.delete("/v1/partitions/mail/messages").await.status, 400);
    let deleted = bed.client.delete("/v1/partitions/mail/messages?confirm=mail").await.ok();
    assert_eq!(deleted["deleted"], 1);
}

#[tokio::test]
async fn dead_letters_are_put_back_by_reason_and_by_id() {
    let bed = Bed::new().await;
    let mut ids = Vec::new();
    for reason in ["no route", "bad input", "no route"] {
        ids.push(bed.push("mail", json!({ "payload": reason })).await);
        let mail = bed.pull("mail").await;
        bed.settle(json!({ "delivery": mail["delivery"], "status": "poisonous", "error": reason })).await;
    }
    let dead = bed.client.get("/v1/partitions/mail/dead").await.ok();
    assert_eq!(dead["dead"].as_array().unwrap().len(), 3);
    let moved = bed.client.post("/v1/partitions/mail/dead/redrive", &json!({ "reason": "bad" })).await.ok();
    assert_eq!(moved["moved"], 1);
    let moved = bed
        .client
        .post("/v1/partitions/mail/dead/redrive", &json!({ "ids": [ids[2]], "to": "other" }))
        .await
        .ok();
    assert_eq!(moved["moved"], 1);
    assert_eq!(bed.pull("other").await["id"], ids[2].as_str());
    let deleted = bed.client.delete("/v1/partitions/mail/dead?confirm=mail").await.ok();
    assert_eq!(deleted["deleted"], 1);
}

#[tokio::test]
async fn workers_are_shown_and_told() {
    let bed = Bed::new().await;
    let worker = Worker::builder(bed.queue.clone())
        .name("w1")
        .partition(Partition::new("mail".parse_name()))
        .any_handler(|_, _| async { Ok(()) })
        .build()
        .unwrap();
    let registry = Registry::new(bed.queue.control().unwrap());
    let member = registry.join(&worker, MemberOptions::default()).await.unwrap();
    let listed = bed.client.get("/v1/workers").await.ok();
    assert_eq!(
        (&listed["workers"][0]["name"], &listed["workers"][0]["partitions"]),
        (&json!("w1"), &json!(["mail"]))
    );
    let told = bed.client.post("/v1/workers/w1/quiet", &json!({})).await.ok();
    assert_eq!(told["order"], "quiet");
    assert_eq!(bed.client.get("/v1/workers/w1").await.ok()["order"], "quiet");
    assert_eq!(bed.client.post("/v1/workers/w1/dance", &json!({})).await.status, 404);
    assert_eq!(bed.client.post("/v1/workers/w2/quiet", &json!({})).await.status, 404);
    assert_eq!(bed.client.delete("/v1/workers/w1").await.status, 204);
    assert_eq!(bed.client.get("/v1/workers/w1").await.status, 404);
    drop(member);
}

trait ParseName {
    fn parse_name(&self) -> anyqueue::PartitionId;
}

impl ParseName for str {
    fn parse_name(&self) -> anyqueue::PartitionId {
        anyqueue::PartitionId::new(self).unwrap()
    }
}

#[tokio::test]
async fn the_service_says_how_it_is() {
    let bed = Bed::with(crate::bed::memory(), |builder| builder.metrics(|| "up 1\n".to_owned())).await;
    assert_eq!(bed.client.get("/livez").await.body, b"alive");
    assert_eq!(bed.client.get("/readyz").await.body, b"ready");
    assert_eq!(bed.client.get("/metrics").await.body, b"up 1\n");
    bed.queue.close().await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let unready = bed.client.get("/readyz").await;
    assert_eq!((unready.status, &unready.json()["kind"]), (503, &json!("unavailable")));
    assert_eq!(bed.client.get("/livez").await.status, 200);
    assert_eq!(Bed::new().await.client.get("/metrics").await.status, 404);
}
