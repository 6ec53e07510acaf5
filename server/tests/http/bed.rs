//! A service over a queue, in this process.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::{CancellationToken, Keep, Queue};
use anyqueue_memory::MemoryQueue;
use anyqueue_server::{Server, ServerBuilder};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::Client;

/// A service, ended when it is dropped.
pub(crate) struct Bed {
    pub(crate) queue: Queue,
    pub(crate) client: Client,
    end: CancellationToken,
    served: Option<JoinHandle<()>>,
}

impl Bed {
    /// Over a new queue in memory, which keeps the ends of tasks.
    pub(crate) async fn new() -> Self {
        Self::over(memory()).await
    }

    pub(crate) async fn over(queue: Queue) -> Self {
        Self::with(queue, |builder| builder).await
    }

    pub(crate) async fn with(queue: Queue, set: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let server = set(Server::builder(queue.clone())).build().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, end) = (Client(listener.local_addr().unwrap()), CancellationToken::new());
        let ended = end.clone();
        let serving = tokio::spawn(async move { server.serve(listener, ended).await.unwrap() });
        Self { queue, client, end, served: Some(serving) }
    }

    /// Ends the service and waits for its end.
    pub(crate) async fn end(mut self) {
        self.end.cancel();
        if let Some(served) = self.served.take() {
            tokio::time::timeout(Duration::from_mins(1), served).await.expect("an end").unwrap();
        }
    }

    pub(crate) async fn push(&self, partition: &str, item: Value) -> String {
        let answer = self.client.post(&format!("/v1/partitions/{partition}/messages"), &item).await.ok();
        answer[0]["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Pulls one, which must be there.
    pub(crate) async fn pull(&self, partition: &str) -> Value {
        let answer = self.pull_with(json!({ "partitions": [partition], "wait_ms": 20_000 })).await;
        answer["deliveries"][0].clone()
    }

    pub(crate) async fn pull_with(&self, request: Value) -> Value {
        self.client.post("/v1/pull", &request).await.ok()
    }

    pub(crate) async fn settle(&self, item: Value) -> Value {
        self.client.post("/v1/settle", &item).await.ok()[0].clone()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

pub(crate) fn memory() -> Queue {
    over(Arc::new(MemoryQueue::new()))
}

pub(crate) fn over(storage: Arc<dyn Storage>) -> Queue {
    Queue::builder(storage).ledger(Keep::default()).build().unwrap()
}
