//! What a batch handler knows about its batch.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Clock, PartitionId, Queue};
use tokio_util::sync::CancellationToken;

use crate::stop::{CancelReason, Stop};

/// What a batch handler knows about its batch, and how it learns that it should stop. Cheap to clone.
///
/// The handler should stop when the batch runs longer than it may, when the worker shuts down, and when every
/// task has been lost or cancelled. If only some tasks have been lost or cancelled, only their own
/// [`TaskContext`](crate::TaskContext)s say so.
#[derive(Clone)]
pub struct BatchContext(Arc<Inner>);

struct Inner {
    queue: Queue,
    partition: PartitionId,
    kind: String,
    deadline: Option<Instant>,
    stop: Stop,
}

impl BatchContext {
    pub(crate) fn new(queue: &Queue, partition: &PartitionId, kind: &str, deadline: Option<Instant>) -> Self {
        Self(Arc::new(Inner {
            queue: queue.clone(),
            partition: partition.clone(),
            kind: kind.to_owned(),
            deadline,
            stop: Stop::default(),
        }))
    }

    /// The kind of all tasks.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// The partition that the tasks were pulled from.
    pub fn partition(&self) -> &PartitionId {
        &self.0.partition
    }

    /// The queue, for instance to push further tasks.
    pub fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// The clock of the worker, which a test may control.
    pub fn clock(&self) -> &Clock {
        self.0.queue.clock()
    }

    /// How much longer the batch may take, by the shortest limit of its tasks; `None` without a limit.
    pub fn remaining(&self) -> Option<Duration> {
        self.0.deadline.map(|deadline| deadline.saturating_duration_since(self.clock().now()))
    }

    /// Why the handler should stop, if it should. The first reason is kept.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.0.stop.reason()
    }

    /// Waits until the handler should stop, and returns why.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) -> CancelReason {
        self.0.stop.asked().await
    }

    /// A token that is cancelled when the handler should stop, for code that takes one. Cancelling it
    /// yourself has no effect on the batch.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.0.stop.token().child_token()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    pub(crate) fn cancel(&self, reason: CancelReason) {
        self.0.stop.ask(reason, self.clock());
    }

    pub(crate) fn asked_at(&self) -> Option<Instant> {
        self.0.stop.asked_at()
    }
}

impl fmt::Debug for BatchContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchContext")
            .field("partition", &self.0.partition)
            .field("kind", &self.0.kind)
            .field("cancel_reason", &self.cancel_reason())
            .finish_non_exhaustive()
    }
}
