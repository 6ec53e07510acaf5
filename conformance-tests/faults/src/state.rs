//! What faulty backends remember: for all clients of one namespace, and for one client.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyqueue::adapter::{Lease, RawDelivery};
use anyqueue::{MessageData, MessageId, PartitionId};
use tokio::sync::Notify;

/// State that the clients of one namespace share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    inner: Mutex<Memory>,
    /// Notified by every push, for [`WaitersGiveUp`](anyqueue_conformance::Fault::WaitersGiveUp).
    pub(crate) pushed: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Messages as they were pushed, where the fault stores something else.
    pub(crate) originals: HashMap<MessageId, MessageData>,
    /// Copies that the right backend does not have.
    pub(crate) phantoms: Vec<(PartitionId, MessageData)>,
    /// Leases on such copies.
    pub(crate) phantom_leases: HashSet<Lease>,
    /// The last lease of each message.
    pub(crate) owners: HashMap<MessageId, Lease>,
    /// For each lease, all leases of its pull.
    pub(crate) batches: HashMap<Lease, Vec<Lease>>,
    /// Leases that were settled.
    pub(crate) settled: HashSet<Lease>,
    /// The last delivery count of each message, and what to add to later ones.
    pub(crate) counts: HashMap<MessageId, u32>,
    pub(crate) added: HashMap<MessageId, u32>,
    pub(crate) removals: usize,
    pub(crate) retries: HashMap<MessageId, u32>,
    pub(crate) bodies: HashSet<Vec<u8>>,
    pub(crate) seen: HashSet<MessageId>,
    /// The payload size of each delivered message, in bytes.
    pub(crate) sizes: HashMap<MessageId, usize>,
    /// Whether a client was closed, and the fault closes all others with it.
    pub(crate) closed: bool,
    /// Messages whose stored form was damaged.
    pub(crate) corrupted: HashSet<MessageId>,
    pub(crate) keys: HashMap<(Option<PartitionId>, String), MessageId>,
    /// When delayed messages become due.
    pub(crate) delayed: Vec<(PartitionId, Instant)>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Memory> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of one client.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) closed: bool,
    pub(crate) buffer: Vec<(PartitionId, MessageData)>,
    pub(crate) prefetched: Vec<RawDelivery>,
    pub(crate) paused: HashSet<PartitionId>,
    pub(crate) pushed: HashMap<PartitionId, u64>,
    /// What the client holds, and until when, where the storage does not know.
    pub(crate) held: HashMap<Lease, Instant>,
}
