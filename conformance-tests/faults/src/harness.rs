//! Harnesses for the faulty backends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue::adapter::{Decoded, Envelope, QueueStorage as _, Storage, async_trait};
use anyqueue::{Clock, MessageId, PartitionId, Result};
use anyqueue_conformance::{Fault, FaultTarget, Harness, Need, Opening, least};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use bytes::Bytes;

use crate::basic::Basic;
use crate::catalogue::quirk;
use crate::hollow::Hollow;
use crate::keys::window::Window;
use crate::quirk::Quirk;
use crate::repeating::Repeating;
use crate::state::Shared;
use crate::storage::Quirky;
use crate::wire;

/// The memory backend with one fault, or with none.
#[derive(Debug)]
pub struct FaultyHarness {
    fault: Option<Fault>,
    name: String,
    /// Whether the server declares that settlements do not outlive it.
    forgetful: bool,
    /// Whether the server gives some messages to two consumers at once, as it declares.
    repeating: bool,
    /// Whether the server remembers deduplication keys for a time, as it declares.
    windowed: bool,
    spaces: Mutex<HashMap<String, Space>>,
}

/// One namespace.
#[derive(Debug)]
struct Space {
    queue: MemoryQueue,
    clock: Clock,
    shared: Arc<Shared>,
    /// The fault, if it is a quirk that all clients share.
    quirk: Option<Arc<dyn Quirk>>,
    clients: usize,
}

impl Space {
    fn new(quirk: Option<Arc<dyn Quirk>>, clock: Clock) -> Self {
        let queue = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clone()));
        Self { queue, clock, shared: Arc::default(), quirk, clients: 0 }
    }

    /// Opens a client whose own clock is `clock`; the storage has its own.
    fn open(&mut self, fault: Option<Fault>, clock: Clock) -> Arc<dyn Storage> {
        let memory: Arc<dyn Storage> = Arc::new(self.queue.client());
        let quirk = self
            .quirk
            .clone()
            .unwrap_or_else(|| Arc::new(Basic::new(Arc::clone(&memory), fault, Arc::clone(&self.shared))));
        self.clients += 1;
        Arc::new(Quirky::new(memory, self.clients - 1, clock, self.clock.clone(), quirk))
    }
}

impl FaultyHarness {
    /// Creates a harness for the memory backend with this fault.
    pub fn new(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::right(format!("{fault:?}")) }
    }

    /// Creates a harness for the memory backend without a fault, behind the same wrapper: it shows that the
    /// wrapper itself breaks nothing.
    pub fn faultless() -> Self {
        Self::right("faultless")
    }

    /// Like [`faultless`](Self::faultless), for a server whose settlements die with it, as it declares.
    pub fn forgetful() -> Self {
        Self { forgetful: true, ..Self::right("forgetful") }
    }

    /// Like [`faultless`](Self::faultless), for a server that gives some messages to two consumers at once,
    /// as it declares.
    pub fn repeating() -> Self {
        Self { repeating: true, ..Self::right("repeating") }
    }

    /// Like [`faultless`](Self::faultless), for a server that remembers deduplication keys for a time, as it
    /// declares.
    pub fn windowed() -> Self {
        Self { windowed: true, ..Self::right("windowed") }
    }

    fn right(name: impl Into<String>) -> Self {
        Self {
            fault: None,
            name: name.into(),
            forgetful: false,
            repeating: false,
            windowed: false,
            spaces: Mutex::default(),
        }
    }

    /// Returns what all clients of a namespace do differently.
    fn quirk(&self) -> Option<Arc<dyn Quirk>> {
        match self.fault {
            Some(fault) => quirk(fault),
            None if self.repeating => Some(Arc::new(Repeating::default())),
            None if self.windowed => Some(Arc::new(Window::default())),
            None => None,
        }
    }

    /// Opens a client whose own clock is `own`. If it is the first one, the storage gets `clock`.
    fn client(&self, namespace: &str, clock: Clock, own: Clock) -> Arc<dyn Storage> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let space = spaces.entry(namespace.to_owned()).or_insert_with(|| Space::new(self.quirk(), clock));
        space.open(self.fault, own)
    }
}

#[async_trait]
impl Harness for FaultyHarness {
    fn name(&self) -> &str {
        &self.name
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        Ok(self.client(namespace, Clock::system(), Clock::system()))
    }

    fn open_on(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let client = self.client(namespace, clock.clone(), clock);
        Some(Box::pin(async move { Ok(client) }))
    }

    fn open_skewed(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let client = self.client(namespace, Clock::system(), clock);
        Some(Box::pin(async move { Ok(client) }))
    }

    fn least(&self) -> &'static [Need] {
        // One fault is to support a capability that is not declared: its own case must find that.
        if self.fault == Some(Fault::DeclaresLess) { least::EVERYTHING } else { &[] }
    }

    /// The backend keeps fields; it behaves as if it kept bytes.
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

    fn corrupts(&self) -> bool {
        true
    }

    async fn corrupt(&self, namespace: &str, _: &PartitionId, id: MessageId) -> Result<()> {
        let spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(space) = spaces.get(namespace) {
            space.shared.lock().corrupted.insert(id);
        }
        Ok(())
    }

    async fn fault_target(&self) -> Result<Option<Arc<dyn FaultTarget>>> {
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
    /// Reports success for everything and does nothing.
    pub fn agreeing() -> Self {
        Self(Hollow::agreeing(MemoryQueue::new().capabilities().clone()))
    }

    /// Returns `Unsupported` from everything.
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
