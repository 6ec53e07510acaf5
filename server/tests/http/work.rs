//! Push, pull, settle.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::bed::{Bed, memory, over};

#[tokio::test]
async fn what_is_pushed_is_pulled_with_all_that_was_said_and_settled() {
    let bed = Bed::new().await;
    let id = bed
        .push("mail", json!({ "json": { "to": "a" }, "kind": "send", "task_id": "t", "session_id": "s", "headers": { "x": "y" }, "priority": 3, "max_duration_ms": 9000 }))
        .await;
    let mail = bed.pull("mail").await;
    assert_eq!(mail["id"], id.as_str());
    assert_eq!(mail["payload"], r#"{"to":"a"}"#);
    assert_eq!(
        (&mail["kind"], &mail["task_id"], &mail["session_id"]),
        (&json!("send"), &json!("t"), &json!("s"))
    );
    assert_eq!((&mail["priority"], &mail["headers"]["x"]), (&json!(3), &json!("y")));
    assert_eq!((&mail["delivery_count"], &mail["max_duration_ms"]), (&json!(1), &json!(9000)));
    let settled = bed
        .settle(json!({ "delivery": mail["delivery"], "status": "processed", "result": { "sent": 1 } }))
        .await;
    assert_eq!(settled["outcome"], "settled");
    let again = bed.settle(json!({ "delivery": mail["delivery"], "status": "processed" })).await;
    assert_eq!(again["outcome"], "lost", "it is settled already");
    let task = bed.client.get(&format!("/v1/tasks/{id}?partition=mail")).await.ok();
    assert_eq!((&task["state"], &task["result"]), (&json!("succeeded"), &json!({ "sent": 1 })));
}

#[tokio::test]
async fn bytes_that_are_no_text_come_back_as_they_were() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload_base64": "/wAB" })).await;
    let mail = bed.pull("mail").await;
    assert_eq!((&mail["payload_base64"], &mail["payload"]), (&json!("/wAB"), &json!(null)));
}

#[tokio::test]
async fn each_of_many_has_an_answer_of_its_own_and_a_bad_one_harms_no_other() {
    let bed = Bed::new().await;
    let items = json!([{ "payload": "1" }, { "payload": "2", "id": "no uuid" }, { "payload": "3", "dedup_key": "k" }, { "payload": "4", "dedup_key": "k" }]);
    let answers = bed.client.post("/v1/partitions/mail/messages", &items).await.ok();
    let outcomes: Vec<_> =
        answers.as_array().unwrap().iter().map(|one| one["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["stored", "error", "stored", "duplicate"]);
    assert_eq!(answers[1]["problem"]["kind"], "invalid_input");
    assert_eq!(answers[3]["id"], answers[2]["id"]);
}

#[tokio::test]
async fn lines_are_answered_by_lines() {
    let bed = Bed::new().await;
    let body = b"{\"payload\":\"1\"}\n\n{\"payload\":\"2\"}\n";
    let headers = [("content-type", "application/x-ndjson")];
    let answer = bed.client.send("POST", "/v1/partitions/mail/messages", &headers, body).await;
    let outcomes: Vec<_> = answer.lines().iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["stored", "stored"]);
}

#[tokio::test]
async fn a_failed_attempt_is_retried_later_with_its_error_until_there_are_no_retries_left() {
    let bed = Bed::new().await;
    let id = bed.push("mail", json!({ "payload": "x", "max_retries": 1 })).await;
    let first = bed.pull("mail").await;
    let settled = bed
        .settle(
            json!({ "delivery": first["delivery"], "status": "failed", "error": "no route", "delay_ms": 0 }),
        )
        .await;
    assert_eq!(settled["outcome"], "settled");
    let second = bed.pull("mail").await;
    assert_eq!((&second["id"], &second["headers"]["task-attempts"]), (&json!(id), &json!("1")));
    assert!(second["headers"]["task-errors"].as_str().unwrap().contains("no route"));
    bed.settle(json!({ "delivery": second["delivery"], "status": "failed", "error": "again" })).await;
    let dead = bed.client.get("/v1/partitions/mail/dead").await.ok();
    assert_eq!(dead["dead"][0]["reason"], "failed in attempt 2: again");
    assert_eq!(dead["dead"][0]["attempts"], 2);
}

#[tokio::test]
async fn what_goes_back_untouched_counts_no_attempt_and_what_is_postponed_waits() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let first = bed.pull("mail").await;
    bed.settle(json!({ "delivery": first["delivery"], "status": "waiting" })).await;
    let second = bed.pull("mail").await;
    assert_eq!(second["headers"]["task-attempts"], json!(null));
    bed.settle(json!({ "delivery": second["delivery"], "status": "postponed", "delay_ms": 3_600_000 })).await;
    let counts = bed.client.get("/v1/partitions/mail").await.ok();
    assert_eq!((&counts["ready"], &counts["delayed"], &counts["leased"]), (&json!(0), &json!(1), &json!(0)));
}

