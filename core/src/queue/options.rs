//! What a queue is set to: options per partition, limits, clock, retries.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::caller::RetryPolicy;
use super::guard;
use crate::capabilities::Capabilities;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::ledger::Keep;
use crate::message::MessageData;

/// What becomes of a message that has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expired {
    /// It is removed.
    #[default]
    Remove,
    /// It goes to the partition's dead letters.
    DeadLetter,
}

/// How a partition is used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionOptions {
    /// How long a delivery is held before it must be extended or settled. Default 30 s.
    pub lease: Duration,
    /// How long a delivery is held in all, however often it is extended. Default 12 h, or what the backend allows.
    pub max_hold: Duration,
    /// After how many deliveries a message goes to the dead letters instead of to a handler, so that a message that kills its
    /// consumers cannot do so forever. Default 100, above what a worker retries; `None`: never.
    ///
    /// Where the server counts releases too ([`DeliveryCount::Deliveries`](crate::adapter::DeliveryCount)), a message may come up to twice as
    /// often: what may have been releases by other processes is not held against it once. Where besides headers cannot be replaced
    /// (SQS FIFO), releases by other processes count.
    pub max_deliveries: Option<u32>,
    /// What becomes of expired messages. Default: they are removed.
    pub expired: Expired,
    /// The header whose value is the group of what is pushed here, as a customer's number: said once, where the queue is made. A message with
    /// a group of its own keeps that, and one without the header, or with an empty one, has none. Default: none.
    pub group_by: Option<Arc<str>>,
    /// For how long the ends of tasks of this partition are kept; `None`: as the [queue](crate::QueueBuilder::ledger) says, which is the
    /// default. Without a ledger nothing is kept, whatever this says.
    pub keep: Option<Keep>,
}

impl Default for PartitionOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            max_hold: Duration::from_hours(12),
            max_deliveries: Some(100),
            expired: Expired::Remove,
            group_by: None,
            keep: None,
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

    /// Sets [`group_by`](Self::group_by).
    #[must_use]
    pub fn with_group_by(mut self, header: impl Into<Arc<str>>) -> Self {
        self.group_by = Some(header.into());
        self
    }

    /// Sets [`keep`](Self::keep).
    #[must_use]
    pub fn with_keep(mut self, keep: Keep) -> Self {
        self.keep = Some(keep);
        self
    }

    /// The message in the group that its header says.
    pub(super) fn grouped(&self, message: MessageData) -> MessageData {
        let Some(header) = self.group_by.as_deref().filter(|_| message.options().group.is_none()) else {
            return message;
        };
        let group = message.headers().get(header).filter(|value| !value.is_empty()).cloned();
        match group {
            Some(group) => message.with_group(group),
            None => message,
        }
    }

    /// Whether the backend can keep them.
    pub(super) fn check(&self, capabilities: &Capabilities) -> Result<()> {
        capabilities.lease.check(self.lease)?;
        if self.max_deliveries == Some(0) {
            return Err(Error::invalid(
                "max_deliveries is 0: no message would ever reach a handler; the least is 1",
            ));
        }
        if self.group_by.is_some() && !capabilities.groups {
            return Err(guard::unsupported("groups (group_by)"));
        }
        if self.max_hold < self.lease {
            return Err(Error::invalid("max_hold is shorter than the lease: raise it, or shorten the lease"));
        }
        Ok(())
    }
}

/// A W3C `traceparent` for the message that is being pushed, if there is a trace.
pub type TraceSource = Arc<dyn Fn() -> Option<String> + Send + Sync>;

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
    /// For how long the ends of tasks are kept; `None`: there is no ledger.
    pub(crate) ledger: Option<Keep>,
}

impl Options {
    pub(crate) fn of(&self, partition: &str) -> &PartitionOptions {
        self.partitions.get(partition).unwrap_or(&self.defaults)
    }
}
