//! One client of the backend, as cases use it: short names for what cases do all the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, Extension, InspectQueueStorage, Limits, PauseQueueStorage, PullRequest, RawDelivery, Settlement,
    Storage, Strictness,
};
use anyqueue::{
    Error, ExtendOutcome, MessageData, MessageId, PartitionId, PushOutcome, Result, SettleOutcome,
};
use futures_util::future::join_all;

use super::failure::fail;
use super::timing::Timing;
use crate::clause::Clause;
use crate::history::History;
use crate::verdict::{CaseResult, Stop};

/// The shortest time between two checks for something that must not come.
const NEXT_LOOK: Duration = Duration::from_millis(20);

/// One client of the backend. Every call is recorded, and an answer that no correct backend gives ends the
/// case.
///
/// Cheap to clone; clones are the same client.
#[derive(Clone, Debug)]
pub struct Client {
    storage: Arc<dyn Storage>,
    name: Arc<str>,
    history: Arc<History>,
    timing: Timing,
}

impl Client {
    pub(crate) fn new(storage: Arc<dyn Storage>, name: Arc<str>, history: Arc<History>) -> Self {
        let timing = Timing::of(storage.capabilities());
        Self { storage, name, history, timing }
    }

    /// Returns the client's name: `A` for a case's first client, then `B`, ….
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the storage, for calls whose answers the case judges itself, and for a `Queue`. Its calls are
    /// recorded as well.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Returns the inspection trait. Only for cases that need it.
    ///
    /// # Errors
    /// Fails the case if a capability is declared but inspection is not implemented.
    pub fn inspect(&self) -> CaseResult<&dyn InspectQueueStorage> {
        let missing =
            || self.fail(Clause::Inspection, &[], "inspection, as declared", "`inspect()` returns None");
        self.storage.inspect().ok_or_else(missing)
    }

    /// Returns the pausing trait. Only for cases that need it.
    ///
    /// # Errors
    /// Fails the case if pausing is declared but not implemented.
    pub fn pause(&self) -> CaseResult<&dyn PauseQueueStorage> {
        let missing = || self.fail(Clause::Pause, &[], "pausing, as declared", "`pause()` returns None");
        self.storage.pause().ok_or_else(missing)
    }

    /// Pushes in batches of the declared size; each message must be stored under its id.
    ///
    /// # Errors
    /// Fails the case on any other answer.
    pub async fn push(
        &self,
        partition: &PartitionId,
        messages: &[MessageData],
    ) -> CaseResult<Vec<MessageId>> {
        for batch in self.push_batches(messages) {
            let answers = self.storage.push(partition, batch).await;
            if answers.len() != batch.len() {
                let seen = format!("{} answers for {} messages", answers.len(), batch.len());
                return Err(self.fail(Clause::PushResults, &[], "one answer per message", seen));
            }
            for (message, answer) in batch.iter().zip(answers) {
                self.stored(message.id(), &answer)?;
            }
        }
        self.history.observed(messages.len());
        Ok(messages.iter().map(MessageData::id).collect())
    }