#[tokio::test]
async fn a_waiting_pull_returns_as_soon_as_something_comes_to_any_of_its_queues() {
    let bed = Bed::new().await;
    let (client, started) = (bed.client, Instant::now());
    let request = json!({ "partitions": ["mail", "reports"], "max": 5, "wait_ms": 30_000 });
    let waiting = tokio::spawn(async move { client.post("/v1/pull", &request).await.ok() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    bed.push("reports", json!({ "payload": "x" })).await;
    let pulled = waiting.await.unwrap();
    assert_eq!(pulled["deliveries"][0]["partition"], "reports");
    assert!(started.elapsed() < Duration::from_secs(20));
    let none = bed.pull_with(json!({ "partitions": ["mail", "reports"], "wait_ms": 50 })).await;
    assert_eq!(none["deliveries"], json!([]), "the one is held, and nothing else was claimed");
}

#[tokio::test]
async fn the_first_queue_goes_first() {
    let bed = Bed::new().await;
    for (partition, payload) in [("low", "1"), ("low", "2"), ("high", "3")] {
        bed.push(partition, json!({ "payload": payload })).await;
    }
    let pulled = bed.pull_with(json!({ "partitions": ["high", "low"], "max": 2 })).await;
    let payloads: Vec<_> =
        pulled["deliveries"].as_array().unwrap().iter().map(|one| one["payload"].clone()).collect();
    assert_eq!(payloads, ["3", "1"]);
}

#[tokio::test]
async fn a_lease_that_ends_brings_the_message_to_another_and_the_first_is_told() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let pulled = bed.pull_with(json!({ "partitions": ["mail"], "lease_ms": 3000 })).await;
    let first = pulled["deliveries"][0].clone();
    assert!((1..=3000).contains(&first["lease_ms"].as_u64().unwrap()), "{first}");
    let second = bed.pull("mail").await;
    assert_eq!(first["id"], second["id"]);
    let extended = bed
        .client
        .post("/v1/extend", &json!([{ "delivery": first["delivery"], "lease_ms": 5000 }]))
        .await
        .ok();
    assert_eq!(extended[0]["outcome"], "lost");
    let settled = bed.settle(json!({ "delivery": first["delivery"], "status": "processed" })).await;
    assert_eq!(settled["outcome"], "lost");
    let settled = bed.settle(json!({ "delivery": second["delivery"], "status": "processed" })).await;
    assert_eq!(settled["outcome"], "settled");
}

#[tokio::test]
async fn an_extension_holds_and_tells_of_a_request_to_cancel() {
    let bed = Bed::new().await;
    let id = bed.push("mail", json!({ "payload": "x" })).await;
    let pulled = bed.pull_with(json!({ "partitions": ["mail"], "lease_ms": 5000 })).await;
    let delivery = pulled["deliveries"][0]["delivery"].clone();
    let extend = json!([{ "delivery": delivery, "lease_ms": 60_000 }]);
    assert_eq!(bed.client.post("/v1/extend", &extend).await.ok()[0]["outcome"], "extended");
    let cancelled =
        bed.client.send("POST", &format!("/v1/tasks/{id}/cancel?partition=mail"), &[], b"").await.ok();
    assert_eq!(cancelled["outcome"], "requested");
    assert_eq!(bed.client.post("/v1/extend", &extend).await.ok()[0]["outcome"], "cancel_requested");
    let none = bed.pull_with(json!({ "partitions": ["mail"], "wait_ms": 6000 })).await;
    assert_eq!(none["deliveries"], json!([]), "held for longer than its first lease");
    let settled = bed.settle(json!({ "delivery": delivery, "status": "cancelled" })).await;
    assert_eq!(settled["outcome"], "settled");
}

#[tokio::test]
async fn what_one_instance_handed_out_another_settles_also_after_the_first_has_ended() {
    let storage = memory().storage().clone();
    let first = Bed::over(over(storage.clone())).await;
    first.push("mail", json!({ "payload": "x" })).await;
    let delivery = first.pull("mail").await;
    let second = Bed::over(over(storage)).await;
    first.end().await;
    let settled = second
        .settle(json!({ "delivery": delivery["delivery"], "status": "failed", "error": "no", "delay_ms": 0 }))
        .await;
    assert_eq!(settled["outcome"], "settled");
    let again = second.pull("mail").await;
    assert_eq!(again["headers"]["task-attempts"], "1");
}

#[tokio::test]
async fn a_message_with_large_headers_stays_with_its_instance_and_others_say_so() {
    let storage = memory().storage().clone();
    let (first, second) = (Bed::over(over(storage.clone())).await, Bed::over(over(storage)).await);
    first.push("mail", json!({ "payload": "x", "headers": { "long": "y".repeat(9000) } })).await;
    let delivery = first.pull("mail").await;
    assert!(delivery["delivery"].as_str().unwrap().len() < 100);
    let elsewhere = second.settle(json!({ "delivery": delivery["delivery"], "status": "processed" })).await;
    assert_eq!((&elsewhere["outcome"], &elsewhere["problem"]["status"]), (&json!("error"), &json!(421)));
    let extended = first
        .client
        .post("/v1/extend", &json!([{ "delivery": delivery["delivery"], "lease_ms": 5000 }]))
        .await
        .ok();
    assert_eq!(extended[0]["outcome"], "extended");
    let settled = first.settle(json!({ "delivery": delivery["delivery"], "status": "processed" })).await;
    assert_eq!(settled["outcome"], "settled");
    let again = first.settle(json!({ "delivery": delivery["delivery"], "status": "processed" })).await;
    assert_eq!(again["outcome"], "lost");
}

#[tokio::test]
async fn waiting_pulls_return_when_the_service_ends() {
    let bed = Bed::new().await;
    let client = bed.client;
    let waiting = tokio::spawn(async move {
        client.post("/v1/pull", &json!({ "partitions": ["mail"], "wait_ms": 30_000 })).await
    });
    // Nothing tells from outside that it waits. An answer to one that came later shows that the machine gets that far.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(client.get("/livez").await.status, 200);
    }
    let started = Instant::now();
    bed.end().await;
    assert_eq!(waiting.await.unwrap().ok()["deliveries"], json!([]));
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
}
