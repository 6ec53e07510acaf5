//! Harnesses over the faulty backends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue::{Clock, QueueStorage as _, Result, Storage, async_trait};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

use super::state::Shared;
use super::storage::Faulty;
use super::{Fault, Hollow};
use crate::harness::{Harness, Opening};

/// The memory backend with one fault, or with none.
#[derive(Debug)]
pub struct FaultyHarness {
    fault: Option<Fault>,
    name: String,
    spaces: Mutex<HashMap<String, (MemoryQueue, Arc<Shared>)>>,
}

impl FaultyHarness {
    /// The memory backend with this fault.
    pub fn new(fault: Fault) -> Self {
        Self { fault: Some(fault), name: format!("{fault:?}"), spaces: Mutex::default() }
    }

    /// The memory backend behind the same wrapper, without a fault: what the wrapper itself must not break.
    pub fn faultless() -> Self {
        Self { fault: None, name: "faultless".to_owned(), spaces: Mutex::default() }
    }
}

impl FaultyHarness {
    fn client(&self, namespace: &str, clock: Clock) -> Arc<dyn Storage> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let store = || MemoryQueue::with_config(MemoryConfig::default().with_clock(clock));
        let (queue, shared) = spaces.entry(namespace.to_owned()).or_insert_with(|| (store(), Arc::default()));
        Arc::new(Faulty::new(Arc::new(queue.client()), self.fault, shared.clone()))
    }
}

#[async_trait]
impl Harness for FaultyHarness {
    fn name(&self) -> &str {
        &self.name
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        Ok(self.client(namespace, Clock::system()))
    }

    fn open_on(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let client = self.client(namespace, clock);
        Some(Box::pin(async move { Ok(client) }))
    }

    async fn remove(&self, namespace: &str) {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }
}

/// A backend with nothing inside, which declares what the memory backend declares.
#[derive(Debug)]
pub struct HollowHarness(Hollow);

impl HollowHarness {
    /// Answers success to everything and does nothing.
    pub fn agreeing() -> Self {
        Self(Hollow::agreeing(MemoryQueue::new().capabilities().clone()))
    }

    /// Answers `Unsupported` to everything.
    pub fn refusing() -> Self {
        Self(Hollow::refusing(MemoryQueue::new().capabilities().clone()))
    }
}

#[async_trait]
impl Harness for HollowHarness {
    fn name(&self) -> &'static str {
        "hollow"
    }

    async fn open(&self, _namespace: &str) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.0.clone()))
    }
}
