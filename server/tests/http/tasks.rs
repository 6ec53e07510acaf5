//! What became of tasks.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bed::Bed;

async fn done(bed: &Bed, kind: &str) -> String {
    let id = bed.push("mail", json!({ "payload": "x", "kind": kind })).await;
    let mail = bed.pull("mail").await;
    bed.settle(json!({ "delivery": mail["delivery"], "status": "processed", "worker": "w1" })).await;
    id
}

fn ids(tasks: &Value) -> Vec<&str> {
    tasks["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tasks_are_found_by_state_kind_and_worker_and_counted() {
    let bed = Bed::new().await;
    let (sent, read) = (done(&bed, "send").await, done(&bed, "read").await);
    let waits = bed.push("mail", json!({ "payload": "x", "kind": "send" })).await;
    let all = bed.client.get("/v1/tasks?partition=mail").await.ok();
    assert_eq!((ids(&all).len(), &all["more"], &all["scans"]), (3, &json!(false), &json!(false)));
    let queued = bed.client.get("/v1/tasks?partition=mail&state=queued,scheduled").await.ok();
    assert_eq!(ids(&queued), [waits.as_str()]);
    let sends = bed.client.get("/v1/tasks?partition=mail&kind=send&state=succeeded").await.ok();
    assert_eq!((ids(&sends), &sends["scans"]), (vec![sent.as_str()], &json!(true)));
    let by_worker = bed.client.get("/v1/tasks?partition=mail&worker=w1&limit=1").await.ok();
    assert_eq!((ids(&by_worker), &by_worker["more"]), (vec![read.as_str()], &json!(true)));
    let count = bed.client.get("/v1/tasks/count?partition=mail&cap=2").await.ok();
    assert_eq!((&count["value"], &count["exact"]), (&json!(2), &json!(false)));
    let wrong = bed.client.get("/v1/tasks?partition=mail&state=done").await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.json()["detail"].as_str().unwrap().contains("succeeded"));
}

#[tokio::test]
async fn a_stream_of_tasks_tells_its_end() {
    let bed = Bed::new().await;
    for _ in 0..3 {
        done(&bed, "send").await;
    }
    let headers = [("accept", "application/x-ndjson")];
    let lines = bed.client.send("GET", "/v1/tasks?partition=mail", &headers, b"").await.lines();
    assert_eq!((lines.len(), &lines[3]), (4, &json!({ "end": true, "count": 3 })));
    let lines = bed.client.send("GET", "/v1/tasks?partition=mail&limit=2", &headers, b"").await.lines();
    assert_eq!((lines.len(), &lines[2]), (3, &json!({ "end": true, "count": 2 })));
}

#[tokio::test]
async fn a_result_is_waited_for() {
    let bed = Bed::new().await;
    let id = bed.push("mail", json!({ "payload": "x" })).await;
    let early = bed.client.get(&format!("/v1/tasks/{id}/result?partition=mail")).await;
    assert_eq!((early.status, &early.json()["state"]), (202, &json!("queued")));
    let (client, path) = (bed.client, format!("/v1/tasks/{id}/result?partition=mail&wait_ms=30000"));
    let waiting = tokio::spawn(async move { client.get(&path).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mail = bed.pull("mail").await;
    bed.settle(
        json!({ "delivery": mail["delivery"], "status": "processed", "result": 42, "log": "read it", "progress": "3 of 3" }),
    )
    .await;
    let answer = waiting.await.unwrap();
    assert_eq!((answer.status, &answer.json()["result"]), (200, &json!(42)));
    assert_eq!((&answer.json()["log"], &answer.json()["progress"]), (&json!("read it"), &json!("3 of 3")));
}

#[tokio::test]
async fn a_task_is_cancelled_retried_and_deleted() {
    let bed = Bed::new().await;
    let post = |id: &str, what: &str| {
        let (client, path) = (bed.client, format!("/v1/tasks/{id}/{what}?partition=mail"));
        async move { client.send("POST", &path, &[], b"").await }
    };
    let id = bed.push("mail", json!({ "payload": "1" })).await;
    assert_eq!(post(&id, "retry").await.status, 409, "it waits already");
    assert_eq!(post(&id, "cancel").await.ok()["outcome"], "removed");
    let task = bed.client.get(&format!("/v1/tasks/{id}?partition=mail")).await.ok();
    assert_eq!(task["state"], "cancelled");

    let id = bed.push("mail", json!({ "payload": "2", "delay_ms": 60_000 })).await;
    assert_eq!(post(&id, "retry").await.ok()["outcome"], "due_now");
    let mail = bed.pull("mail").await;
    bed.settle(json!({ "delivery": mail["delivery"], "status": "poisonous", "error": "bad" })).await;
    assert_eq!(post(&id, "retry").await.ok()["outcome"], "put_back");
    let deleted = bed.client.delete(&format!("/v1/tasks/{id}?partition=mail")).await.ok();
    assert_eq!(deleted["outcome"], "deleted");
    assert_eq!(bed.client.get(&format!("/v1/tasks/{id}?partition=mail")).await.status, 404);
    assert_eq!(post(&id, "cancel").await.status, 404);
}

#[tokio::test]
async fn tasks_are_deleted_by_filter_with_a_limit_of_ones_own() {
    let bed = Bed::new().await;
    for _ in 0..3 {
        done(&bed, "send").await;
    }
    assert_eq!(bed.client.delete("/v1/tasks?partition=mail").await.status, 400, "no limit");
    let deleted = bed.client.delete("/v1/tasks?partition=mail&state=succeeded&limit=2").await.ok();
    assert_eq!(deleted["deleted"], 2);
    assert_eq!(deleted["more"], true);
    let count = bed.client.get("/v1/tasks/count?partition=mail").await.ok();
    assert_eq!(count["value"], 1);

    for _ in 0..2 {
        bed.push("mail", json!({ "payload": "x" })).await;
    }
    bed.pull("mail").await;
    let deleted = bed.client.delete("/v1/tasks?partition=mail&limit=9").await.ok();
    let all = json!({ "deleted": 2, "live": 1, "dead": 0, "ended": 1, "held": 1, "more": false });
    assert_eq!(deleted, all, "one waits, one has ended, and one is held");
}
