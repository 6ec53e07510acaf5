//! Dead letters: list, put back, purge. Written once over the traits: a partition's dead letters are a partition.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use super::handler::QueueMessageHandler;
use super::{Queue, guard};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::MAX_PAGE;
use crate::message::{MessageData, MessageId, header};
use crate::partition::{IntoPartitionId, PartitionId};
use crate::status::QueueMessageStatus;
use crate::storage::{Action, SettleOutcome, Settlement};

/// Dead letters that a redrive's filter has refused are held until it ends, up to this many, so that they are not offered to it
/// again. Further ones are postponed for [`REDRIVE_ASIDE`] instead; where the backend cannot postpone, the redrive ends there.
pub const REDRIVE_HOLD: usize = 4096;

/// How long a refused dead letter beyond [`REDRIVE_HOLD`] stays invisible to pulls.
pub const REDRIVE_ASIDE: Duration = Duration::from_mins(1);

/// The lease under which dead letters are looked at. The heartbeat renews it.
const LEASE: Duration = Duration::from_secs(30);

/// The dead letters of one partition.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    queue: Queue,
    partition: PartitionId,
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
        Redrive { dead: self.clone(), to: Ok(self.partition.live()), filter: None, limit: usize::MAX }
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

    async fn put_back(&self, chosen: Vec<QueueMessageHandler>, to: &PartitionId) -> Result<u64> {
        let shared = &self.queue.0;
        let now = humantime::format_rfc3339_millis(shared.caller.clock.wall()).to_string();
        let settlements: Vec<Settlement> = chosen
            .iter()
            .map(|handler| {
                let mut headers = handler.headers().clone();
                for name in [header::DEAD_REASON, header::DEAD_AT, header::DEAD_DELIVERIES] {
                    headers.remove(name);
                }
                headers.insert(header::REDRIVEN_AT.to_owned(), now.clone());
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
    async fn set_aside(
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
    async fn give_back(&self, mut held: Vec<QueueMessageHandler>) {
        self.queue.settle_many(held.iter_mut().map(|handler| (handler, QueueMessageStatus::Waiting))).await;
    }

    async fn pull(&self, max: usize) -> Result<Vec<QueueMessageHandler>> {
        let lease = LEASE.clamp(self.queue.capabilities().lease.min, self.queue.capabilities().lease.max);
        let held = self.queue.pull(&self.partition).max(max).lease(lease).await?;
        if held.is_empty() && self.queue.0.slots.available_permits() == 0 {
            return Err(Error::new(
                ErrorKind::Full,
                "this queue holds max_held deliveries and has no room to look at dead letters: settle some first",
            ));
        }
        Ok(held)
    }
}

type Filter = Box<dyn FnMut(&MessageData) -> bool + Send>;

/// A redrive being set up by [`DeadLetters::redrive`].
///
/// Each message is moved on its own, atomically where the backend can; one that is interrupted leaves each message in
/// exactly one place (or, where [`MoveGuarantee`](crate::MoveGuarantee) says so, in both), and can be run again.
#[must_use = "a redrive does nothing until it is awaited"]
pub struct Redrive {
    dead: DeadLetters,
    to: Result<PartitionId>,
    filter: Option<Filter>,
    limit: usize,
}

/// What a redrive did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redriven {
    /// Messages put back.
    pub moved: u64,
    /// Dead letters looked at.
    pub scanned: u64,
    /// It stopped at its limit, or had no room to hold more of what the filter refused; there may be more.
    pub more: bool,
}

impl Redrive {
    /// Only those that the filter accepts. It sees anyqueue's own headers too, such as the
    /// [reason](crate::header::DEAD_REASON).
    pub fn filter(mut self, filter: impl FnMut(&MessageData) -> bool + Send + 'static) -> Self {
        self.filter = Some(Box::new(filter));
        self
    }

    /// At most this many.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Into another partition than the one they came from.
    pub fn to(mut self, partition: impl IntoPartitionId) -> Self {
        self.to = partition.into_partition_id();
        self
    }

    async fn run(mut self) -> Result<Redriven> {
        let to = self.to.clone()?;
        guard::push_target(&to)?;
        let mut done = Redriven::default();
        let mut aside = Vec::new();
        loop {
            let left = self.limit.saturating_sub(usize::try_from(done.moved).unwrap_or(usize::MAX));
            if left == 0 {
                done.more = true;
                break;
            }
            let held = self.dead.pull(left.min(MAX_PAGE)).await?;
            if held.is_empty() {
                break;
            }
            done.scanned += held.len() as u64;
            let (chosen, refused): (Vec<_>, Vec<_>) = held
                .into_iter()
                .partition(|handler| self.filter.as_mut().is_none_or(|accepts| accepts(handler.message())));
            done.moved += self.dead.put_back(chosen, &to).await?;
            if !self.dead.set_aside(refused, &mut aside).await? {
                done.more = true;
                break;
            }
        }
        self.dead.give_back(aside).await;
        Ok(done)
    }
}

impl IntoFuture for Redrive {
    type Output = Result<Redriven>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Redrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redrive")
            .field("dead", &self.dead)
            .field("to", &self.to)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
