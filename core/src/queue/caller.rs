//! Calls to the storage as core makes them: with a deadline, repeated where that is safe, and measured.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tracing::Instrument;

use crate::capabilities::Reach;
use crate::clock::{CENTURY, Clock};
use crate::end_watches::EndWatches;
use crate::error::{Error, ErrorKind, Operation, Result, RetryClass};
use crate::message::{MessageData, MessageId};
use crate::partition::PartitionId;
use crate::storage::{
    Action, ExtendOutcome, Extension, PullRequest, PushOutcome, RawDelivery, SettleOutcome, Settlement,
    Storage,
};
use crate::telemetry::{self, PartitionLabels};

/// How often core repeats a call that is safe to repeat, and how long it pauses in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The number of attempts in all, including the first; 1 means never repeat.
    pub attempts: u32,
    /// The pause after the first attempt. It doubles each time, with ±50 % jitter.
    pub base: Duration,
    /// The longest pause, before jitter.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    /// Five attempts within about half a second.
    fn default() -> Self {
        Self { attempts: 5, base: Duration::from_millis(30), cap: Duration::from_secs(2) }
    }
}

impl RetryPolicy {
    /// A policy that never repeats a call.
    pub const NEVER: Self = Self { attempts: 1, base: Duration::ZERO, cap: Duration::ZERO };

    /// Sets [`attempts`](Self::attempts); 0 is treated as 1.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Sets [`base`](Self::base).
    #[must_use]
    pub fn with_base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets [`cap`](Self::cap).
    #[must_use]
    pub fn with_cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// The pause after attempt number `attempt` (from 1).
    pub(crate) fn pause(&self, attempt: u32) -> Duration {
        let exponent = attempt.saturating_sub(1).min(20);
        let pause = self.base.saturating_mul(1 << exponent).min(self.cap).min(CENTURY);
        pause.mul_f64(0.5 + fastrand::f64())
    }
}

/// The storage, with deadlines and retries.
#[derive(Clone, Debug)]
pub(crate) struct StorageCaller {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Clock,
    pub(crate) retry: RetryPolicy,
    /// How long one call other than a long poll may take.
    pub(crate) call_timeout: Duration,
    pub(crate) labels: Arc<PartitionLabels>,
    /// The callers in this process that wait for the end of a task.
    pub(crate) end_watches: Arc<EndWatches>,
}