    fn push_batches<'a>(&self, messages: &'a [MessageData]) -> Vec<&'a [MessageData]> {
        let Limits { push_batch, push_batch_bytes, .. } = self.storage.capabilities().limits;
        let mut batches = Vec::new();
        let (mut rest, mut len, mut bytes) = (messages, 0, 0);
        for message in messages {
            let size = self.storage.encoded_len(message);
            if len > 0 && (len == push_batch || bytes + size > push_batch_bytes) {
                let (batch, after) = rest.split_at(len);
                batches.push(batch);
                (rest, len, bytes) = (after, 0, 0);
            }
            (len, bytes) = (len + 1, bytes + size);
        }
        if !rest.is_empty() {
            batches.push(rest);
        }
        batches
    }

    fn stored(&self, id: MessageId, answer: &Result<PushOutcome>) -> CaseResult {
        match answer {
            Ok(PushOutcome::Stored(stored)) if *stored == id => Ok(()),
            Ok(PushOutcome::Stored(other)) => Err(self.fail(
                Clause::PushResults,
                &[id],
                "the answer to name the message at its place in the batch",
                self.history.label(*other),
            )),
            other => Err(self.fail(Clause::Stored, &[id], "the message to be stored", format!("{other:?}"))),
        }
    }

    /// Creates a request whose leases last as long as the case.
    pub fn request(&self, max: usize, wait: Duration) -> PullRequest {
        PullRequest::new(max, wait, self.timing.long_lease)
    }

    /// Makes one pull, whose error ends the case.
    ///
    /// # Errors
    /// Fails the case if the pull fails.
    pub async fn pull_with(
        &self,
        partition: &PartitionId,
        request: PullRequest,
    ) -> CaseResult<Vec<RawDelivery>> {
        let answer = self.storage.pull(partition, request).await;
        answer.map_err(|error| {
            self.fail(Clause::PullBounds, &[], "deliveries, or none", format!("the error {error}"))
        })
    }

    /// Makes one pull that waits only as long as a wake-up may take, with the long lease.
    ///
    /// # Errors
    /// Fails the case if the pull fails.
    pub async fn pull(&self, partition: &PartitionId, max: usize) -> CaseResult<Vec<RawDelivery>> {
        self.pull_with(partition, self.request(max, self.timing.soon)).await
    }

    /// Makes one pull that does not wait.
    ///
    /// # Errors
    /// Fails the case if the pull fails.
    pub async fn pull_now(&self, partition: &PartitionId, max: usize) -> CaseResult<Vec<RawDelivery>> {
        self.pull_with(partition, self.request(max, Duration::ZERO)).await
    }

    /// Takes exactly `n` deliveries, in as many pulls as necessary, with the long lease. If one message may
    /// come to two consumers at once, it counts once.
    ///
    /// # Errors
    /// Fails the case if they do not come soon, or if one pull returns more than was asked for.
    pub async fn take(&self, partition: &PartitionId, n: usize) -> CaseResult<Vec<RawDelivery>> {
        self.take_beside(&[], partition, n).await
    }

    /// Like [`take`](Self::take), for messages that are not among those known: if one message may come to two
    /// consumers at once, a known one may come again.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn take_beside(
        &self,
        known: &[RawDelivery],
        partition: &PartitionId,
        n: usize,
    ) -> CaseResult<Vec<RawDelivery>> {
        let batch = self.storage.capabilities().limits.pull_batch;
        let may_repeat = self.storage.capabilities().exclusive != Strictness::Strict;
        let mut taken: Vec<RawDelivery> = Vec::new();
        while taken.len() < n {
            let max = (n - taken.len()).min(batch);
            let got = self.pull(partition, max).await?;
            if got.is_empty() {
                let seen = format!("{} within {:?}", taken.len(), self.timing.soon);
                return Err(self.fail(
                    Clause::PullBounds,
                    &[],
                    format!("{n} deliveries from {partition}"),
                    seen,
                ));
            }
            if got.len() > max {
                return Err(self.fail(
                    Clause::PullBounds,
                    &[],
                    format!("at most {max} deliveries"),
                    format!("{}", got.len()),
                ));
            }
            for delivery in got {
                let again = known.iter().chain(&taken).any(|one| one.lease.id == delivery.lease.id);
                if !(may_repeat && again) {
                    taken.push(delivery);
                }
            }
        }
        Ok(taken)
    }

    /// Like [`take`](Self::take), but returns an array that can be destructured.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn take_exact<const N: usize>(&self, partition: &PartitionId) -> CaseResult<[RawDelivery; N]> {
        let taken = self.take(partition, N).await?;
        taken.try_into().map_err(|taken: Vec<RawDelivery>| {
            self.fail(Clause::PullBounds, &[], format!("{N} deliveries"), format!("{}", taken.len()))
        })
    }

    /// Watches for the duration `during`: nothing must be delivered.
    ///
    /// # Errors
    /// Fails the case with `clause` and `expected` if something is delivered.
    pub async fn nothing(
        &self,
        partition: &PartitionId,
        during: Duration,
        clause: Clause,
        expected: &str,
    ) -> CaseResult {
        let deadline = Instant::now() + during;
        loop {
            let asked = Instant::now();
            let left = deadline.saturating_duration_since(asked);
            let got = self.pull_with(partition, self.request(1, left)).await?;
            self.history.observed(1);
            if !got.is_empty() {
                let ids: Vec<_> = got.iter().map(|delivery| delivery.lease.id).collect();
                let seen = format!("{} was delivered", self.history.labels(&ids));
                return Err(self.fail(clause, &ids, expected, seen));
            }
            if left.is_zero() {
                return Ok(());
            }
            // A backend that answers before the wait is over must not be asked in a busy loop.
            tokio::time::sleep_until((asked + NEXT_LOOK.min(left)).into()).await;
        }
    }

    /// Settles all deliveries in the same way; each must return `Settled`.
    ///
    /// # Errors
    /// Fails the case on any other answer.
    pub async fn settle_all(&self, deliveries: &[RawDelivery], action: &Action) -> CaseResult {
        let settlements: Vec<_> = deliveries.iter().map(|d| settlement(d, action.clone())).collect();
        self.settle(&settlements).await
    }

    /// Settles; each must return `Settled`.
    ///
    /// # Errors
    /// Fails the case on any other answer.
    pub async fn settle(&self, settlements: &[Settlement]) -> CaseResult {
        for batch in settlements.chunks(self.storage.capabilities().limits.settle_batch.max(1)) {
            let answers = self.storage.settle(batch).await;
            if answers.len() != batch.len() {
                let seen = format!("{} outcomes for {} settlements", answers.len(), batch.len());
                return Err(self.fail(Clause::SettleOutcomes, &[], "one outcome per settlement", seen));
            }
            for (settlement, answer) in batch.iter().zip(answers) {
                if !matches!(answer, Ok(SettleOutcome::Settled)) {
                    let about = [settlement.lease.id];
                    return Err(self.fail(
                        Clause::SettleOutcomes,
                        &about,
                        "Settled, as the lease is valid",
                        format!("{answer:?}"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Removes all deliveries; each must return `Settled`.
    ///
    /// # Errors
    /// Fails the case on any other answer.
    pub async fn remove(&self, deliveries: &[RawDelivery]) -> CaseResult {
        self.settle_all(deliveries, &Action::Remove).await
    }

    /// Settles one delivery, and returns what the backend answers.
    ///
    /// # Errors
    /// Fails the case if the answer is not one outcome.
    pub async fn try_settle(&self, delivery: &RawDelivery, action: Action) -> CaseResult<SettleOutcome> {
        let mut answers = self.storage.settle(&[settlement(delivery, action)]).await;
        let answer = answers.pop().filter(|_| answers.is_empty());
        self.one(Clause::SettleOutcomes, delivery, answer)
    }

    /// Extends one delivery, and returns what the backend answers.
    ///
    /// # Errors
    /// Fails the case if the answer is not one outcome.
    pub async fn extend(&self, delivery: &RawDelivery, duration: Duration) -> CaseResult<ExtendOutcome> {
        let mut answers = self.storage.extend(&[Extension { lease: delivery.lease.clone(), duration }]).await;
        let answer = answers.pop().filter(|_| answers.is_empty());
        self.one(Clause::Extend, delivery, answer)
    }

    fn one<T>(&self, clause: Clause, delivery: &RawDelivery, answer: Option<Result<T>>) -> CaseResult<T> {
        let about = [delivery.lease.id];
        match answer {
            Some(Ok(outcome)) => Ok(outcome),
            Some(Err(error)) => Err(self.fail(clause, &about, "an outcome", format!("the error {error}"))),
            None => Err(self.fail(clause, &about, "exactly one outcome", "none, or several")),
        }
    }

    /// Runs this many pulls at once, each for one message.
    ///
    /// # Errors
    /// Fails the case if a pull fails.
    pub async fn pull_at_once(
        &self,
        partition: &PartitionId,
        pulls: usize,
        wait: Duration,
    ) -> CaseResult<Vec<RawDelivery>> {
        let all = join_all((0..pulls).map(|_| self.pull_with(partition, self.request(1, wait)))).await;
        Ok(all.into_iter().collect::<CaseResult<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Closes this client.
    ///
    /// # Errors
    /// Fails the case if closing fails.
    pub async fn close(&self) -> CaseResult {
        let failed =
            |error: Error| self.fail(Clause::Close, &[], "close to succeed", format!("the error {error}"));
        self.storage.close().await.map_err(failed)
    }

    /// Writes a remark into the history.
    pub fn note(&self, text: impl Into<String>) {
        self.history.note(&self.name, text);
    }

    fn fail(
        &self,
        clause: Clause,
        about: &[MessageId],
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> Stop {
        fail(&self.history, clause, about, expected, seen)
    }
}

/// Returns the settlement of a delivery by `action`.
pub(crate) fn settlement(delivery: &RawDelivery, action: Action) -> Settlement {
    Settlement::new(delivery.lease.clone(), action)
}
