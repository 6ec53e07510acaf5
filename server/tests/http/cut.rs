//! Clients that go away, and answers that are lost.

use std::net::SocketAddr;
use std::time::Duration;

use anyqueue_testkit::{Fault, Proxy};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bed::Bed;

const DEADLINE: Duration = Duration::from_mins(1);

fn pull_request(address: SocketAddr, body: &str) -> String {
    format!(
        "POST /v1/pull HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn begin_pull(address: SocketAddr, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(pull_request(address, body).as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_keeps_nothing() {
    let bed = Bed::new().await;
    let stream =
        begin_pull(bed.client.0, r#"{"partitions":["mail"],"wait_ms":30000,"lease_ms":600000}"#).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(stream);
    bed.push("mail", json!({ "payload": "x" })).await;
    assert_eq!(bed.pull("mail").await["payload"], "x", "long before the lease of ten minutes ends");
}

#[tokio::test]
async fn what_a_worker_did_not_receive_goes_back_with_its_next_pull() {
    let bed = Bed::new().await;
    for payload in ["1", "2"] {
        bed.push("mail", json!({ "payload": payload })).await;
    }
    let pull = |received: Option<&str>| json!({ "partitions": ["mail"], "worker": "w", "lease_ms": 600_000, "received": received });
    let lost = bed.pull_with(pull(None)).await;
    let lost_id = lost["deliveries"][0]["id"].clone();
    // Its answer was lost: the worker knows of no pull.
    let second = bed.pull_with(pull(None)).await;
    assert_eq!(second["deliveries"][0]["id"], lost_id, "it came back at once, and first");
    let third = bed.pull_with(pull(second["pull"].as_str())).await;
    assert_ne!(third["deliveries"][0]["id"], lost_id, "what was received stays");
    let settled =
        bed.settle(json!({ "delivery": second["deliveries"][0]["delivery"], "status": "processed" })).await;
    assert_eq!(settled["outcome"], "settled");
}

/// What one message was answered with, on a connection that stays open.
async fn answer(stream: &mut TcpStream) -> Value {
    let mut said = String::new();
    let reading = async {
        while !said.ends_with("]}") {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).await.unwrap();
            assert_ne!(count, 0, "the connection ended: {said}");
            said.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    };
    timeout(DEADLINE, reading).await.expect("an answer in time");
    serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn what_went_into_a_black_hole_comes_to_the_same_worker_on_another_connection() {
    let bed = Bed::new().await;
    let relay = Proxy::start(bed.client.0).unwrap();
    let body = r#"{"partitions":["mail"],"worker":"w","wait_ms":30000,"lease_ms":600000}"#;
    let mut silent = begin_pull(relay.addr(), body).await;
    let all = pull_request(relay.addr(), body).len() as u64;
    let passed = relay.traffic_when(|traffic| traffic.to_server_bytes >= all);
    timeout(DEADLINE, passed).await.expect("the service has the request");
    // From now on nothing comes through, and neither side is told.
    relay.set(Fault::Stall).await.unwrap();
    let id = bed.push("mail", json!({ "payload": "x" })).await;
    let taken = async {
        while bed.queue.counts("mail").await.unwrap().leased != Some(1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, taken).await.expect("it goes to the one that waits");
    let none = bed.pull_with(json!({ "partitions": ["mail"], "worker": "other" })).await;
    assert_eq!(none["deliveries"], json!([]), "it is held");
    let pull = json!({ "partitions": ["mail"], "worker": "w", "wait_ms": 500, "lease_ms": 600_000 });
    // What has only just been taken may be sent a moment later: a worker pulls again in any case.
    let pulling = async {
        loop {
            if let Some(delivery) = bed.pull_with(pull.clone()).await["deliveries"].get(0) {
                return delivery.clone();
            }
        }
    };
    let mail = timeout(DEADLINE, pulling).await.expect("long before the lease of ten minutes ends");
    assert_eq!(mail["id"], json!(id));
    let settle = |delivery: &Value| json!({ "delivery": delivery["delivery"], "status": "processed" });
    assert_eq!(bed.settle(settle(&mail)).await["outcome"], "settled");
    // What comes out of the hole at last is nobody's any more.
    relay.set(Fault::Pass).await.unwrap();
    let late = answer(&mut silent).await;
    assert_eq!(late["deliveries"][0]["id"], json!(id));
    assert_eq!(bed.settle(settle(&late["deliveries"][0])).await["outcome"], "lost");
}

#[tokio::test]
async fn workers_do_not_take_each_others_messages_back() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "1" })).await;
    let first = bed.pull_with(json!({ "partitions": ["mail"], "worker": "a", "lease_ms": 600_000 })).await;
    let other = bed.pull_with(json!({ "partitions": ["mail"], "worker": "b" })).await;
    assert_eq!(other["deliveries"], json!([]));
    let settled =
        bed.settle(json!({ "delivery": first["deliveries"][0]["delivery"], "status": "processed" })).await;
    assert_eq!(settled["outcome"], "settled");
}

#[tokio::test]
async fn a_client_that_never_ends_its_head_is_cut() {
    let bed = Bed::new().await;
    let mut stream = TcpStream::connect(bed.client.0).await.unwrap();
    stream.write_all(b"POST /v1/pull HTTP/1.1\r\nhost:").await.unwrap();
    let read = async {
        let mut rest = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await;
    };
    tokio::time::timeout(Duration::from_secs(40), read).await.expect("cut within ten seconds and some");
}

#[tokio::test]
async fn more_waiting_requests_than_there_is_room_for_are_told_to_come_back() {
    let bed = Bed::with(crate::bed::memory(), |builder| builder.max_connections(4)).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        waiting.push(begin_pull(bed.client.0, r#"{"partitions":["mail"],"wait_ms":30000}"#).await);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let refused = bed.client.post("/v1/pull", &json!({ "partitions": ["mail"], "wait_ms": 30_000 })).await;
    assert_eq!((refused.status, &refused.json()["retry"]), (503, &json!("safe")));
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    // What does not wait is served all the same.
    assert_eq!(bed.client.get("/livez").await.status, 200);
    drop(waiting);
}
