//! What it costs a backend that many watch, and that nobody does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Forward, InspectQueueStorage, Storage, async_trait};
use anyqueue::{Browsed, CancelOutcome, Counts, DeleteOutcome, MessageId, Page, PartitionId, Result};
use anyqueue_memory::MemoryQueue;
use futures_util::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bed::{Bed, over};

const DEADLINE: Duration = Duration::from_mins(1);
/// How long is watched, at least.
const LONG: Duration = Duration::from_secs(3);
const WATCHERS: usize = 20;

/// Counts how often it is asked for its queues.
#[derive(Debug)]
struct Asked {
    memory: MemoryQueue,
    asked: Arc<AtomicU64>,
}

impl Forward for Asked {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }
}

#[async_trait]
impl InspectQueueStorage for Asked {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.memory.partitions(page).await
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.memory.counts(partition).await
    }

    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        self.memory.browse(partition, page).await
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        InspectQueueStorage::delete(&self.memory, partition, ids).await
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.memory.purge(partition, limit).await
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        self.memory.request_cancel(partition, ids).await
    }
}

async fn bed() -> (Bed, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let storage = Asked { memory: MemoryQueue::new(), asked: asked.clone() };
    (Bed::over(over(Arc::new(storage))).await, asked)
}

/// Watches, once the first event is there.
async fn watch(bed: &Bed) -> TcpStream {
    let mut stream = TcpStream::connect(bed.client.0).await.unwrap();
    let request = format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\n\r\n", bed.client.0);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let first = async {
        while !String::from_utf8_lossy(&said).contains("event: sample") {
            assert_ne!(stream.read_buf(&mut said).await.unwrap(), 0, "the service hung up");
        }
    };
    timeout(DEADLINE, first).await.expect("an event");
    stream
}

#[tokio::test]
async fn many_who_watch_and_load_pages_cost_the_backend_one_look_a_second() {
    let (bed, asked) = bed().await;
    let begun = Instant::now();
    let watching = join_all((0..WATCHERS).map(|_| watch(&bed))).await;
    let loading = async {
        while begun.elapsed() < LONG || asked.load(Ordering::SeqCst) < 3 {
            bed.push("mail", json!({ "payload": "x" })).await;
            for page in join_all((0..3).map(|_| bed.client.get("/"))).await {
                assert_eq!(page.status, 200);
            }
        }
    };
    timeout(DEADLINE, loading).await.expect("looks go on");
    let looks = asked.load(Ordering::SeqCst);
    let seconds = begun.elapsed().as_secs();
    assert!(looks <= seconds + 1, "{looks} looks in {seconds} s");
    drop(watching);
}

#[tokio::test]
async fn a_service_that_nobody_looks_at_asks_the_backend_for_nothing() {
    let (bed, asked) = bed().await;
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        bed.push("mail", json!({ "payload": "x" })).await;
        let mail = bed.pull("mail").await;
        bed.settle(json!({ "delivery": mail["delivery"], "status": "processed" })).await;
        assert_eq!(bed.client.get("/readyz").await.status, 200);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0, "nobody looks");
    bed.client.get("/").await;
    assert!(asked.load(Ordering::SeqCst) > 0, "now somebody does");
}
