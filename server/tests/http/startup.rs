//! A service that starts before its backend can serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyqueue::adapter::{Forward, Storage, async_trait};
use anyqueue::{Error, ErrorKind, Health, Result};
use anyqueue_memory::MemoryQueue;
use serde_json::json;

use crate::bed::{Bed, over};

/// Answers a check of its health only while it is not away.
#[derive(Debug)]
struct Away {
    memory: MemoryQueue,
    away: Arc<AtomicBool>,
}

#[async_trait]
impl Forward for Away {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    async fn check(&self) -> Result<Health> {
        if self.away.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the backend is away"));
        }
        self.inner().check().await
    }
}

/// Asks until the answer is this. What the backend says of its health is kept for a second.
async fn becomes(bed: &Bed, path: &str, status: u16) {
    let asking = async {
        while bed.client.get(path).await.status != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), asking).await.expect("it becomes so");
}

#[tokio::test]
async fn a_service_has_started_once_it_was_ready_and_whatever_comes_later() {
    let away = Arc::new(AtomicBool::new(true));
    let storage = Away { memory: MemoryQueue::new(), away: away.clone() };
    let bed = Bed::over(over(Arc::new(storage))).await;
    for _ in 0..3 {
        let early = bed.client.get("/startupz").await;
        assert_eq!((early.status, &early.json()["kind"]), (503, &json!("unavailable")));
        assert!(early.json()["detail"].as_str().unwrap().contains("the backend is away"), "{early:?}");
    }
    away.store(false, Ordering::SeqCst);
    becomes(&bed, "/startupz", 200).await;
    assert_eq!(bed.client.get("/startupz").await.body, b"started");
    away.store(true, Ordering::SeqCst);
    becomes(&bed, "/readyz", 503).await;
    assert_eq!(bed.client.get("/startupz").await.body, b"started", "what fails later is another matter");
}

#[tokio::test]
async fn a_service_that_is_asked_whether_it_is_ready_has_started_once_it_says_so() {
    let away = Arc::new(AtomicBool::new(false));
    let storage = Away { memory: MemoryQueue::new(), away: away.clone() };
    let bed = Bed::over(over(Arc::new(storage))).await;
    becomes(&bed, "/readyz", 200).await;
    away.store(true, Ordering::SeqCst);
    becomes(&bed, "/readyz", 503).await;
    assert_eq!(bed.client.get("/startupz").await.status, 200);
}
