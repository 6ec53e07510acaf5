//! A backend that fails within a long answer: nobody may take what came before for the whole.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{Forward, InspectQueueStorage, Storage, async_trait};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, Error, ErrorKind, MessageId, Page, PartitionId, Result,
};
use anyqueue_memory::MemoryQueue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bed::{Bed, over};
use crate::notifications::{PATH, name};

/// Fails from the second page on.
#[derive(Debug)]
struct Failing(MemoryQueue);

impl Forward for Failing {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }
}

#[async_trait]
impl InspectQueueStorage for Failing {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        self.0.partitions(page).await
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.0.counts(partition).await
    }

    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        if page.after.is_some() {
            return Err(Error::new(ErrorKind::AccessDenied, "no more than this"));
        }
        self.0.browse(partition, page).await
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        InspectQueueStorage::delete(&self.0, partition, ids).await
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.0.purge(partition, limit).await
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        self.0.request_cancel(partition, ids).await
    }
}

#[tokio::test]
async fn a_list_within_which_the_backend_fails_is_no_whole_list() {
    let bed = Bed::over(over(Arc::new(Failing(MemoryQueue::new())))).await;
    let items: Vec<Value> = (0..1000)
        .map(|n| json!({ "payload": "x", "task_id": name(&["", "", "", &n.to_string()]) }))
        .collect();
    bed.client.post("/v1/partitions/notifications/messages", &json!(items)).await.ok();
    for (path, version) in [("", "1.1"), ("/summary", "1.1"), ("", "1.0"), ("/summary", "1.0")] {
        let request = format!("GET {PATH}{path} HTTP/{version}\r\nhost: {}\r\n\r\n", bed.client.0);
        let mut stream = TcpStream::connect(bed.client.0).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = timeout(Duration::from_mins(1), stream.read_to_end(&mut answer));
        let _ = read.await.expect("it is cut");
        let text = String::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(head.contains("chunked"), version == "1.1", "{head}");
        assert!(!head.contains("content-length") && body.contains("\"task_id\""), "some of it came: {text}");
        assert!(!body.ends_with("0\r\n\r\n"), "its end is told: {body}");
        // Whoever takes the end of the connection for that of the list finds no list.
        assert!(!body.trim_end().ends_with(']') && serde_json::from_str::<Value>(body).is_err(), "{body}");
    }
}
