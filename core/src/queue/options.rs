//! The settings of a queue: options per partition, limits, clock, retries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::caller::RetryPolicy;
use super::guard;
use crate::capabilities::Capabilities;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::ledger::Keep;
use crate::message::MessageData;

/// How many kinds of task can have their own [`PartitionOptions::keep_of_kinds`].
pub const MAX_KEPT_KINDS: usize = 1000;

/// What happens to a message that has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expired {
    /// The message is removed.
    #[default]
    Remove,
    /// The message goes to the partition's dead letters.
    DeadLetter,
}

/// The options of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionOptions {
    /// How long a lease lasts unless it is extended. Default: 30 s.
    pub lease: Duration,
    /// How long a delivery may be held in all, however often its lease is extended. Default: 12 h, or the
    /// backend's limit if that is lower.
    pub max_hold: Duration,
    /// How many times a message may be delivered. After that it goes to the dead letters instead of to a
    /// handler, so that a message that kills its consumers cannot do so forever. `None`: no limit. Default:
    /// 100, which is more than a worker retries.
    ///
    /// Where the server also counts releases ([`DeliveryCount::Deliveries`](crate::adapter::DeliveryCount)),
    /// a message may be delivered up to twice as often: deliveries that may have been releases by other
    /// processes are discounted once. Where headers cannot be replaced either (SQS FIFO), releases by other
    /// processes count as deliveries.
    pub max_deliveries: Option<u32>,
    /// What happens to expired messages. Default: they are removed.
    pub expired: Expired,
    /// The name of a header whose value becomes the group of each message pushed here, such as a header with
    /// the customer number. A message that already has a group keeps it; a message without this header, or
    /// with an empty one, gets no group. Default: none.
    pub group_by: Option<Arc<str>>,
    /// How long the ends of tasks of this partition are kept. `None`, the default, uses the [queue's
    /// setting](crate::QueueBuilder::ledger). Without a ledger nothing is kept, whatever is set here.
    pub keep: Option<Keep>,
    /// How long the ends of tasks of some kinds are kept; for all other kinds [`keep`](Self::keep) says it.
    /// The kind is the value of the header [`task-kind`](crate::header::TASK_KIND). A task's own headers take
    /// precedence. At most [`MAX_KEPT_KINDS`]. Default: none.
    pub keep_of_kinds: BTreeMap<Arc<str>, Keep>,
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
            keep_of_kinds: BTreeMap::new(),
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

    /// Sets how long the ends of tasks of this kind are kept: see [`keep_of_kinds`](Self::keep_of_kinds).
    #[must_use]
    pub fn with_keep_of_kind(mut self, kind: impl Into<Arc<str>>, keep: Keep) -> Self {
        self.keep_of_kinds.insert(kind.into(), keep);
        self
    }

    /// Returns how long the ends of tasks of this kind are kept, if these options say so.
    pub(super) fn keep_of(&self, kind: Option<&str>) -> Option<Keep> {
        kind.and_then(|kind| self.keep_of_kinds.get(kind)).copied().or(self.keep)
    }

    /// Puts the message into the group that its header names.
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

    /// Checks that the backend supports these options.
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
        if self.keep_of_kinds.len() > MAX_KEPT_KINDS {
            return Err(Error::invalid(format!(
                "keep_of_kinds has {} kinds: at most {MAX_KEPT_KINDS}; say it in the headers of the tasks instead",
                self.keep_of_kinds.len()
            )));
        }
        if self.max_hold < self.lease {
            return Err(Error::invalid("max_hold is shorter than the lease: raise it, or shorten the lease"));
        }
        Ok(())
    }
}

/// A function that returns the W3C `traceparent` of the message that is being pushed, if there is a current
/// trace.
pub type TraceSource = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// What the builder fixes for the lifetime of the queue.
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
    /// How long the ends of tasks are kept; `None`: there is no ledger.
    pub(crate) ledger: Option<Keep>,
}

impl Options {
    pub(crate) fn of(&self, partition: &str) -> &PartitionOptions {
        self.partitions.get(partition).unwrap_or(&self.defaults)
    }
}
