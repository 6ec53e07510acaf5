//! The conformance suite over the memory backend.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue::adapter::Storage;
use anyqueue::{Clock, Result};
use anyqueue_conformance::{Harness, Need, Opening, async_trait, least};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

/// One store per namespace.
#[derive(Default)]
struct Memory(Mutex<HashMap<String, MemoryQueue>>);

impl Memory {
    fn stores(&self) -> std::sync::MutexGuard<'_, HashMap<String, MemoryQueue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Harness for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.stores().entry(namespace.to_owned()).or_insert_with(MemoryQueue::new).client()))
    }

    fn open_on(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let with_clock = || MemoryQueue::with_config(MemoryConfig::default().with_clock(clock));
        let client = self.stores().entry(namespace.to_owned()).or_insert_with(with_clock).client();
        Some(Box::pin(async move { Ok(Arc::new(client) as Arc<dyn Storage>) }))
    }

    /// All time is the store's.
    fn open_skewed(&self, namespace: &str, _clock: Clock) -> Option<Opening<'_>> {
        let namespace = namespace.to_owned();
        Some(Box::pin(async move { self.open(&namespace).await }))
    }

    fn least(&self) -> &'static [Need] {
        least::EVERYTHING
    }

    fn rule(&self, _need: Need) -> Option<&'static str> {
        Some("messages live in the memory of one process: there is no server and no other process")
    }

    async fn remove(&self, namespace: &str) {
        self.stores().remove(namespace);
    }
}

anyqueue_conformance::suite!(Memory::default());
