//! Who may ask.

use std::sync::Arc;

use anyqueue::adapter::{Capabilities, ControlStorage, Forward, QueueStorage as _, Storage};
use anyqueue::{CancellationToken, ErrorKind, Queue};
use anyqueue_memory::MemoryQueue;
use anyqueue_server::{Server, ServerError};
use serde_json::json;
use tokio::net::TcpListener;

use crate::bed::{Bed, memory, over};

/// A backend that keeps no control entries, and so no tokens.
#[derive(Debug)]
struct Bare(MemoryQueue, Capabilities);

impl Forward for Bare {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        None
    }
}

pub(crate) fn keeps_none() -> Queue {
    let memory_queue = MemoryQueue::new();
    let capabilities = Capabilities { control: false, ..memory_queue.capabilities().clone() };
    over(Arc::new(Bare(memory_queue, capabilities)))
}

#[tokio::test]
async fn a_service_that_requires_tokens_is_not_built_where_none_can_be_kept() {
    let bare = keeps_none();
    let required = || Server::builder(bare.clone()).require_tokens(true);
    let refused = required().build().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let why = refused.to_string();
    assert!(why.contains("tokens are required, and this backend keeps none"), "{why}");
    assert!(why.contains("the control store of another backend"), "what helps: {why}");
    // Each of the two helps.
    required().token("correct-horse-battery").build().await.unwrap();
    required().control(memory().control().unwrap()).build().await.unwrap();
    Server::builder(bare).build().await.unwrap();
}

#[tokio::test]
async fn a_service_that_others_could_reach_does_not_begin_without_tokens() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let server = Server::builder(memory()).build().await.unwrap();
    let refused = server.serve(listener, CancellationToken::new()).await.unwrap_err();
    assert!(matches!(refused, ServerError::Open(_)), "{refused}");
    assert!(refused.to_string().contains("require a token"));
    let short = Server::builder(memory()).token("short").build().await.unwrap_err();
    assert!(short.to_string().contains("16 bytes"), "{short}");
}

#[tokio::test]
async fn where_there_are_tokens_everything_but_the_health_needs_one() {
    let bed = Bed::with(memory(), |builder| builder.token("correct-horse-battery")).await;
    assert_eq!(bed.client.get("/livez").await.status, 200);
    assert_eq!(bed.client.get("/readyz").await.status, 200);
    for path in ["/v1/partitions", "/metrics", "/openapi.json", "/nothing"] {
        let refused = bed.client.get(path).await;
        assert_eq!((refused.status, &refused.json()["kind"]), (401, &json!("unauthorized")), "{path}");
    }
    let headers = [("authorization", "Bearer correct-horse-battery")];
    assert_eq!(bed.client.send("GET", "/v1/partitions", &headers, b"").await.status, 200);
}

#[tokio::test]
async fn pages_of_other_sites_cannot_change_anything() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let from_elsewhere = [("origin", "https://evil.example")];
    let refused = bed.client.send("POST", "/v1/partitions/mail/pause", &from_elsewhere, b"").await;
    assert_eq!(refused.status, 403);
    let rebound = bed.client.send("GET", "/v1/partitions", &[("host", "evil.example")], b"").await;
    assert_eq!(rebound.status, 403);
    let form = [("content-type", "text/plain")];
    let refused = bed.client.send("POST", "/v1/partitions/mail/messages", &form, b"{}").await;
    assert_eq!(refused.status, 415);
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["paused"], false);
}

#[tokio::test]
async fn a_service_that_only_reads_changes_nothing() {
    let bed = Bed::with(memory(), |builder| builder.read_only(true)).await;
    bed.queue.push("mail", anyqueue::MessageData::new("x")).await.unwrap();
    let refused = [
        bed.client.post("/v1/partitions/mail/messages", &json!({})).await,
        bed.client.post("/v1/pull", &json!({ "partitions": ["mail"] })).await,
        bed.client.post("/v1/settle", &json!([])).await,
        bed.client.post("/v1/extend", &json!([])).await,
        bed.client.post("/v1/partitions/mail/pause", &json!({})).await,
        bed.client.post("/v1/partitions/mail/resume", &json!({})).await,
        bed.client.post("/v1/partitions/mail/dead/redrive", &json!({})).await,
        bed.client.delete("/v1/partitions/mail/messages?confirm=mail").await,
        bed.client.delete("/v1/partitions/mail/dead?confirm=mail").await,
        bed.client.delete("/v1/tasks?partition=mail&limit=1").await,
        bed.client.delete("/v1/tasks/00000000-0000-0000-0000-000000000000?partition=mail").await,
        bed.client
            .post("/v1/tasks/00000000-0000-0000-0000-000000000000/cancel?partition=mail", &json!({}))
            .await,
        bed.client
            .post("/v1/tasks/00000000-0000-0000-0000-000000000000/retry?partition=mail", &json!({}))
            .await,
        bed.client.post("/v1/workers/w/stop", &json!({})).await,
        bed.client.delete("/v1/workers/w").await,
        bed.client
            .send("PUT", "/v1/workers/w/cancel", &[("content-type", "application/json")], br#"{"id":"x"}"#)
            .await,
    ];
    for (place, answer) in refused.iter().enumerate() {
        assert_eq!((answer.status, &answer.json()["kind"]), (403, &json!("read_only")), "{place}");
    }
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["ready"], 1);
}
