//! Harnesses over the faulty backends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue::{Clock, Decoded, Envelope, PartitionId, QueueStorage as _, Result, Storage, async_trait};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use bytes::Bytes;

use super::reader::{Quirk, quirk};
use super::reader_storage::Quirky;
use super::state::Shared;
use super::storage::Faulty;
use super::{Fault, Hollow, wire};
use crate::case::Need;
use crate::harness::{Harness, Opening};
use crate::least;
use crate::victim::Victim;

/// The memory backend with one fault, or with none.
#[derive(Debug)]
pub struct FaultyHarness {
    fault: Option<Fault>,
    name: String,
    /// Whether its server declares that settlements do not outlive it.
    forgetful: bool,
    spaces: Mutex<HashMap<String, Space>>,
}

/// One namespace.
#[derive(Debug)]
struct Space {
    queue: MemoryQueue,
    shared: Arc<Shared>,
    /// The fault, if it is of that kind.
    quirk: Option<Arc<dyn Quirk>>,
    clients: usize,
}

impl Space {
    fn new(fault: Option<Fault>, clock: Clock) -> Self {
        let queue = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock));
        Self { queue, shared: Arc::default(), quirk: fault.and_then(quirk), clients: 0 }
    }

    fn open(&mut self, fault: Option<Fault>) -> Arc<dyn Storage> {
        let memory = self.queue.client();
        self.clients += 1;
        match &self.quirk {
            Some(quirk) => Arc::new(Quirky::new(memory, self.clients - 1, Arc::clone(quirk))),
            None => Arc::new(Faulty::new(Arc::new(memory), fault, Arc::clone(&self.shared))),
        }
    }
}

impl FaultyHarness {
    /// The memory backend with this fault.
    pub fn new(fault: Fault) -> Self {
        Self { fault: Some(fault), name: format!("{fault:?}"), forgetful: false, spaces: Mutex::default() }
    }

    /// The memory backend behind the same wrapper, without a fault: what the wrapper itself must not break.
    pub fn faultless() -> Self {
        Self { fault: None, name: "faultless".to_owned(), forgetful: false, spaces: Mutex::default() }
    }

    /// The same, over a server whose settlements die with it, as it declares.
    pub fn forgetful() -> Self {
        Self { fault: None, name: "forgetful".to_owned(), forgetful: true, spaces: Mutex::default() }
    }

    fn client(&self, namespace: &str, clock: Clock) -> Arc<dyn Storage> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let space = spaces.entry(namespace.to_owned()).or_insert_with(|| Space::new(self.fault, clock));
        space.open(self.fault)
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

    fn least(&self) -> &'static [Need] {
        // One of its faults is an undeclared capability that answers: that must be judged by its own case.
        if self.fault == Some(Fault::DeclaresLess) { least::EVERYTHING } else { &[] }
    }

    /// It keeps fields; but as it would be if it kept bytes.
    fn stores_bytes(&self) -> bool {
        true
    }

    async fn plant(&self, namespace: &str, partition: &PartitionId, stored: &[u8]) -> Result<()> {
        let bytes = Bytes::copy_from_slice(stored);
        let decoded = match self.fault {
            Some(Fault::ForeignDropped) if stored.starts_with(b"{") => return Ok(()),
            Some(Fault::OldEnvelopeForeign) => Decoded::Foreign(bytes),
            _ => Envelope::decode(&bytes)?,
        };
        let message = decoded.into_message("foreign-1");
        let pushed = self.open(namespace).await?.push(partition, &[message]).await;
        pushed.into_iter().try_for_each(|answer| answer.map(drop))
    }

    async fn victim(&self) -> Result<Option<Arc<dyn Victim>>> {
        Ok(Some(Arc::new(wire::Handle(wire::Server::new(self.fault, self.forgetful)))))
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
