//! What a worker is set to, checked.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::PartitionId;

use crate::governor::Governor;
use crate::handler::Wrap;
use crate::retry::Retry;
use crate::schedule::Sharing;

/// A partition as the worker works it: everything checked.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: PartitionId,
    pub(crate) weight: u32,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) lease: Option<Duration>,
}

/// What holds for the whole worker.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) slots: usize,
    pub(crate) prefetch: usize,
    pub(crate) prefetch_ttl: Duration,
    pub(crate) sharing: Sharing,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Retry,
    pub(crate) retry_timeouts: bool,
    pub(crate) max_crashes: u32,
    pub(crate) max_misses: u32,
    pub(crate) miss_delay: Duration,
    pub(crate) drain: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) governor: Option<Arc<dyn Governor>>,
    pub(crate) wraps: Vec<Wrap>,
    pub(crate) counting: Counting,
}

/// Where the number of failed attempts is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// In headers, replaced when the message is postponed.
    Headers,
    /// In this worker's memory: the backend cannot replace headers, and counts releases as it counts failures.
    Memory,
    /// By the backend, which counts failed deliveries only: what failed comes back at once.
    Failures,
}
