//! How a queue is set up: options per partition, limits, clock, retries.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::caller::RetryPolicy;
use super::{IntoStorage, Queue};
use crate::capabilities::Capabilities;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::exec::Spawner;
use crate::io::IoThread;
use crate::partition::IntoPartitionId;
use crate::storage::Storage;

/// What becomes of a message that has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expired {
    /// It is removed.
    #[default]
    Remove,
    /// It goes to the partition's dead letters.
    DeadLetter,
}

/// How a partition is consumed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionOptions {
    /// How long a delivery is held before it must be extended or settled. Default 30 s.
    pub lease: Duration,
    /// How long a delivery is held in all, however often it is extended. Default 12 h, or what the backend allows.
    pub max_hold: Duration,
    /// After how many deliveries a message goes to the dead letters instead of to a handler, so that a message that kills its
    /// consumers cannot do so for ever. Default 100, above what a worker retries; `None`: never.
    ///
    /// Where the server counts releases too ([`DeliveryCount::Deliveries`](crate::DeliveryCount)), a message may come up to twice as
    /// often: what may have been releases by other processes is not held against it once. Where besides headers cannot be replaced
    /// (SQS FIFO), releases by other processes count.
    pub max_deliveries: Option<u32>,
    /// What becomes of expired messages. Default: they are removed.
    pub expired: Expired,
}

impl Default for PartitionOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            max_hold: Duration::from_hours(12),
            max_deliveries: Some(100),
            expired: Expired::Remove,
        }
    }
}

impl PartitionOptions {
    /// Sets [`lease`](Self::lease).
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets [`max_hold`](Self::max_hold).
    #[must_use]
    pub fn with_max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = max_hold;
        self
    }

    /// Sets [`max_deliveries`](Self::max_deliveries).
    #[must_use]
    pub fn with_max_deliveries(mut self, max_deliveries: Option<u32>) -> Self {
        self.max_deliveries = max_deliveries;
        self
    }

    /// Sets [`expired`](Self::expired).
    #[must_use]
    pub fn with_expired(mut self, expired: Expired) -> Self {
        self.expired = expired;
        self
    }
}

/// A W3C `traceparent` for the message that is being pushed, if there is a trace.
pub type TraceSource = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Sets up a [`Queue`].
#[must_use]
pub struct QueueBuilder {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: Options,
    pub(super) io: Option<IoThread>,
    pub(super) spawner: Option<Spawner>,
    partitions: Vec<(Result<String>, PartitionOptions)>,
}

/// What the builder settles once and for all.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) defaults: PartitionOptions,
    pub(crate) partitions: HashMap<String, PartitionOptions>,
    pub(crate) clock: Clock,
    pub(crate) retry: RetryPolicy,
    pub(crate) call_timeout: Duration,
    pub(crate) max_held: usize,
    pub(crate) push_buffer_bytes: usize,
    pub(crate) metric_partitions: usize,
    pub(crate) trace: Option<TraceSource>,
}

impl Options {
    pub(crate) fn of(&self, partition: &str) -> &PartitionOptions {
        self.partitions.get(partition).unwrap_or(&self.defaults)
    }
}

impl QueueBuilder {
    pub(super) fn new(storage: impl IntoStorage) -> Self {
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
            },
            io: None,
            spawner: None,
            partitions: Vec::new(),
        }
    }

    /// Options of every partition that has none of its own.
    pub fn defaults(mut self, options: PartitionOptions) -> Self {
        self.options.defaults = options;
        self
    }

    /// Options of one partition and its dead letters.
    pub fn partition(mut self, partition: impl IntoPartitionId, options: PartitionOptions) -> Self {
        self.partitions.push((partition.into_partition_id().map(|p| p.name().to_owned()), options));
        self
    }

    /// Another clock: for tests, see [`ManualClock`](crate::ManualClock). For tokio's paused clock see [`Clock::system`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.options.clock = clock;
        self
    }

    /// Makes calls and the heartbeat run on this thread instead of on the caller's runtime.
    pub fn io(mut self, io: &IoThread) -> Self {
        self.io = Some(io.clone());
        self
    }

    /// Makes the queue's tasks run by this, instead of in a runtime. Its clock must then be one that is turned. For tests that decide
    /// themselves what runs next; no part of what is promised to users.
    #[doc(hidden)]
    pub fn spawner(mut self, spawner: Spawner) -> Self {
        self.spawner = Some(spawner);
        self
    }

    /// How often, and how soon, a call that failed safely is repeated.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.options.retry = retry;
        self
    }

    /// The longest that one call to the backend may take, long polls apart. Default 30 s.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.options.call_timeout = timeout;
        self
    }

    /// The most deliveries this queue holds at once, over all partitions; pulls wait for room. Default 16384.
    pub fn max_held(mut self, max_held: usize) -> Self {
        self.options.max_held = max_held;
        self
    }

    /// The most bytes of messages that wait in [`push`](Queue::push) at once; further pushes wait for room. Default 64 MiB.
    pub fn push_buffer_bytes(mut self, bytes: usize) -> Self {
        self.options.push_buffer_bytes = bytes;
        self
    }

    /// The most partitions that metrics tell apart, by the label `partition`; further ones are counted together, as `(other)`.
    /// Default 1000. With 0 no name of a partition appears in metrics.
    pub fn metric_partitions(mut self, most: usize) -> Self {
        self.options.metric_partitions = most;
        self
    }

    /// Where the `traceparent` header of pushed messages comes from, unless they bear one.
    pub fn trace(mut self, source: TraceSource) -> Self {
        self.options.trace = Some(source);
        self
    }

    /// Makes the queue. Does no I/O; call [`init`](Queue::init) once where the storage is not yet set up.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) outside a tokio runtime without an [`IoThread`], for a bad partition name, and
    /// for options the backend cannot keep.
    pub fn build(mut self) -> Result<Queue> {
        let capabilities = self.storage.capabilities().clone();
        for (name, options) in std::mem::take(&mut self.partitions) {
            check_partition(&options, &capabilities)?;
            self.options.partitions.insert(name?, options);
        }
        check_partition(&self.options.defaults, &capabilities)?;
        if self.options.max_held == 0 {
            return Err(Error::invalid("max_held is 0: a queue that may hold nothing can pull nothing"));
        }
        Queue::from_builder(self, capabilities)
    }
}

fn check_partition(options: &PartitionOptions, capabilities: &Capabilities) -> Result<()> {
    super::guard::lease(options.lease, capabilities)?;
    if options.max_deliveries == Some(0) {
        return Err(Error::invalid(
            "max_deliveries is 0: no message would ever reach a handler; the least is 1",
        ));
    }
    if options.max_hold < options.lease {
        return Err(Error::invalid("max_hold is shorter than the lease: raise it, or shorten the lease"));
    }
    Ok(())
}

impl fmt::Debug for QueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder")
            .field("storage", &self.storage)
            .field("io", &self.io)
            .finish_non_exhaustive()
    }
}
