//! Permission to run tasks, for limits that several processes share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::async_trait;
use anyqueue::{CancellationToken, Clock, MessageData, PartitionId};

/// What a worker asks before it pulls tasks and before it starts them, if processes share limits. Set it with
/// [`WorkerBuilder::permits`](crate::WorkerBuilder::permits). The crate `anyqueue-control` has an
/// implementation over its control store.
///
/// A task holds a permit from before its pull until it is settled or released; a task that came with the
/// settlement of another one ([`passes_on`](Self::passes_on)), from before its start. All methods except
/// [`changed`](Self::changed), [`admit`](Self::admit), [`keep`](Self::keep) and [`leave`](Self::leave) are
/// called by the worker's loop and must not wait.
#[async_trait]
pub trait Permits: fmt::Debug + Send + Sync + 'static {
    /// Returns how many more tasks of a partition could be pulled now; `None` if there is no limit. If that
    /// is fewer than `wanted`, the implementation should get more permits, and let [`changed`](Self::changed)
    /// return when it has.
    fn room(&self, partition: &PartitionId, wanted: usize) -> Option<usize>;

    /// Returns whether settlements may bring the next tasks of a partition, in one call: whether a permit
    /// that a task releases can be expected to be there for the task that its settlement brings. That one
    /// takes a permit before it starts, as every task does. If there is none by then, it waits for a tenth of
    /// a second at most, and is released, uncounted. The default: only if there is no limit.
    fn passes_on(&self, partition: &PartitionId) -> bool {
        self.room(partition, 0).is_none()
    }

    /// Takes as many permits as there are, up to `wanted`, and returns how many it took.
    fn take(&self, partition: &PartitionId, wanted: usize) -> usize;

    /// Returns whether tasks that have permits may start now; `waiting` tasks are waiting for that. If not,
    /// [`changed`](Self::changed) returns once they may.
    fn can_start(&self, partition: &PartitionId, waiting: usize) -> bool;

    /// Notes that tasks with this many permits start. Returns a token that is cancelled when they have to
    /// stop because their permits cannot be kept; `None` if they must not start after all, because something
    /// has changed since [`can_start`](Self::can_start).
    fn start(&self, partition: &PartitionId, permits: usize) -> Option<Arc<CancellationToken>>;

    /// Releases permits that are no longer needed; `started` says whether their tasks had started.
    fn release(&self, partition: &PartitionId, permits: usize, started: bool);

    /// How long tasks may take to stop once their permits cannot be kept.
    fn grace(&self) -> Duration;

    /// Waits until there may be more room than before. A change between two calls is not missed.
    async fn changed(&self);

    /// Gets permits for these partitions and keeps them for as long as it is polled: while the worker of this
    /// name runs, and afterwards as long as one of its tasks does.
    async fn keep(&self, worker: &str, partitions: &[PartitionId], clock: &Clock);

    /// Releases everything that is not in use. Called after [`keep`](Self::keep) was dropped. It must end
    /// by itself within seconds.
    async fn leave(&self);

    /// Returns whether some limits depend on the message, not only on its partition. If so,
    /// [`admit`](Self::admit) is called for each message.
    fn looks_at_messages(&self) -> bool {
        false
    }

    /// Returns whether this message may start, once it has its slots and all other permits. The task itself
    /// calls this. It may call a server, but must end by itself within seconds.
    async fn admit(&self, message: &MessageData) -> Admission {
        let _ = message;
        Admission::Open(Vec::new())
    }

    /// Why there are no permits at the moment, if that is a fault: returned in
    /// [`Health::permits`](crate::Health::permits).
    fn problem(&self) -> Option<String> {
        None
    }
}

/// Whether a message may start.
#[derive(Debug)]
#[must_use = "dropping tickets releases them"]
#[non_exhaustive]
pub enum Admission {
    /// It may start, and holds these tickets until it is settled or released.
    Open(Vec<Ticket>),
    /// Not yet: it is postponed by this delay, uncounted.
    Closed(Duration),
}

/// Permission to run one task, from a limit that depends on the message. Dropping the ticket releases it.
#[must_use = "dropping it releases it"]
pub struct Ticket {
    revoked: CancellationToken,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Ticket {
    /// Makes a ticket. `revoked` is cancelled when the task has to stop because the ticket cannot be kept.
    /// `release` is called when the ticket is dropped, and must not wait.
    pub fn new(revoked: CancellationToken, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { revoked, release: Some(Box::new(release)) }
    }

    /// Waits until the task has to stop.
    pub async fn revoked(&self) {
        self.revoked.cancelled().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("revoked", &self.revoked.is_cancelled()).finish_non_exhaustive()
    }
}

/// Permits of one partition. Dropping them releases them.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<dyn Permits>,
    partition: PartitionId,
    count: usize,
    /// For tasks that have started: cancelled when they have to stop.
    revoked: Option<Arc<CancellationToken>>,
}

impl Permit {
    /// Takes as many permits as there are, up to `wanted`; `None` if there are none.
    pub(crate) fn take(permits: &Arc<dyn Permits>, partition: &PartitionId, wanted: usize) -> Option<Self> {
        let count = permits.take(partition, wanted);
        (count > 0).then(|| Self {
            permits: permits.clone(),
            partition: partition.clone(),
            count,
            revoked: None,
        })
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Splits off `count` permits, for tasks that have not started; `None` if there are not enough.
    pub(crate) fn split(&mut self, count: usize) -> Option<Self> {
        self.count = self.count.checked_sub(count)?;
        let (permits, partition) = (self.permits.clone(), self.partition.clone());
        Some(Self { permits, partition, count, revoked: None })
    }

    /// Gives back permits of one worker, those of one partition together.
    pub(crate) fn release_all(all: impl Iterator<Item = Self>) {
        let mut joined: Vec<Self> = Vec::new();
        for mut permit in all {
            // The others are released by being dropped.
            if let Some(first) = joined.iter_mut().find(|first| first.is_like(&permit)) {
                first.count += std::mem::take(&mut permit.count);
            } else {
                joined.push(permit);
            }
        }
    }

    /// Whether the other permits are of the same partition, for tasks that have started as well or have not.
    fn is_like(&self, other: &Self) -> bool {
        self.partition == other.partition && self.revoked.is_some() == other.revoked.is_some()
    }

    /// Notes that the tasks start; `None` if they must not.
    pub(crate) fn started(mut self) -> Option<Self> {
        self.revoked = Some(self.permits.start(&self.partition, self.count)?);
        Some(self)
    }

    /// Waits until the tasks have to stop.
    pub(crate) async fn revoked(&self) {
        match &self.revoked {
            Some(revoked) => revoked.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// How long the tasks may then take, at most.
    pub(crate) fn grace(&self) -> Duration {
        self.permits.grace()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count > 0 {
            self.permits.release(&self.partition, self.count, self.revoked.is_some());
        }
    }
}
