//! Actions on many tasks.

use serde_json::{Value, json};

use crate::bed::{Bed, memory};

async fn bulk(bed: &Bed, body: Value) -> Vec<Value> {
    let answer = bed.client.post("/v1/tasks/bulk", &body).await;
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert!(answer.head.contains("content-type: application/x-ndjson"), "{}", answer.head);
    answer.lines()
}

fn outcomes(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["outcome"].as_str()).collect()
}

async fn push(bed: &Bed, kind: &str) -> String {
    bed.push("mail", json!({ "payload": "x", "kind": kind })).await
}

#[tokio::test]
async fn those_that_match_are_cancelled_and_each_has_a_line() {
    let bed = Bed::new().await;
    let (first, second, other) =
        (push(&bed, "send").await, push(&bed, "send").await, push(&bed, "read").await);
    let mail = bed.pull("mail").await;
    assert_eq!(mail["id"], first.as_str());
    let what = json!({ "action": "cancel", "partition": "mail", "kind": "send", "limit": 10 });
    let mut dry = what.clone();
    dry["dry_run"] = json!(true);
    let lines = bulk(&bed, dry).await;
    assert_eq!(outcomes(&lines), ["would", "would"]);
    let lines = bulk(&bed, what).await;
    assert_eq!(lines[0], json!({ "id": first, "state": "running", "outcome": "requested" }));
    assert_eq!(lines[1], json!({ "id": second, "state": "queued", "outcome": "removed" }));
    assert_eq!((lines.len(), &lines[2]), (3, &json!({ "end": true, "count": 2 })));
    let state = |id: String| async move {
        bed.client.get(&format!("/v1/tasks/{id}?partition=mail")).await.ok()["state"].clone()
    };
    assert_eq!(state(other).await, "queued");
}

#[tokio::test]
async fn the_dead_are_retried_and_deleted_up_to_the_limit() {
    let bed = Bed::new().await;
    for _ in 0..3 {
        push(&bed, "send").await;
        let mail = bed.pull("mail").await;
        bed.settle(json!({ "delivery": mail["delivery"], "status": "poisonous", "error": "bad" })).await;
    }
    let retry = json!({ "action": "retry", "partition": "mail", "error": "bad", "limit": 2 });
    let lines = bulk(&bed, retry).await;
    assert_eq!((outcomes(&lines), &lines[2]["count"]), (vec!["put_back", "put_back"], &json!(2)));
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["ready"], 2);
    let delete = json!({ "action": "delete", "partition": "mail", "limit": 100_000 });
    let lines = bulk(&bed, delete).await;
    assert_eq!(outcomes(&lines), ["deleted", "deleted", "deleted"]);
    assert_eq!(bed.client.get("/v1/tasks/count?partition=mail").await.ok()["value"], 0);
}

#[tokio::test]
async fn what_is_not_said_clearly_is_refused_before_anything_is_done() {
    let bed = Bed::new().await;
    push(&bed, "send").await;
    let refused = [
        (json!({ "action": "delete", "partition": "mail" }), "limit"),
        (json!({ "action": "delete", "partition": "mail", "limit": 0 }), "1 to 100000"),
        (json!({ "action": "delete", "partition": "mail", "limit": 100_001 }), "1 to 100000"),
        (json!({ "action": "delete", "limit": 1 }), "partition"),
        (json!({ "action": "destroy", "partition": "mail", "limit": 1 }), "destroy"),
        (json!({ "action": "delete", "partition": "mail", "limit": 1, "knid": "send" }), "knid"),
        (json!({ "action": "delete", "partition": "mail", "limit": 1, "state": "done" }), "succeeded"),
        (json!({ "action": "retry", "partition": "mail", "limit": 1, "state": "running" }), "does nothing"),
    ];
    for (body, why) in refused {
        let answer = bed.client.post("/v1/tasks/bulk", &body).await;
        assert_eq!(answer.status, 400, "{body}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(why), "{detail}");
    }
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["ready"], 1);
}

#[tokio::test]
async fn a_service_that_only_reads_says_which_it_would_be_and_no_more() {
    let bed = Bed::with(memory(), |builder| builder.read_only(true)).await;
    bed.queue.push("mail", anyqueue::MessageData::new("x")).await.unwrap();
    let mut what = json!({ "action": "delete", "partition": "mail", "limit": 1, "dry_run": true });
    assert_eq!(outcomes(&bulk(&bed, what.clone()).await), ["would"]);
    what["dry_run"] = json!(false);
    assert_eq!(bed.client.post("/v1/tasks/bulk", &what).await.status, 403);
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["ready"], 1);
}
