//! Dead letters: list and purge. Written once over the storage traits, since a partition's dead letters are a
//! partition.

use std::time::{Duration, SystemTime};

use super::delivery::Delivery;
use super::guard;
use super::handle::Queue;
use super::trickle::Trickle;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{MAX_PAGE, Page};
use crate::ledger::ran_of_dead;
use crate::message::{MessageData, MessageId, header};
use crate::partition::{IntoPartitionId, PartitionId};
use crate::status::QueueMessageStatus;
use crate::storage::SettleOutcome;

/// The lease under which dead letters are inspected. The heartbeat renews it.
const LEASE: Duration = Duration::from_secs(30);

/// The dead letters of one partition.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    pub(super) queue: Queue,
    pub(super) partition: PartitionId,
}

/// A dead letter, as listed by [`DeadLetters::list`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The message, including anyqueue's own headers about its death.
    pub message: MessageData,
    /// Why it died.
    pub reason: Option<String>,
    /// When it died.
    pub died_at: Option<SystemTime>,
    /// Its delivery count when it died.
    pub deliveries: Option<u32>,
    /// The number of attempts until it died, including the last one, as a worker counts them in the header
    /// `task-attempts`. A delivery that was merely settled as `Failed` is counted only in
    /// [`deliveries`](Self::deliveries).
    pub attempts: Option<u32>,
    /// Who ran it last, if that was [reported](crate::TaskReport::worker). A worker does.
    pub worker: Option<String>,
    /// How long its last attempt ran; without a report, how long it was held. `None` if no handler had it when
    /// it died.
    pub ran: Option<Duration>,
}

impl From<MessageData> for DeadLetter {
    fn from(message: MessageData) -> Self {
        let text = |name| message.headers().get(name);
        Self {
            reason: text(header::DEAD_REASON).cloned(),
            died_at: text(header::DEAD_AT).and_then(|at| humantime::parse_rfc3339(at).ok()),
            deliveries: text(header::DEAD_DELIVERIES).and_then(|count| count.parse().ok()),
            attempts: text(header::DEAD_ATTEMPTS).and_then(|count| count.parse().ok()),
            worker: text(header::DEAD_WORKER).cloned(),
            ran: ran_of_dead(message.headers()),
            message,
        }
    }
}

impl Queue {
    /// Returns the dead letters of a partition.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a bad name.
    pub fn dead_letters(&self, partition: impl IntoPartitionId) -> Result<DeadLetters> {
        Ok(DeadLetters { queue: self.clone(), partition: partition.into_partition_id()?.dead_letters() })
    }
}

impl DeadLetters {
    /// Returns the partition that holds these dead letters; it can be pulled from like any other.
    pub fn partition(&self) -> &PartitionId {
        &self.partition
    }

    /// Returns a page of dead letters in the order of their ids, at most [`MAX_PAGE`](crate::MAX_PAGE) per
    /// call. If the backend cannot browse, this leases the first ones for a moment and releases them; further
    /// pages are then `Unsupported`.
    ///
    /// # Errors
    /// The server's error.
    pub async fn list(&self, page: Page<MessageId>) -> Result<Vec<DeadLetter>> {
        if self.queue.capabilities().inspect.browse {
            let listed = self.queue.browse(&self.partition, page).await?;
            return Ok(listed.into_iter().map(|browsed| browsed.message.into()).collect());
        }
        if page.after.is_some() {
            return Err(guard::unsupported("browsing, so no pages of dead letters"));
        }
        if page.limit == 0 {
            return Ok(Vec::new());
        }
        let held = self.pull(page.limit.min(MAX_PAGE)).await?;
        let listed = held.iter().map(|handler| handler.message().clone().into()).collect();
        self.release(held).await;
        Ok(listed)
    }

    /// Deletes all dead letters that nobody holds, and returns how many. Messages that die meanwhile may
    /// remain.
    ///
    /// # Errors
    /// The server's error; what was deleted before stays deleted.
    pub async fn purge(&self) -> Result<u64> {
        if self.queue.capabilities().inspect.purge {
            return self.queue.purge(&self.partition).await;
        }
        let (mut purged, mut trickle) = (0, self.trickle());
        loop {
            let mut held = self.pull(MAX_PAGE).await?;
            if held.is_empty() {
                return Ok(purged);
            }
            let only_trickles = trickle.is_all(held.iter().map(Delivery::message));
            let all = held.iter_mut().map(|handler| (handler, QueueMessageStatus::Processed));
            for outcome in self.queue.settle_many(all).await {
                purged += u64::from(outcome? == SettleOutcome::Settled);
            }
            if only_trickles {
                return Ok(purged);
            }
        }
    }

    /// For a run over all dead letters, which must end even if more messages die meanwhile.
    pub(super) fn trickle(&self) -> Trickle {
        Trickle::new(self.queue.clock().clone(), self.queue.capabilities().limits.pull_batch)
    }

    /// Releases deliveries before the caller goes on, so that its next call finds them. A release that fails
    /// is repeated in the background, as for any delivery that is dropped.
    pub(super) async fn release(&self, mut held: Vec<Delivery>) {
        self.queue.settle_many(held.iter_mut().map(|handler| (handler, QueueMessageStatus::Waiting))).await;
    }

    pub(super) async fn pull(&self, max: usize) -> Result<Vec<Delivery>> {
        let lease = LEASE.clamp(self.queue.capabilities().lease.min, self.queue.capabilities().lease.max);
        // The caller takes one empty result for the end.
        let held = self.queue.pull(&self.partition).max(max).lease(lease).thorough(true).await?;
        if held.is_empty() && self.queue.0.slots.available_permits() == 0 {
            return Err(Error::new(
                ErrorKind::Full,
                "this queue holds max_held deliveries and has no room to look at dead letters: settle some first",
            ));
        }
        Ok(held)
    }
}