impl StorageCaller {
    pub(crate) fn name(&self) -> &'static str {
        self.storage.name()
    }

    /// Whether a call leaves this process.
    fn does_io(&self) -> bool {
        self.storage.capabilities().reach != Reach::Process
    }

    /// Pushes the messages of one caller, in order, or single messages of several callers.
    pub(crate) async fn push(
        &self,
        partition: &PartitionId,
        messages: &[MessageData],
        from: Callers,
    ) -> Vec<Result<PushOutcome>> {
        let answers = self.batch(messages, partition, self.uncertain_push(), from).await;
        let stored = answers.iter().filter(|a| matches!(a, Ok(PushOutcome::Stored(_)))).count() as u64;
        let duplicate = answers.iter().filter(|a| matches!(a, Ok(PushOutcome::Duplicate(_)))).count() as u64;
        self.labels.count("anyqueue_pushed_total", self.name(), partition, stored);
        let replaced = answers.iter().filter(|a| matches!(a, Ok(PushOutcome::Replaced(_)))).count() as u64;
        self.labels.count("anyqueue_duplicates_total", self.name(), partition, duplicate);
        self.labels.count("anyqueue_replaced_total", self.name(), partition, replaced);
        answers
    }

    /// An uncertain push may have been stored: repeating it is safe only where ids are unique.
    pub(crate) fn uncertain_push(&self) -> RetryClass {
        if self.storage.capabilities().unique_ids { RetryClass::Safe } else { RetryClass::MayDuplicate }
    }

    pub(crate) async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        // Settling twice is harmless by contract, so an uncertain settlement is repeated.
        let answers = self.batch(settlements, &(), RetryClass::Safe, Callers::Several).await;
        self.count_settled(settlements, &answers);
        answers
    }

    fn count_settled(&self, settlements: &[Settlement], answers: &[Result<SettleOutcome>]) {
        let done =
            || answers.iter().zip(settlements).filter(|(a, _)| matches!(a, Ok(SettleOutcome::Settled)));
        let settled = done().count() as u64;
        let ends_task = |settlement: &Settlement| {
            settlement.end.is_some() || matches!(settlement.action, Action::Move { .. })
        };
        let ended: Vec<_> =
            done().map(|(_, it)| it).filter(|it| ends_task(it)).map(|it| it.lease.id).collect();
        self.note_ended(&ended);
        let successors = done().map(|(_, settlement)| settlement.then.len() as u64).sum();
        telemetry::count("anyqueue_successors_total", self.name(), successors);
        let lost = answers.iter().filter(|a| matches!(a, Ok(SettleOutcome::Lost))).count() as u64;
        telemetry::count("anyqueue_settled_total", self.name(), settled);
        telemetry::count("anyqueue_lost_total", self.name(), lost);
    }

    /// Tells those who wait for the ends of tasks, in this process and elsewhere, that these have ended or
    /// are dead.
    pub(crate) fn note_ended(&self, ids: &[MessageId]) {
        if ids.is_empty() {
            return;
        }
        self.end_watches.ended(ids);
        if let Some(ledger) = self.storage.ledger() {
            ledger.note_ended(ids);
        }
    }

    /// Pulls. A safe failure is repeated within the wait and not beyond. Takes at most the wait plus the time
    /// of one call.
    pub(crate) async fn pull(
        &self,
        partition: &PartitionId,
        request: PullRequest,
    ) -> Result<Vec<RawDelivery>> {
        let started = self.clock.now();
        let mut attempt = 1;
        loop {
            let mut part = request.clone();
            part.wait = request.wait.saturating_sub(self.clock.now() - started);
            let deadline = part.wait.saturating_add(self.call_timeout);
            let mut answer =
                self.bounded(Operation::Pull, deadline, self.storage.pull(partition, part)).await;
            match &mut answer {
                Err(error) if worth_repeating(error) && attempt < self.retry.attempts => {
                    tokio::select! {
                        biased;
                        () = self.clock.sleep(self.retry.pause(attempt)) => attempt += 1,
                        () = request.stop.cancelled() => return answer,
                    }
                }
                Err(error) => {
                    telemetry::count_error(self.name(), Operation::Pull, error);
                    return answer;
                }
                Ok(_) => return answer,
            }
        }
    }

    /// Settles and pulls in one call. A failure is not repeated here: the settlements go back to the batcher.
    pub(crate) async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        let deadline = request.wait.saturating_add(self.call_timeout);
        let started = Instant::now();
        let call = async { Ok(self.storage.exchange(settlements, partition, request).await) };
        let answer = self.bounded(Operation::Settle, deadline, call).await;
        telemetry::observe_call(self.name(), Operation::Settle, settlements.len(), started.elapsed());
        match answer.map_err(|error| error.with_retry(RetryClass::Safe)) {
            Ok((settled, pulled)) if settled.len() == settlements.len() => {
                self.count_settled(settlements, &settled);
                (settled, pulled)
            }
            Ok((_, pulled)) => {
                let error =
                    Error::new(ErrorKind::Internal, "the adapter did not answer each item of a batch");
                (vec![Err(error.with_backend(self.name())); settlements.len()], pulled)
            }
            Err(error) => (vec![Err(error.clone()); settlements.len()], Err(error)),
        }
    }

    /// Makes one call with one result, within a deadline; a panic in the adapter becomes an error.
    pub(crate) async fn bounded<T>(
        &self,
        operation: Operation,
        deadline: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let stamp = |error: Error| error.with_backend(self.name()).with_operation(operation);
        let span =
            tracing::debug_span!("anyqueue.call", backend = self.name(), operation = operation.as_str());
        tokio::select! {
            biased;
            answer = AssertUnwindSafe(call).catch_unwind().instrument(span) => answer.unwrap_or_else(|_| {
                Err(stamp(Error::new(ErrorKind::Internal, "the adapter panicked")))
            }),
            () = self.clock.deadline(deadline, self.does_io()) => {
                Err(stamp(Error::new(ErrorKind::TimedOut, format!("no answer within {}", humantime::format_duration(deadline)))))
            }
        }
    }

    /// Not repeated: the heartbeat tries again by itself.
    pub(crate) async fn extend(
        &self,
        extensions: &[Extension],
        deadline: Duration,
    ) -> Vec<Result<ExtendOutcome>> {
        let call = self.storage.extend(extensions);
        let answers = self.once(Operation::Extend, extensions.len(), deadline, RetryClass::Safe, call).await;
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            telemetry::count_error(self.name(), Operation::Extend, error);
        }
        let lost = answers.iter().filter(|a| matches!(a, Ok(ExtendOutcome::Lost))).count() as u64;
        telemetry::count("anyqueue_lost_total", self.name(), lost);
        answers
    }

    /// Settles by itself what failed together with a pull and is safe to repeat.
    pub(crate) async fn settle_failed(
        &self,
        settlements: &[Settlement],
        mut answers: Vec<Result<SettleOutcome>>,
    ) -> Vec<Result<SettleOutcome>> {
        for error in answers.iter().filter_map(|a| a.as_ref().err()).filter(|e| !worth_repeating(e)) {
            telemetry::count_error(self.name(), Operation::Settle, error);
        }
        let failed = positions(&answers, |a| matches!(a, Err(e) if worth_repeating(e)));
        if failed.is_empty() {
            return answers;
        }
        let part: Vec<_> = failed.iter().filter_map(|&i| settlements.get(i).cloned()).collect();
        for (position, answer) in failed.into_iter().zip(self.settle(&part).await) {
            if let Some(slot) = answers.get_mut(position) {
                *slot = answer;
            }
        }
        answers
    }

    /// Calls, then calls again for the items whose failure is safe to repeat.
    async fn batch<I: Repeatable>(
        &self,
        items: &[I],
        target: &I::Target,
        uncertain: RetryClass,
        from: Callers,
    ) -> Vec<Result<I::Answer>> {
        let call = async |items: &[I]| {
            let call = I::call(&*self.storage, target, items);
            self.once(I::OPERATION, items.len(), self.call_timeout, uncertain, call).await
        };
        let mut answers = call(items).await;
        for attempt in 1..self.retry.attempts {
            let mut again = positions(&answers, |a| matches!(a, Err(e) if worth_repeating(e)));
            if from == Callers::One {
                keep_order(items, &answers, &mut again);
            }
            if again.is_empty() {
                break;
            }
            self.clock.sleep(self.retry.pause(attempt)).await;
            let part: Vec<I> = again.iter().filter_map(|&i| items.get(i).cloned()).collect();
            for ((position, item), answer) in again.into_iter().zip(&part).zip(call(&part).await) {
                if let Some(slot) = answers.get_mut(position) {
                    let was_uncertain = slot.as_ref().is_err_and(Error::is_uncertain);
                    *slot = answer
                        .map(|answer| I::repeated(item, answer))
                        .map_err(|error| error.uncertain_if(was_uncertain));
                }
            }
        }
        for error in answers.iter().filter_map(|a| a.as_ref().err()) {
            telemetry::count_error(self.name(), I::OPERATION, error);
        }
        answers
    }

    /// Makes one call within a deadline; a panic in the adapter becomes an error of each item.
    async fn once<A: Clone>(
        &self,
        operation: Operation,
        items: usize,
        deadline: Duration,
        uncertain: RetryClass,
        call: impl Future<Output = Vec<Result<A>>>,
    ) -> Vec<Result<A>> {
        let started = Instant::now();
        let span = tracing::debug_span!(
            "anyqueue.call",
            backend = self.name(),
            operation = operation.as_str(),
            items
        );
        let call = AssertUnwindSafe(call).catch_unwind().instrument(span);
        let fail = |error: Error| {
            let error = error.with_retry(uncertain).uncertain_if(true);
            vec![Err(error.with_backend(self.name()).with_operation(operation)); items]
        };
        let answers = tokio::select! {
            biased;
            answer = call => match answer {
                Ok(answers) if answers.len() == items => answers,
                Ok(_) => fail(Error::new(ErrorKind::Internal, "the adapter did not answer each item of a batch")),
                Err(_) => fail(Error::new(ErrorKind::Internal, "the adapter panicked")),
            },
            () = self.clock.deadline(deadline, self.does_io()) => {
                fail(Error::new(ErrorKind::TimedOut, format!("no answer within {}", humantime::format_duration(deadline))))
            }
        };
        telemetry::observe_call(self.name(), operation, items, started.elapsed());
        answers
    }
}

