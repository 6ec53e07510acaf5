//! What faulty backends remember: among the clients of one namespace, and in one client.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyqueue::{Delivery, Lease, MessageData, MessageId, PartitionId};
use tokio::sync::Notify;

/// Shared by the clients of one namespace.
#[derive(Debug, Default)]
pub(super) struct Shared {
    inner: Mutex<Memory>,
    /// Notified by every push, for [`WaitersGiveUp`](super::Fault::WaitersGiveUp).
    pub(super) pushed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Messages as they were pushed, where the fault stores something else.
    pub(super) originals: HashMap<MessageId, MessageData>,
    /// Copies that the right backend does not have.
    pub(super) phantoms: Vec<(PartitionId, MessageData)>,
    /// Leases on such copies.
    pub(super) phantom_leases: HashSet<Lease>,
    /// The last lease of each message.
    pub(super) owners: HashMap<MessageId, Lease>,
    /// The leases of the pull that each lease came from.
    pub(super) batches: HashMap<Lease, Vec<Lease>>,
    /// Leases that were settled.
    pub(super) settled: HashSet<Lease>,
    /// The last delivery count of each message, and what to add to later ones.
    pub(super) counts: HashMap<MessageId, u32>,
    pub(super) added: HashMap<MessageId, u32>,
    pub(super) removals: usize,
    pub(super) retries: HashMap<MessageId, u32>,
    pub(super) bodies: HashSet<Vec<u8>>,
    pub(super) seen: HashSet<MessageId>,
    /// Payload bytes of what was delivered.
    pub(super) sizes: HashMap<MessageId, usize>,
    /// Some client was closed, and the fault closes all with it.
    pub(super) closed: bool,
    pub(super) keys: HashMap<(Option<PartitionId>, String), MessageId>,
    /// When delayed messages mature.
    pub(super) delayed: Vec<(PartitionId, Instant)>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Memory> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client's own.
#[derive(Debug, Default)]
pub(super) struct Local {
    pub(super) closed: bool,
    pub(super) buffer: Vec<(PartitionId, MessageData)>,
    pub(super) prefetched: Vec<Delivery>,
    pub(super) paused: HashSet<PartitionId>,
    pub(super) pushed: HashMap<PartitionId, u64>,
    /// What it holds, and until when, where the storage does not know.
    pub(super) held: HashMap<Lease, Instant>,
}
