//! Setting up a queue.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::caller::RetryPolicy;
use super::guard;
use super::handle::Queue;
use super::options::{Options, PartitionOptions, TraceSource};
use super::start;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::exec::Spawner;
use crate::io::IoThread;
use crate::ledger::Keep;
use crate::partition::IntoPartitionId;
use crate::storage::Storage;

/// A storage that a [`Queue`] can be built on: any [`Storage`], or a shared `dyn` handle such as the one that
/// [`Registry::open`](crate::Registry::open) returns. This trait is sealed.
pub trait IntoStorage: sealed::Sealed {
    /// Converts this into the shared handle.
    fn into_storage(self) -> Arc<dyn Storage>;
}

mod sealed {
    pub trait Sealed {}
    impl<T: crate::storage::Storage> Sealed for T {}
    impl Sealed for std::sync::Arc<dyn crate::storage::Storage> {}
}

impl<T: Storage> IntoStorage for T {
    fn into_storage(self) -> Arc<dyn Storage> {
        Arc::new(self)
    }
}

impl IntoStorage for Arc<dyn Storage> {
    fn into_storage(self) -> Arc<dyn Storage> {
        self
    }
}

impl Queue {
    /// Creates a queue with default options.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) outside a tokio runtime, or if the backend does not
    /// support the default lease.
    pub fn new(storage: impl IntoStorage) -> Result<Self> {
        Self::builder(storage).build()
    }

    /// Returns a builder, to set options first.
    pub fn builder(storage: impl IntoStorage) -> QueueBuilder {
        QueueBuilder::new(storage)
    }
}

/// Builds a [`Queue`] with options of its own.
#[must_use]
pub struct QueueBuilder {
    storage: Arc<dyn Storage>,
    options: Options,
    io: Option<IoThread>,
    spawner: Option<Spawner>,
    partitions: Vec<(Result<String>, PartitionOptions)>,
}

impl QueueBuilder {
    fn new(storage: impl IntoStorage) -> Self {
        Self {
            storage: storage.into_storage(),
            options: Options {
                defaults: PartitionOptions::default(),
                partitions: HashMap::new(),
                clock: Clock::system(),
                retry: RetryPolicy::default(),
                call_timeout: Duration::from_secs(30),
                max_held: 16_384,
                push_buffer_bytes: 64 << 20,
                metric_partitions: 1000,
                trace: None,
                ledger: None,
            },
            io: None,
            spawner: None,
            partitions: Vec::new(),
        }
    }

    /// Sets the options of every partition that has none of its own.
    pub fn defaults(mut self, options: PartitionOptions) -> Self {
        self.options.defaults = options;
        self
    }

    /// Sets the options of one partition and its dead letters.
    pub fn partition(mut self, partition: impl IntoPartitionId, options: PartitionOptions) -> Self {
        self.partitions.push((partition.into_partition_id().map(|p| p.name().to_owned()), options));
        self
    }

    /// Sets another clock. This is meant for tests: see [`ManualClock`](crate::ManualClock). For tokio's
    /// paused clock see [`Clock::system`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.options.clock = clock;
        self
    }

    /// Makes calls and runs the heartbeat on this thread instead of on the caller's runtime.
    pub fn io(mut self, io: &IoThread) -> Self {
        self.io = Some(io.clone());
        self
    }

    /// Runs the queue's tasks with this spawner instead of in a runtime. The clock must then be a manual one.
    /// For tests that decide themselves what runs next; not part of the public API.
    #[doc(hidden)]
    pub fn spawner(mut self, spawner: Spawner) -> Self {
        self.spawner = Some(spawner);
        self
    }

    /// Sets how often, and how soon, a failed call is repeated where that is safe.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.options.retry = retry;
        self
    }

    /// Sets how long one call to the backend may take, not counting the wait of a long poll. Default: 30 s.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.options.call_timeout = timeout;
        self
    }

    /// Sets how many deliveries this queue may hold at once, over all partitions. Pulls wait for room.
    /// Default: 16384.
    pub fn max_held(mut self, max_held: usize) -> Self {
        self.options.max_held = max_held;
        self
    }

    /// Sets how many bytes of messages may wait in [`push`](Queue::push) at once. Further pushes wait for
    /// room. Default: 64 MiB.
    pub fn push_buffer_bytes(mut self, bytes: usize) -> Self {
        self.options.push_buffer_bytes = bytes;
        self
    }

    /// Sets how many partitions metrics tell apart by the label `partition`; all others are counted together,
    /// as `(other)`. Default: 1000. With 0, no partition name appears in metrics.
    pub fn metric_partitions(mut self, most: usize) -> Self {
        self.options.metric_partitions = most;
        self
    }

    /// Sets where the `traceparent` header of a pushed message comes from, unless the message already has
    /// one.
    pub fn trace(mut self, source: TraceSource) -> Self {
        self.options.trace = Some(source);
        self
    }

    /// Keeps a record of how each task ended, for the given time: its outcome, when it ended, after how many
    /// attempts, and with which result. The record is stored in the same step as the end of the delivery
    /// where the backend [declares](crate::adapter::Capabilities::ledger) that this is atomic. Read the
    /// records with [`Queue::task`] and [`Queue::tasks`]. By default nothing is kept.
    pub fn ledger(mut self, keep: Keep) -> Self {
        self.options.ledger = Some(keep);
        self
    }

    /// Builds the queue. This does no I/O; call [`init`](Queue::init) once if the storage is not set up yet.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) outside a tokio runtime without an [`IoThread`], for
    /// a bad partition name, and for options that the backend does not support;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a ledger where the backend has none.
    pub fn build(mut self) -> Result<Queue> {
        let capabilities = self.storage.capabilities().clone();
        for (name, options) in std::mem::take(&mut self.partitions) {
            options.check(&capabilities)?;
            self.options.partitions.insert(name?, options);
        }
        self.options.defaults.check(&capabilities)?;
        if self.options.max_held == 0 {
            return Err(Error::invalid("max_held is 0: a queue that may hold nothing can pull nothing"));
        }
        if self.options.ledger.is_some() && (capabilities.ledger.is_none() || self.storage.ledger().is_none())
        {
            return Err(guard::unsupported("ledger of the ends of tasks").with_backend(self.storage.name()));
        }
        start::start(self.storage, self.options, self.io, self.spawner, capabilities)
    }
}

impl fmt::Debug for QueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder")
            .field("storage", &self.storage)
            .field("io", &self.io)
            .finish_non_exhaustive()
    }
}