/// Not after a time-out, which has used up its time already: the caller gets the error.
pub(super) fn worth_repeating(error: &Error) -> bool {
    error.retry() == RetryClass::Safe && error.kind() != ErrorKind::TimedOut
}

/// Whose items a call carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    /// All of one caller, who has given them an order.
    One,
    /// Each of a different caller, who waits for its own result.
    Several,
}

/// Leaves out items whose repetition would break the order of their group without their caller's knowledge: a
/// member behind which another is stored already, and a member behind one that may still be stored or that
/// only its caller can repeat. Their callers get the error instead.
fn keep_order<I: Repeatable>(items: &[I], answers: &[Result<I::Answer>], again: &mut Vec<usize>) {
    let group_of = |position: usize| items.get(position).and_then(I::group);
    if !again.iter().any(|position| group_of(*position).is_some()) {
        return;
    }
    let mut last_done = HashMap::new();
    let mut first_open = HashMap::new();
    for (position, answer) in answers.iter().enumerate() {
        let Some(group) = group_of(position) else { continue };
        match answer {
            Ok(_) => drop(last_done.insert(group, position)),
            Err(error) if error.retry() != RetryClass::Never && !worth_repeating(error) => {
                first_open.entry(group).or_insert(position);
            }
            Err(_) => {}
        }
    }
    again.retain(|position| {
        let Some(group) = group_of(*position) else { return true };
        last_done.get(group).is_none_or(|done| done < position)
            && first_open.get(group).is_none_or(|open| open > position)
    });
}

