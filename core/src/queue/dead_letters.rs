//! Dead letters: list, purge, and the steps of putting them back. Written once over the traits: a partition's dead letters are a partition.

use std::time::{Duration, SystemTime};

use super::handler::QueueMessageHandler;
use super::redrive::Redrive;
use super::{Queue, guard};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::MAX_PAGE;
use crate::message::{MessageData, MessageId, header};
use crate::partition::{IntoPartitionId, PartitionId};
use crate::status::QueueMessageStatus;
use crate::storage::{Action, SettleOutcome, Settlement};

/// Dead letters that a redrive's filter has refused, or that died again meanwhile, are held until it ends, up to this many, so that they are not offered to it
/// again. Further ones are postponed for [`REDRIVE_ASIDE`] instead; where the backend cannot postpone, the redrive ends there.
pub const REDRIVE_HOLD: usize = 4096;

/// How long a refused dead letter beyond [`REDRIVE_HOLD`] stays invisible to pulls.
pub const REDRIVE_ASIDE: Duration = Duration::from_mins(1);

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
}

impl From<MessageData> for DeadLetter {
    fn from(message: MessageData) -> Self {
        let text = |name| message.headers().get(name);
        Self {
            reason: text(header::DEAD_REASON).cloned(),
            died_at: text(header::DEAD_AT).and_then(|at| humantime::parse_rfc3339(at).ok()),
            deliveries: text(header::DEAD_DELIVERIES).and_then(|count| count.parse().ok()),
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

    /// A page of them in the order of their ids, after `after`, at most `limit` (and at most [`MAX_PAGE`](crate::MAX_PAGE)).
    /// Where the backend cannot browse, the first `limit` are leased for a moment and given back, and `after` is `Unsupported`.
    ///
    /// # Errors
    /// The server's.
    pub async fn list(&self, after: Option<MessageId>, limit: usize) -> Result<Vec<DeadLetter>> {
        if self.queue.capabilities().inspect.browse {
            let page = self.queue.browse(&self.partition, after, limit).await?;
            return Ok(page.into_iter().map(|browsed| browsed.message.into()).collect());
        }
        if after.is_some() {
            return Err(guard::unsupported("browsing, so no pages of dead letters"));
        }
        let held = self.pull(limit.clamp(1, MAX_PAGE)).await?;
        let listed = held.iter().map(|handler| handler.message().clone().into()).collect();
        self.give_back(held).await;
        Ok(listed)
    }

    /// Puts dead letters back; refine it, then await it.
    pub fn redrive(&self) -> Redrive {
        Redrive::of(self.clone())
    }

    /// Deletes all of them that nobody holds, and answers how many.
    ///
    /// # Errors
    /// The server's; what was deleted before stays deleted.
    pub async fn purge(&self) -> Result<u64> {
        if self.queue.capabilities().inspect.purge {
            return self.queue.purge(&self.partition).await;
        }
        let mut purged = 0;
        loop {
            let mut held = self.pull(MAX_PAGE).await?;
            if held.is_empty() {
                return Ok(purged);
            }
            let all = held.iter_mut().map(|handler| (handler, QueueMessageStatus::Processed));
            for outcome in self.queue.settle_many(all).await {
                purged += u64::from(outcome? == SettleOutcome::Settled);
            }
        }
    }

    /// Moves them, with the run's mark as the time, and answers how many.
    pub(super) async fn put_back(
        &self,
        chosen: Vec<QueueMessageHandler>,
        to: &PartitionId,
        mark: &str,
    ) -> Result<u64> {
        let shared = &self.queue.0;
        let settlements: Vec<Settlement> = chosen
            .iter()
            .map(|handler| {
                let mut headers = handler.headers().clone();
                for name in [header::DEAD_REASON, header::DEAD_AT, header::DEAD_DELIVERIES] {
                    headers.remove(name);
                }
                headers.insert(header::REDRIVEN_AT.to_owned(), mark.to_owned());
                let action = Action::Move { to: to.clone(), headers: Some(headers) };
                shared.deliveries.note(handler.id(), &action);
                Settlement { lease: handler.lease().clone(), action }
            })
            .collect();
        let mut moved = 0;
        let mut failed = None;
        let room = shared.capabilities.limits.settle_batch.max(1);
        let mut handlers = chosen.into_iter();
        for part in settlements.chunks(room) {
            for (answer, handler) in
                shared.settle_apart(part.to_vec()).await.into_iter().zip(handlers.by_ref())
            {
                match answer {
                    Ok(outcome) => {
                        moved += u64::from(outcome == SettleOutcome::Settled);
                        handler.conclude(outcome);
                    }
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(moved), Err)
    }

    /// Keeps refused dead letters out of the way. `false`: there is no more room for them.
    pub(super) async fn set_aside(
        &self,
        refused: Vec<QueueMessageHandler>,
        aside: &mut Vec<QueueMessageHandler>,
    ) -> Result<bool> {
        let shared = &self.queue.0;
        let hold = REDRIVE_HOLD.min(shared.options.max_held / 2);
        let mut overflow = refused;
        let kept = overflow.len().min(hold.saturating_sub(aside.len()));
        aside.extend(overflow.drain(..kept));
        let Some(delay) = shared.capabilities.postpone_delay else {
            return Ok(overflow.is_empty()); // what does not fit is given back, and would only be offered again
        };
        let status = QueueMessageStatus::postponed(delay.max.min(REDRIVE_ASIDE));
        let all = overflow.iter_mut().map(|handler| (handler, status.clone()));
        self.queue.settle_many(all).await.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(true)
    }

    /// Releases them before the caller goes on, so that its next call finds them. What fails is released again in the
    /// background, as any delivery that is dropped.
    pub(super) async fn give_back(&self, mut held: Vec<QueueMessageHandler>) {
        self.queue.settle_many(held.iter_mut().map(|handler| (handler, QueueMessageStatus::Waiting))).await;
    }

    pub(super) async fn pull(&self, max: usize) -> Result<Vec<QueueMessageHandler>> {
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
