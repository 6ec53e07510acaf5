//! Permission to run tasks, where several processes share a limit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::async_trait;
use anyqueue::{CancellationToken, Clock, MessageData, PartitionId};

/// What a worker asks before it pulls and before it starts a task, where processes share limits; set with
/// [`WorkerBuilder::permits`](crate::WorkerBuilder::permits). The crate `anyqueue-control` has one over its control store.
///
/// A task has a permit from before its pull until it is settled or given back. Everything but [`changed`](Self::changed), [`admit`](Self::admit),
/// [`keep`](Self::keep) and [`leave`](Self::leave) is called by the worker's loop and must not wait.
#[async_trait]
pub trait Permits: fmt::Debug + Send + Sync + 'static {
    /// How many more tasks of a partition could be pulled now; `None`: as many as one likes. If there are fewer than `wanted`, more of them should be got, and
    /// [`changed`](Self::changed) return then.
    fn room(&self, partition: &PartitionId, wanted: usize) -> Option<usize>;

    /// Takes permits, as many as there are, at most `wanted`.
    fn take(&self, partition: &PartitionId, wanted: usize) -> usize;

    /// Whether tasks that have permits may start now; so many wait for that. If not, [`changed`](Self::changed) returns once they may.
    fn can_start(&self, partition: &PartitionId, waiting: usize) -> bool;

    /// Tasks with so many permits start. Returns what is cancelled when they have to stop, because their permits cannot be kept; `None`: they must not start,
    /// because something has changed since [`can_start`](Self::can_start).
    fn start(&self, partition: &PartitionId, permits: usize) -> Option<CancellationToken>;

    /// Permits are not needed any longer, of tasks that had started or had not.
    fn give_back(&self, partition: &PartitionId, permits: usize, started: bool);

    /// How long tasks may take to stop whose permits cannot be kept.
    fn grace(&self) -> Duration;

    /// Waits until there may be more room than before. Nothing is missed between two calls.
    async fn changed(&self);

    /// Gets permits for these partitions, and keeps them, as long as it is polled: while the worker of this name runs, and after that as long as one of its
    /// tasks does.
    async fn keep(&self, worker: &str, partitions: &[PartitionId], clock: &Clock);

    /// Gives everything back that is not in use. Called after [`keep`](Self::keep) was dropped. It must end by itself within seconds.
    async fn leave(&self);

    /// Whether there are limits that look at messages, and not only at their partitions. Then [`admit`](Self::admit) is asked about each.
    fn looks_at_messages(&self) -> bool {
        false
    }

    /// Whether this message may start, which has its slots and all other permits. It is asked by the task itself, and may take a call to a server; it must end by
    /// itself within seconds.
    async fn admit(&self, message: &MessageData) -> Admission {
        let _ = message;
        Admission::Open(Vec::new())
    }

    /// Why there are no permits at the moment, if that is a fault: shown by [`Health::permits`](crate::Health::permits).
    fn problem(&self) -> Option<String> {
        None
    }
}

/// Whether a message may start.
#[derive(Debug)]
#[must_use = "dropping tickets gives them back"]
#[non_exhaustive]
pub enum Admission {
    /// It may, and has these tickets until it is settled or given back.
    Open(Vec<Ticket>),
    /// Not yet: it is postponed by so much, uncounted.
    Closed(Duration),
}

/// Permission to run one task, by a limit that looks at messages. Dropping it gives it back.
#[must_use = "dropping it gives it back"]
pub struct Ticket {
    revoked: CancellationToken,
    give_back: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Ticket {
    /// A ticket. `revoked` is cancelled when its task has to stop because it cannot be kept; `give_back` is called when it is dropped, and must not wait.
    pub fn new(revoked: CancellationToken, give_back: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { revoked, give_back: Some(Box::new(give_back)) }
    }

    /// Waits until its task has to stop.
    pub async fn revoked(&self) {
        self.revoked.cancelled().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back();
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("revoked", &self.revoked.is_cancelled()).finish_non_exhaustive()
    }
}

/// Permits of one partition. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<dyn Permits>,
    partition: PartitionId,
    count: usize,
    /// Of tasks that have started: tells when they have to stop.
    revoked: Option<CancellationToken>,
}

impl Permit {
    /// As many as there are; `None`: there are none.
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

    /// So many of them, for what has not started; `None` if they are not enough.
    pub(crate) fn split(&mut self, count: usize) -> Option<Self> {
        self.count = self.count.checked_sub(count)?;
        let (permits, partition) = (self.permits.clone(), self.partition.clone());
        Some(Self { permits, partition, count, revoked: None })
    }

    /// Its tasks start; `None`: they must not.
    pub(crate) fn started(mut self) -> Option<Self> {
        self.revoked = Some(self.permits.start(&self.partition, self.count)?);
        Some(self)
    }

    /// Waits until its tasks have to stop.
    pub(crate) async fn revoked(&self) {
        match &self.revoked {
            Some(revoked) => revoked.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// How long they may take then, at most.
    pub(crate) fn grace(&self) -> Duration {
        self.permits.grace()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count > 0 {
            self.permits.give_back(&self.partition, self.count, self.revoked.is_some());
        }
    }
}
