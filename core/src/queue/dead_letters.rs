//! Dead letters: list and purge. Written once over the traits: a partition's dead letters are a partition.

use std::time::{Duration, SystemTime};

use super::delivery::Delivery;
use super::guard;
use super::handle::Queue;
use super::trickle::Trickle;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{MAX_PAGE, Page};
use crate::message::{MessageData, MessageId, header};
use crate::partition::{IntoPartitionId, PartitionId};
use crate::status::QueueMessageStatus;
use crate::storage::SettleOutcome;

/// The lease under which dead letters are looked at. The heartbeat renews it.
const LEASE: Duration = Duration::from_secs(30);

/// The dead letters of one partition.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    pub(super) queue: Queue,
    pub(super) partition: PartitionId,
}

/// One dead letter as [`DeadLetters::list`] shows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The message, with anyqueue's own headers about its death.
    pub message: MessageData,
    /// Why it died.
    pub reason: Option<String>,
    /// When it died.
    pub died_at: Option<SystemTime>,
    /// Its delivery count when it died.
    pub deliveries: Option<u32>,
    /// Attempts until it died, the last one included, as a worker counts them in the header `task-attempts`. One that was merely settled
    /// as `Failed` is counted in [`deliveries`](Self::deliveries) alone.
    pub attempts: Option<u32>,
}

impl From<MessageData> for DeadLetter {
    fn from(message: MessageData) -> Self {
        let text = |name| message.headers().get(name);
        Self {
            reason: text(header::DEAD_REASON).cloned(),
            died_at: text(header::DEAD_AT).and_then(|at| humantime::parse_rfc3339(at).ok()),
            deliveries: text(header::DEAD_DELIVERIES).and_then(|count| count.parse().ok()),
            attempts: text(header::DEAD_ATTEMPTS).and_then(|count| count.parse().ok()),
            message,
        }
    }
}

impl Queue {
    /// The dead letters of a partition.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a bad name.
    pub fn dead_letters(&self, partition: impl IntoPartitionId) -> Result<DeadLetters> {
        Ok(DeadLetters { queue: self.clone(), partition: partition.into_partition_id()?.dead_letters() })
    }
}

impl DeadLetters {
    /// The partition that they are: it can be pulled like any.
    pub fn partition(&self) -> &PartitionId {
        &self.partition
    }

    /// A page of them in the order of their ids, at most [`MAX_PAGE`](crate::MAX_PAGE) at once. Where the backend cannot browse, the first
    /// ones are leased for a moment and released, and any further page is `Unsupported`.
    ///
    /// # Errors
    /// The server's.
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
        self.give_back(held).await;
        Ok(listed)
    }

    /// Deletes all of them that nobody holds, and returns how many. Of those that die meanwhile some may stay.
    ///
    /// # Errors
    /// The server's; what was deleted before stays deleted.
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

    /// For a run over all of them, which is to end though more die meanwhile.
    pub(super) fn trickle(&self) -> Trickle {
        Trickle::new(self.queue.clock().clone(), self.queue.capabilities().limits.pull_batch)
    }

    /// Releases them before the caller goes on, so that its next call finds them. What fails is released again in the
    /// background, as any delivery that is dropped.
    pub(super) async fn give_back(&self, mut held: Vec<Delivery>) {
        self.queue.settle_many(held.iter_mut().map(|handler| (handler, QueueMessageStatus::Waiting))).await;
    }

    pub(super) async fn pull(&self, max: usize) -> Result<Vec<Delivery>> {
        let lease = LEASE.clamp(self.queue.capabilities().lease.min, self.queue.capabilities().lease.max);
        // One empty answer is taken for the end.
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
