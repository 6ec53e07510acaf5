//! Redrive: putting dead letters back. Each run puts a message back at most once, so that it ends whatever
//! happens to the messages meanwhile.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use super::dead_letters::DeadLetters;
use super::delivery::Delivery;
use super::guard;
use crate::error::Result;
use crate::inspect::MAX_PAGE;
use crate::ledger::generation;
use crate::message::{MessageData, header};
use crate::partition::{IntoPartitionId, PartitionId};
use crate::status::QueueMessageStatus;
use crate::storage::{Action, SettleOutcome, Settlement};

/// Headers that were set when the message died; they are removed when it is put back.
const ABOUT_ITS_DEATH: [&str; 6] = [
    header::DEAD_REASON,
    header::DEAD_AT,
    header::DEAD_DELIVERIES,
    header::DEAD_ATTEMPTS,
    header::DEAD_WORKER,
    header::DEAD_RAN,
];

/// How many dead letters a redrive holds at most until it ends: those that its filter refused, or that died
/// again meanwhile, so that they are not offered to it again. Further ones are postponed for
/// [`REDRIVE_ASIDE`] instead; if the backend cannot postpone, the redrive ends there.
pub const REDRIVE_HOLD: usize = 4096;

/// How long a refused dead letter beyond [`REDRIVE_HOLD`] stays invisible to pulls.
pub const REDRIVE_ASIDE: Duration = Duration::from_mins(1);

/// A run looks at up to this many times as many dead letters as there were when it began: those, the ones of
/// them that die again, and whatever else dies meanwhile. Then it ends, so that consumers that let everything
/// die cannot keep it going forever.
const LOOKS: u64 = 3;

/// The largest number that a run looks at if the backend cannot tell exactly how many there are.
const MOST_LOOKS: u64 = 100_000_000;

type Filter = Box<dyn FnMut(&MessageData) -> bool + Send>;
type Progress = Box<dyn FnMut(Redriven) + Send>;

/// A redrive of dead letters, set up by [`DeadLetters::redrive`]; await it to run it.
///
/// Each message is moved on its own, atomically if the backend can. An interrupted redrive leaves each
/// message in exactly one place (or in both, where [`MoveGuarantee`](crate::adapter::MoveGuarantee) says so)
/// and can be run again.
///
/// A message that dies again during the run stays dead: one run puts a message back only once.
#[must_use = "a redrive does nothing until it is awaited"]
pub struct Redrive {
    dead: DeadLetters,
    to: Result<PartitionId>,
    filter: Option<Filter>,
    progress: Option<Progress>,
    limit: usize,
}

/// What a redrive did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redriven {
    /// The number of messages put back.
    pub moved: u64,
    /// The number of dead letters looked at.
    pub scanned: u64,
    /// Whether there may be more: the run stopped at its limit, had no room to hold more of the messages that
    /// stay dead, or messages kept dying as fast as it put others back.
    pub more: bool,
}

impl Redrive {
    fn of(dead: DeadLetters) -> Self {
        let to = Ok(dead.partition.live());
        Self { dead, to, filter: None, progress: None, limit: usize::MAX }
    }

    /// Puts back only the messages that the filter accepts. The filter also sees anyqueue's own headers, such
    /// as the [reason](crate::header::DEAD_REASON).
    pub fn filter(mut self, filter: impl FnMut(&MessageData) -> bool + Send + 'static) -> Self {
        self.filter = Some(Box::new(filter));
        self
    }

