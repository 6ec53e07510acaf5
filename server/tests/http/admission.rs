//! Which workers register over HTTP: how many, and under whose names.

use std::time::Duration;

use anyqueue::Queue;
use anyqueue::control::{Change, Expect, Key};
use anyqueue_control::registry::host_name;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::bed::{Bed, memory};
use crate::client::Answer;
use crate::rights::{ADMIN, ask, create};

/// As many as one instance registers.
const MOST: usize = 5_000;

async fn register(bed: &Bed, token: &str, said: Value) -> Answer {
    ask(bed, token, "POST", "/v1/workers", &said).await
}

/// A service with tokens, and one for the queues `mine.*`.
async fn limited() -> (Bed, String) {
    let bed = Bed::with(memory(), |builder| builder.token(ADMIN)).await;
    let token = create(&bed, "mine", &["work"], &["mine.*"]).await;
    (bed, token)
}

/// Writes the entry of a worker.
async fn write(queue: &Queue, name: &str, value: Vec<u8>) {
    let key = Key::new(format!("worker/{name}")).unwrap();
    let change = Change::put(key, Expect::Any, value).with_ttl(Duration::from_mins(10));
    assert!(queue.control().unwrap().apply(change).await.unwrap().value.is_done());
}

fn refused(answer: &Answer) -> String {
    let problem = answer.json();
    assert_eq!(
        (answer.status, &problem["kind"], &problem["retry"]),
        (409, &json!("conflict"), &json!("safe"))
    );
    problem["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn whoever_could_not_have_registered_a_worker_does_not_hear_where_it_runs() {
    let (bed, mine) = limited().await;
    for (name, queues) in
        [("theirs", json!(["other"])), ("both", json!(["mine.a", "other"])), ("any", json!([]))]
    {
        let said = json!({ "name": name, "partitions": queues, "host": "machine-17", "pid": 4711 });
        register(&bed, ADMIN, said).await.ok();
        let detail = refused(&register(&bed, &mine, json!({ "name": name })).await);
        assert!(!detail.contains("machine-17") && !detail.contains("4711"), "{detail}");
        assert!(detail.contains("another name"), "{detail}");
        let detail = refused(&register(&bed, ADMIN, json!({ "name": name })).await);
        assert!(detail.contains("machine-17") && detail.contains("4711"), "{detail}");
    }
    let own = json!({ "name": "own", "partitions": ["mine.a"], "host": "machine-17" });
    register(&bed, &mine, own.clone()).await.ok();
    assert!(refused(&register(&bed, &mine, own).await).contains("machine-17"), "its own it may know");
}

#[tokio::test]
async fn a_token_of_other_queues_takes_over_no_living_worker_that_seems_to_have_ended() {
    let (bed, mine) = limited().await;
    let registered = register(&bed, ADMIN, json!({ "name": "w", "partitions": ["other"] })).await;
    assert_eq!(registered.status, 201);
    let entries = bed.queue.control().unwrap().list_all("worker/", 10).await.unwrap().value;
    let mut entry: Value = serde_json::from_slice(&entries[0].value).unwrap();
    // A process of another container with this host name: its number is that of another one here.
    entry["session"] = json!("of another process");
    entry["host"] = json!(host_name());
    entry["pid"] = json!(std::process::id());
    entry["valid_ms"] = json!(300_000);
    entry["kept_ms"] = json!(300_000);
    write(&bed.queue, "w", entry.to_string().into_bytes()).await;
    refused(&register(&bed, &mine, json!({ "name": "w", "partitions": ["mine.a"] })).await);
    let shown = ask(&bed, ADMIN, "GET", "/v1/workers/w", &json!({})).await.ok();
    assert_eq!(shown["partitions"], json!(["other"]), "it is there");
    let again = register(&bed, ADMIN, json!({ "name": "w", "partitions": ["other"] })).await;
    assert_eq!(again.status, 201, "as after a restart");
}

#[tokio::test]
async fn what_a_newer_release_wrote_is_replaced_by_no_token_of_some_queues() {
    let (bed, mine) = limited().await;
    write(&bed.queue, "new", br#"{"format":99}"#.to_vec()).await;
    refused(&register(&bed, &mine, json!({ "name": "new" })).await);
    assert_eq!(register(&bed, ADMIN, json!({ "name": "new" })).await.status, 201);
}

#[tokio::test]
async fn a_worker_that_restarts_comes_back_under_its_name() {
    let (bed, mine) = limited().await;
    let said = json!({ "name": "w", "partitions": ["mine.a"], "valid_ms": 3000 });
    register(&bed, &mine, said.clone()).await.ok();
    refused(&register(&bed, &mine, said.clone()).await);
    let back = async {
        while register(&bed, &mine, said.clone()).await.status != 201 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), back).await.expect("it is free once it was silent");
}

#[tokio::test]
async fn an_instance_registers_so_many_workers_and_then_says_what_to_do() {
    let bed = Bed::new().await;
    let nothing = json!({});
    let named = json!({ "name": "first", "valid_ms": 3_600_000 });
    let first = bed.client.post("/v1/workers", &named).await.ok();
    let mut count = 1;
    while count < MOST {
        let some = (0..100.min(MOST - count)).map(|_| bed.client.post("/v1/workers", &nothing));
        let some = join_all(some).await;
        assert!(some.iter().all(|answer| answer.status == 201), "{count}");
        count += some.len();
    }
    let full = bed.client.post("/v1/workers", &nothing).await;
    assert_eq!(
        (full.status, &full.json()["kind"], &full.json()["retry"]),
        (503, &json!("busy"), &json!("safe"))
    );
    assert!(full.head.contains("retry-after"), "{}", full.head);
    assert!(full.json()["detail"].as_str().unwrap().contains("another one"), "{full:?}");
    let job = bed.client.post("/v1/jobs/RegisterWorker", &nothing).await;
    assert_eq!(job.status, 503, "of whatever protocol");
    let back = bed.client.post("/v1/workers", &named).await;
    assert_eq!(back.status, 409, "it has a place, and is to wait for its name alone");
    let session = [("worker-session", first["session"].as_str().unwrap())];
    assert_eq!(bed.client.send("DELETE", "/v1/workers/first", &session, b"").await.status, 204);
    assert_eq!(bed.client.post("/v1/workers", &nothing).await.status, 201, "it has made room");
}
