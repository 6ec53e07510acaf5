//! Each request that the description names, to a service over a backend that can do only some of them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyqueue::Queue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bed::Bed;
use crate::client::Client;

const DEADLINE: Duration = Duration::from_mins(1);
/// The id of no message and no worker.
const ID: &str = "00000000-0000-7000-8000-000000000000";
/// What a broker does that keeps neither ends, nor control entries, and shows no messages. All else is 501.
const SERVED: [&str; 18] = [
    "enqueue_job",
    "events",
    "export",
    "extend",
    "import",
    "list_dead_letters",
    "livez",
    "metrics",
    "openapi",
    "preview_schedule",
    "pull",
    "purge_dead_letters",
    "push",
    "readyz",
    "redrive_dead_letters",
    "settle",
    "show_partition",
    "startupz",
];

/// Makes each request once, in a way in which a backend that can do everything would answer it.
pub(crate) async fn are_answered(queue: Queue) {
    let bed = Bed::with(queue, |builder| builder.metrics(|| "up 1\n".to_owned())).await;
    // A message waits, and one is dead: so there is something to look at.
    bed.push("q", json!({ "payload": "dead" })).await;
    let dead = bed.pull("q").await;
    let settled = bed.settle(json!({ "delivery": dead["delivery"], "status": "poisonous" })).await;
    assert_eq!(settled["outcome"], "settled");
    bed.push("q", json!({ "payload": "waits" })).await;
    let description: Value = serde_json::from_str(&anyqueue_server::openapi()).unwrap();
    let mut served = BTreeSet::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, request) in methods.as_object().unwrap() {
            let operation = request["operationId"].as_str().unwrap();
            if is_served(&bed, operation, &method.to_uppercase(), &place(path, operation)).await {
                served.insert(operation.to_owned());
            }
        }
    }
    assert_eq!(served.iter().map(String::as_str).collect::<Vec<_>>(), SERVED);
    bed.end().await;
}

/// Whether a request succeeds. If it does not, the answer says that the backend cannot do it, and what is missing.
async fn is_served(bed: &Bed, operation: &str, method: &str, place: &str) -> bool {
    if operation == "events" {
        return head_of(bed.client, place).await.starts_with("HTTP/1.1 200 ");
    }
    let headers = [("content-type", "application/json"), ("worker-session", "s")];
    let body = body(operation).to_string();
    let answer = bed.client.send(method, place, &headers, body.as_bytes()).await;
    if answer.status < 300 {
        return true;
    }
    let said = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, 501, "{operation}, {method} {place}: {said}");
    let problem = answer.json();
    assert_eq!(problem["kind"], "unsupported", "{operation}: {said}");
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{operation}: {said}");
    false
}

/// The path and the query of a request.
fn place(path: &str, operation: &str) -> String {
    let mut place = path.to_owned();
    let digits = "0".repeat(64);
    for (name, value) in [
        ("{partition}", "q"),
        ("{id}", ID),
        ("{worker}", "w"),
        ("{order}", "quiet"),
        ("{name}", "n"),
        ("{sha256}", digits.as_str()),
    ] {
        place = place.replace(name, value);
    }
    match query(operation) {
        Some(query) => format!("{place}?{query}"),
        None => place,
    }
}

fn query(operation: &str) -> Option<&'static str> {
    match operation {
        "purge_messages" | "purge_dead_letters" => Some("confirm=q"),
        "list_tasks" | "count_tasks" | "task_series" | "show_task" | "delete_task" | "wait_for_result"
        | "cancel_task" | "retry_task" => Some("partition=q"),
        "delete_tasks" => Some("partition=q&limit=1"),
        "preview_schedule" => Some("spec=0%200%20*%20*%20*"),
        _ => None,
    }
}

fn body(operation: &str) -> Value {
    match operation {
        "push" => json!({ "payload": "x" }),
        "pull" => json!({ "partitions": ["q"] }),
        "settle" | "extend" => json!([]),
        "bulk_tasks" => json!({ "partition": "q", "action": "cancel", "limit": 1, "dry_run": true }),
        "register_worker" => json!({ "name": "w" }),
        "cancel_on_worker" => json!({ "id": ID }),
        "put_schedule" => json!({ "spec": "0 0 * * *", "partition": "q", "payload": "x" }),
        "put_limit" => json!({ "partition": "q", "cap": 1 }),
        "create_token" => json!({ "rights": ["read"], "partitions": ["*"] }),
        "ping_job_worker" | "dequeue_job" => json!({ "Id": ID }),
        "set_job_outcome" => json!({ "Id": ID, "Outcome": "Succeeded", "WorkerId": ID }),
        "enqueue_job" => json!({ "JobKind": "q", "JobData": "x" }),
        "import" => json!({ "what": "end", "count": 0, "without": [] }),
        _ => json!({}),
    }
}

/// The head of an answer that does not end by itself.
async fn head_of(client: Client, path: &str) -> String {
    let asking = async {
        let mut stream = TcpStream::connect(client.0).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", client.0);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        while !said.windows(4).any(|four| four == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut said).await.unwrap(), 0, "the service hung up");
        }
        String::from_utf8_lossy(&said).into_owned()
    };
    tokio::time::timeout(DEADLINE, asking).await.expect("a head in time")
}
