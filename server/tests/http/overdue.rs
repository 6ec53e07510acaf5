//! Tasks that run for longer than they may, of workers that extend them all the same.

use std::time::Duration;

use anyqueue::{Keep, ManualClock, Queue};
use anyqueue_memory::MemoryQueue;
use serde_json::{Value, json};

use crate::bed::Bed;

/// More than the time that a worker is left to end its task itself.
const GRACE: Duration = Duration::from_secs(6);

async fn turned() -> (Bed, ManualClock) {
    let clock = ManualClock::new();
    let builder = Queue::builder(MemoryQueue::new()).ledger(Keep::default()).clock(clock.clock());
    (Bed::over(builder.build().unwrap()).await, clock)
}

async fn ask(bed: &Bed, way: &str, delivery: &Value) -> Value {
    let extend = json!([{ "delivery": delivery, "lease_ms": 60_000 }]);
    if way == "extend" {
        return bed.client.post("/v1/extend", &extend).await.ok()[0]["outcome"].clone();
    }
    let worker = bed.client.post("/v1/workers", &json!({})).await.ok();
    let text = |name: &str| worker[name].as_str().unwrap().to_owned();
    let mut said = json!({ "held": [{ "delivery": delivery }] });
    if way == "beat" {
        said["lease_ms"] = json!(60_000);
    }
    let session = text("session");
    let headers = [("content-type", "application/json"), ("worker-session", session.as_str())];
    let path = format!("/v1/workers/{}/beat", text("worker"));
    let heard = bed.client.send("POST", &path, &headers, said.to_string().as_bytes()).await.ok();
    heard["held"][0]["outcome"].clone()
}

#[tokio::test]
async fn what_runs_for_longer_than_it_may_is_timed_out_however_often_it_is_extended() {
    let (bed, clock) = turned().await;
    for way in ["extend", "beat", "beat without a lease"] {
        let pushed = json!({ "payload": "x", "max_duration_ms": 60_000, "max_retries": 0 });
        let id = bed.push("mail", pushed).await;
        let delivery = bed.pull("mail").await["delivery"].clone();
        let goes_on = if way == "beat without a lease" { "unchanged" } else { "extended" };
        assert_eq!(ask(&bed, way, &delivery).await, goes_on, "{way}: it has time left");
        clock.advance(Duration::from_secs(61));
        assert_eq!(ask(&bed, way, &delivery).await, goes_on, "{way}: its worker can end it itself");
        clock.advance(GRACE);
        assert_eq!(ask(&bed, way, &delivery).await, "lost", "{way}");
        let task = bed.client.get(&format!("/v1/tasks/{id}?partition=mail")).await.ok();
        // It is dead, with the reason.
        assert_eq!(task["state"], "failed", "{way}: {task}");
        assert!(task["reason"].as_str().unwrap().starts_with("timed_out"), "{way}: {task}");
        let late = json!({ "delivery": delivery, "status": "processed", "result": "late" });
        assert_eq!(bed.settle(late).await["outcome"], "lost", "{way}");
        assert_eq!(ask(&bed, way, &delivery).await, "lost", "{way}: once");
    }
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["dead"], 3);
}

#[tokio::test]
async fn what_timed_out_is_tried_again_as_often_as_it_may_and_without_a_limit_nothing_is() {
    let (bed, clock) = turned().await;
    bed.push("mail", json!({ "payload": "x", "max_duration_ms": 50, "max_retries": 5 })).await;
    let limited = bed.pull("mail").await["delivery"].clone();
    bed.push("mail", json!({ "payload": "y" })).await;
    let unlimited = bed.pull("mail").await["delivery"].clone();
    clock.advance(GRACE);
    assert_eq!(ask(&bed, "extend", &limited).await, "lost");
    assert_eq!(ask(&bed, "extend", &unlimited).await, "extended");
    let counts = bed.client.get("/v1/partitions/mail").await.ok();
    assert_eq!((&counts["delayed"], &counts["leased"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn a_worker_that_is_done_in_time_keeps_its_result() {
    let (bed, clock) = turned().await;
    let id = bed.push("mail", json!({ "payload": "x", "max_duration_ms": 60_000 })).await;
    let delivery = bed.pull("mail").await["delivery"].clone();
    clock.advance(Duration::from_secs(30));
    let done = json!({ "delivery": delivery, "status": "processed", "result": "sent" });
    assert_eq!(bed.settle(done).await["outcome"], "settled");
    clock.advance(Duration::from_mins(1));
    assert_eq!(ask(&bed, "extend", &delivery).await, "lost");
    let task = bed.client.get(&format!("/v1/tasks/{id}?partition=mail")).await.ok();
    assert_eq!((&task["state"], &task["result"]), (&json!("succeeded"), &json!("sent")));
}
