//! The checked settings of a worker.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::PartitionId;
use anyqueue::adapter::{Capabilities, DeliveryCount};

use crate::governor::Governor;
use crate::handler::Wrap;
use crate::permits::Permits;
use crate::retry::Retry;
use crate::schedule::Sharing;

/// The largest number of slots, and of messages held beyond them. Each may hold a message: memory runs out
/// long before.
pub const MAX_SLOTS: usize = 1_000_000;
/// Leaves room for the process id.
const MAX_HOST_BYTES: usize = 200;

/// A partition that the worker serves, with everything checked.
#[derive(Debug)]
pub(crate) struct PartitionConfig {
    pub(crate) id: PartitionId,
    pub(crate) weight: u32,
    pub(crate) concurrency: usize,
    /// Slots that no other partition takes.
    pub(crate) reserve: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) lease: Option<Duration>,
    /// How many members of a group are pulled at once; 1 for the head alone.
    pub(crate) group_members: usize,
}

/// What applies to the whole worker.
#[derive(Clone)]
pub(crate) struct Config {
    /// The worker's name in the ledger.
    pub(crate) name: Arc<str>,
    pub(crate) slots: usize,
    pub(crate) prefetch: usize,
    pub(crate) prefetch_ttl: Duration,
    pub(crate) sharing: Sharing,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Retry,
    pub(crate) retry_timeouts: bool,
    pub(crate) max_crashes: u32,
    pub(crate) max_unknown: u32,
    pub(crate) unknown_delay: Duration,
    pub(crate) drain: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) governor: Option<Arc<dyn Governor>>,
    /// How many tasks one run takes on.
    pub(crate) max_tasks: Option<NonZeroU64>,
    /// How much memory the process may occupy before a run ends.
    pub(crate) max_memory_bytes: Option<u64>,
    pub(crate) permits: Option<Arc<dyn Permits>>,
    pub(crate) wraps: Vec<Wrap>,
    pub(crate) counting: Counting,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: process_name(),
            slots: 16,
            prefetch: 0,
            prefetch_ttl: Duration::from_secs(10),
            sharing: Sharing::Fair,
            timeout: None,
            retry: Retry::default(),
            retry_timeouts: false,
            max_crashes: 5,
            max_unknown: 10,
            unknown_delay: Duration::from_secs(30),
            drain: Duration::from_secs(25),
            cancel_grace: Duration::from_secs(5),
            governor: None,
            max_tasks: None,
            max_memory_bytes: None,
            permits: None,
            wraps: Vec::new(),
            counting: Counting::Headers,
        }
    }
}

/// The default [name](crate::WorkerBuilder::name) of a worker in this process: the name of the machine and
/// the process id.
#[must_use]
pub fn process_name() -> Arc<str> {
    let set = |variable| std::env::var(variable).ok();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| set("HOSTNAME")).or_else(|| set("COMPUTERNAME")).unwrap_or_default();
    let host = host.get(..host.floor_char_boundary(MAX_HOST_BYTES)).unwrap_or_default().trim();
    let host = if host.is_empty() { "worker" } else { host };
    format!("{host}-{}", std::process::id()).into()
}

/// Where the number of failed attempts is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// In headers, which are replaced when the message is postponed.
    Headers,
    /// In this worker's memory: the backend cannot replace headers, and counts releases as it counts
    /// failures.
    Memory,
    /// By the backend, which counts only failed deliveries: a failed task comes back at once.
    Failures,
}

impl Counting {
    /// The best that a backend allows.
    pub(crate) fn on(capabilities: &Capabilities) -> Self {
        match (capabilities.postpone_headers, capabilities.delivery_count) {
            (true, _) if capabilities.postpone_delay.is_some() => Self::Headers,
            (_, DeliveryCount::ExceptReleases) => Self::Failures,
            _ => Self::Memory,
        }
    }
}