    /// Sets a function that is called after each page with what has been done so far, so that this is known
    /// even if a later page fails.
    pub fn progress(mut self, progress: impl FnMut(Redriven) + Send + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Puts back at most this many messages.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Puts the messages into another partition than the one that they came from.
    pub fn to(mut self, partition: impl IntoPartitionId) -> Self {
        self.to = partition.into_partition_id();
        self
    }

    async fn run(mut self) -> Result<Redriven> {
        let to = self.to.clone()?;
        guard::push_target(&to)?;
        let mark = mark(self.dead.queue.clock().wall());
        let mut trickle = self.dead.trickle();
        let mut looks = self.dead.most_looks().await;
        let mut done = Redriven::default();
        let mut aside = Vec::new();
        loop {
            let left = self.limit.saturating_sub(usize::try_from(done.moved).unwrap_or(usize::MAX));
            if left == 0 || looks == 0 {
                done.more = true;
                break;
            }
            let held = self.dead.pull(left.min(MAX_PAGE)).await?;
            if held.is_empty() {
                break;
            }
            looks = looks.saturating_sub(held.len() as u64);
            let only_trickles = trickle.is_all(held.iter().map(Delivery::message));
            let (chosen, refused) = self.choose(held, &mark, &mut done);
            done.moved += self.dead.put_back(chosen, &to, &mark).await?;
            if let Some(progress) = &mut self.progress {
                progress(done);
            }
            if !self.dead.set_aside(refused, &mut aside).await? || only_trickles {
                done.more = true;
                break;
            }
        }
        self.dead.release(aside).await;
        Ok(done)
    }

    /// Decides which messages to put back and which not: one that this run has already put back has died
    /// again.
    fn choose(
        &mut self,
        held: Vec<Delivery>,
        mark: &str,
        done: &mut Redriven,
    ) -> (Vec<Delivery>, Vec<Delivery>) {
        held.into_iter().partition(|handler| {
            if handler.headers().get(header::REDRIVEN_AT).is_some_and(|run| run == mark) {
                return false;
            }
            done.scanned += 1;
            self.filter.as_mut().is_none_or(|accepts| accepts(handler.message()))
        })
    }
}

impl DeadLetters {
    /// Sets up a redrive, which puts dead letters back; refine it, then await it.
    pub fn redrive(&self) -> Redrive {
        Redrive::of(self.clone())
    }

    async fn most_looks(&self) -> u64 {
        let declared = self.queue.capabilities().inspect;
        if !declared.dead || !declared.staleness.is_zero() {
            return MOST_LOOKS;
        }
        // If the call fails, the run goes on all the same, and meets the error itself if it lasts.
        let there = self.queue.counts(&self.partition).await.ok().and_then(|counts| counts.dead);
        there.map_or(MOST_LOOKS, |there| there.saturating_mul(LOOKS).saturating_add(MAX_PAGE as u64))
    }

    /// Moves the messages, with the run's mark as the time, and returns how many were moved.
    async fn put_back(&self, chosen: Vec<Delivery>, to: &PartitionId, mark: &str) -> Result<u64> {
        let shared = &self.queue.0;
        let settlements: Vec<Settlement> = chosen
            .iter()
            .map(|handler| {
                let mut headers = handler.headers().clone();
                for name in ABOUT_ITS_DEATH {
                    headers.remove(name);
                }
                headers.insert(header::REDRIVEN_AT.to_owned(), mark.to_owned());
                let generation = generation(&headers);
                headers.insert(header::GENERATION.to_owned(), generation.saturating_add(1).to_string());
                let told = shared.put_back(handler.message(), &headers);
                let action = Action::Move { to: to.clone(), headers: Some(headers) };
                shared.deliveries.note(handler.id(), &action);
                Settlement::new(handler.lease().clone(), action).with_end(told)
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

    /// Keeps refused dead letters out of the way. Returns `false` if there is no more room for them.
    async fn set_aside(&self, refused: Vec<Delivery>, aside: &mut Vec<Delivery>) -> Result<bool> {
        let shared = &self.queue.0;
        let hold = REDRIVE_HOLD.min(shared.options.max_held / 2);
        let mut overflow = refused;
        let kept = overflow.len().min(hold.saturating_sub(aside.len()));
        aside.extend(overflow.drain(..kept));
        let Some(delay) = shared.capabilities.postpone_delay else {
            return Ok(overflow.is_empty()); // what does not fit is released, and would only be offered again
        };
        let status = QueueMessageStatus::postponed(delay.max.min(REDRIVE_ASIDE));
        let all = overflow.iter_mut().map(|handler| (handler, status.clone()));
        self.queue.settle_many(all).await.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(true)
    }
}

/// Returns the time as text; its digits below a millisecond are random, and tell apart runs that begin at the
/// same time.
fn mark(now: SystemTime) -> String {
    const MILLI: u64 = 1_000_000;
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let below = u64::from(since.subsec_nanos()) % MILLI;
    let of_run = since
        .saturating_sub(Duration::from_nanos(below))
        .saturating_add(Duration::from_nanos(fastrand::u64(..MILLI)));
    humantime::format_rfc3339_nanos(SystemTime::UNIX_EPOCH + of_run).to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_the_same_moment_differ_and_are_that_moment() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(1_767_225_600_123_456);
        let marks = [mark(now), mark(now)];
        assert_ne!(marks[0], marks[1]);
        for mark in marks {
            assert!(mark.starts_with("2026-01-01T00:00:00.123"), "{mark}");
            assert!(humantime::parse_rfc3339(&mark).is_ok());
        }
    }
}