/// An item of a call that can be repeated, and what the result of the repetition means.
trait Repeatable: Clone + Send + Sync {
    const OPERATION: Operation;
    /// What the call concerns, besides its items.
    type Target: ?Sized + Sync;
    type Answer: Clone + Send;

    fn call<'a>(
        storage: &'a dyn Storage,
        target: &'a Self::Target,
        items: &'a [Self],
    ) -> BoxFuture<'a, Vec<Result<Self::Answer>>>;

    fn repeated(item: &Self, answer: Self::Answer) -> Self::Answer;

    /// The group within which the items of one caller keep their order.
    fn group(&self) -> Option<&str> {
        None
    }
}

impl Repeatable for MessageData {
    const OPERATION: Operation = Operation::Push;
    type Target = PartitionId;
    type Answer = PushOutcome;

    fn call<'a>(
        storage: &'a dyn Storage,
        partition: &'a PartitionId,
        messages: &'a [Self],
    ) -> BoxFuture<'a, Vec<Result<PushOutcome>>> {
        storage.push(partition, messages)
    }

    /// A repeated push that finds its own message is a success: the first attempt stored it.
    fn repeated(item: &Self, answer: PushOutcome) -> PushOutcome {
        if answer == PushOutcome::Duplicate(Some(item.id())) {
            PushOutcome::Stored(item.id())
        } else {
            answer
        }
    }

    fn group(&self) -> Option<&str> {
        self.options().group.as_deref()
    }
}

impl Repeatable for Settlement {
    const OPERATION: Operation = Operation::Settle;
    type Target = ();
    type Answer = SettleOutcome;

    fn call<'a>(
        storage: &'a dyn Storage,
        (): &'a (),
        settlements: &'a [Self],
    ) -> BoxFuture<'a, Vec<Result<SettleOutcome>>> {
        storage.settle(settlements)
    }

    /// A lost lease may have been settled by the first attempt; that is not known, so the outcome stays
    /// `Lost`.
    fn repeated(_: &Self, answer: SettleOutcome) -> SettleOutcome {
        answer
    }
}

fn positions<T>(items: &[T], is: impl Fn(&T) -> bool) -> Vec<usize> {
    items.iter().enumerate().filter(|(_, item)| is(item)).map(|(position, _)| position).collect()
}
