//! From the end of a run to a status, and its settlement.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{
    Delivery, EndState, Error, ErrorKind, Headers, MessageData, MessageId, QueueMessageStatus, SettleOutcome,
    Successors, TaskReport, When, header,
};

use crate::config::Counting;
use crate::error::ErrorClass;
use crate::handler::Route;
use crate::message::header::{CURSOR, ERRORS};
use crate::message::{Failure, FailureKind, TaskHeaders, history};
use crate::permits::Permit;
use crate::received::Received;
use crate::report::without_result;
use crate::retry::Retry;
use crate::shared::{Failing, Shared};
use crate::successors::{self, next_attempt};
use crate::summary::Outcome;
use crate::work::{Decision, Done};

/// The pause after a settlement that failed. It doubles up to the longest.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Done {
    fn end(self, shared: &Shared) {
        let outcome = self.decision.outcome;
        self.end_as(shared, outcome);
    }

    fn end_as(self, shared: &Shared, outcome: Outcome) {
        if outcome == Outcome::Dead {
            shared.forget(self.work.delivery.id());
        }
        shared.tally.count(outcome);
        self.work.series.ended(outcome, self.attempts);
        // The delivery is dropped first: its slot must not become free while the delivery still counts as
        // held.
        drop(self.work.delivery);
        drop(self.work.permit);
    }
}

/// Settles everything that has ended, together, and frees the slots.
pub(crate) async fn settle(shared: &Arc<Shared>, mut done: Vec<Done>) {
    for done in &mut done {
        shared.report(done);
    }
    let settlements = done.iter_mut().filter_map(|done| {
        let status = done.decision.status.clone()?;
        Some((&mut done.work.delivery, status, done.decision.then.clone()))
    });
    let mut outcomes = shared.queue.settle_many_with(settlements).await.into_iter();
    let result = |done: &Done| done.decision.status.as_ref().and_then(|_| outcomes.next());
    let results: Vec<_> = done.iter().map(result).collect();
    // Together, and before the slots become free: whoever gets those needs the permits.
    let ended = done.iter_mut().zip(&results).filter(|(_, result)| !matches!(result, Some(Err(_))));
    Permit::release_all(ended.filter_map(|(done, _)| done.work.permit.take_held()));
    for (done, result) in done.into_iter().zip(results) {
        if let Some(Ok(_)) = result {
            shared.note(done.work.permit.partition, Failing::settled);
        }
        match result {
            Some(Ok(SettleOutcome::Settled)) => done.end(shared),
            Some(Ok(SettleOutcome::Lost)) | None => done.end_as(shared, Outcome::Lost),
            Some(Err(error)) => drop(tokio::spawn(settle_later(shared.clone(), done, error))),
        }
    }
}

/// Repeats the settlement while the lease holds.
async fn settle_later(shared: Arc<Shared>, mut done: Done, error: Error) {
    let Some(status) = done.decision.status.clone() else { return };
    let then = std::mem::take(&mut done.decision.then);
    let report = std::mem::take(&mut done.decision.report);
    let work = &mut done.work;
    let place = (work.permit.partition, &mut work.delivery);
    let outcome = settle_again(&shared, place, (&status, then, report), error).await;
    let outcome = outcome.unwrap_or(done.decision.outcome);
    done.end_as(&shared, outcome);
}

/// Returns how the delivery ended, if not as planned.
async fn settle_again(
    shared: &Shared,
    (partition, delivery): (usize, &mut Delivery),
    (wanted, mut then, mut report): (&QueueMessageStatus, Successors, TaskReport),
    mut error: Error,
) -> Option<Outcome> {
    let mut status = wanted.clone();
    let clock = shared.queue.clock();
    let mut pause = PAUSE;
    loop {
        match error.kind() {
            ErrorKind::Closed => return Some(Outcome::Unsettled),
            ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::TooLarge => {
                tracing::warn!(id = %delivery.id(), %error, "a task could not be settled as planned");
                if !without_result(delivery, &mut report, &error) {
                    let followed = !std::mem::take(&mut then).is_empty();
                    let next = fallback(&status, wanted, followed, &error);
                    let Some(next) = next else { return Some(Outcome::Unsettled) };
                    status = next;
                }
            }
            _ if delivery.lease_until().is_none_or(|until| until <= clock.now()) => {
                shared.note(partition, Failing::settlement_given_up);
                return Some(Outcome::Lost);
            }
            _ => {
                shared.note(partition, |failing| failing.settlement_failed(error.clone()));
                tracing::warn!(id = %delivery.id(), %error, "a task could not be settled; retrying while its lease holds");
                clock.sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        let answer = delivery.settle_with(status.clone(), then.clone()).await;
        if answer.is_ok() {
            shared.note(partition, Failing::settled);
        }
        error = match answer {
            // The task should have been retried, but that could not be stored.
            Ok(SettleOutcome::Settled) => {
                return matches!(status, QueueMessageStatus::Poisonous { .. }).then_some(Outcome::Dead);
            }
            Ok(SettleOutcome::Lost) => return Some(Outcome::Lost),
            Err(error) => error,
        };
    }
}

/// The next best status after one that was refused, for instance because the headers have become too large.
/// The errors are dropped first. The count is never dropped: without it the task would be retried forever.
pub(crate) fn fallback(
    status: &QueueMessageStatus,
    wanted: &QueueMessageStatus,
    followed: bool,
    error: &Error,
) -> Option<QueueMessageStatus> {
    match status {
        _ if followed => {
            Some(QueueMessageStatus::poisonous(format!("what was to follow it cannot be stored: {error}")))
        }
        QueueMessageStatus::Postponed { delay, headers: Some(headers) } => {
            let mut headers = headers.clone();
            Some(match headers.remove(ERRORS) {
                Some(_) => QueueMessageStatus::Postponed { delay: *delay, headers: Some(headers) },
                None => QueueMessageStatus::poisonous(why_not_again(wanted, error)),
            })
        }
        QueueMessageStatus::Postponed { .. } => Some(QueueMessageStatus::Failed),
        _ => None,
    }
}

/// Why a task that should be retried goes to the dead letters instead.
fn why_not_again(wanted: &QueueMessageStatus, error: &Error) -> String {
    let last = match wanted {
        QueueMessageStatus::Postponed { headers: Some(headers), .. } => history(headers).pop(),
        _ => None,
    };
    let attempt = last.map_or_else(
        || "no worker could run it".to_owned(),
        |last| format!("{} in attempt {}: {}", last.kind, last.attempt, last.error),
    );
    format!("{attempt}; not retried, because its attempts cannot be stored with it: {error}")
}

/// Whether the message has expired since it was claimed, `held` ago.
pub(crate) fn expired(delivery: &Delivery, held: Duration) -> bool {
    let expiry = delivery.message().options().expiry;
    let Some(When::In(time_to_live)) = expiry else { return false };
    delivery.age() + held >= time_to_live && !delivery.headers().contains_key(header::REDRIVEN_AT)
}

impl Shared {
    /// The number of failed attempts before this delivery.
    pub(crate) fn attempts(&self, delivery: &Delivery) -> u32 {
        let counted = TaskHeaders::of(delivery.headers()).attempts();
        let since = match self.config.counting {
            Counting::Headers => 0,
            Counting::Failures => delivery.delivery_count().unwrap_or(1).saturating_sub(1),
            // A message with a lower delivery count than that has been redriven in the meantime.
            Counting::Memory => {
                let remembered = self.failures.of(delivery.id());
                delivery.delivery_count().map_or(remembered, |count| remembered.min(count.saturating_sub(1)))
            }
        };
        counted.saturating_add(since)
    }

    /// Remembers one more failed attempt, or one more time that this worker did not know the task.
    fn remember(&self, id: MessageId) {
        if self.config.counting == Counting::Memory {
            self.failures.add(id);
        }
    }

    /// Forgets the failed attempts of a dead task. Call it only after the settlement: if the lease was lost,
    /// the task comes back.
    pub(crate) fn forget(&self, id: MessageId) {
        if self.config.counting == Counting::Memory {
            self.failures.forget(id);
        }
    }

    /// The status for a retry of the task, with its history if that can be stored.
    fn retried(&self, delay: Duration, headers: impl FnOnce() -> Headers) -> QueueMessageStatus {
        match (self.config.counting, self.queue.capabilities().postpone_delay) {
            (Counting::Headers, _) => QueueMessageStatus::Postponed { delay, headers: Some(headers()) },
            (Counting::Memory, Some(_)) => QueueMessageStatus::postponed(delay),
            (Counting::Memory, None) | (Counting::Failures, _) => QueueMessageStatus::Failed,
        }
    }

    /// How often the task was lost with the process that ran it, if that is known.
    pub(crate) fn crashes(&self, delivery: &Delivery) -> u32 {
        let known = self.queue.capabilities().delivery_count
            == anyqueue::adapter::DeliveryCount::ExceptReleases
            && self.config.counting == Counting::Headers;
        delivery.delivery_count().filter(|_| known).map_or(0, |count| count.saturating_sub(1))
    }

    /// How long one attempt may take.
    pub(crate) fn timeout(&self, partition: usize, route: &Route, message: &MessageData) -> Option<Duration> {
        let own = || self.partitions.get(partition).and_then(|config| config.timeout);
        message.options().max_duration.or(route.kind.timeout).or_else(own).or(self.config.timeout)
    }

    /// How often the task is retried.
    pub(crate) fn retries(&self, partition: usize, route: &Route, message: &MessageData) -> u32 {
        self.retry(partition, route, message).retries()
    }

    fn retry(&self, partition: usize, route: &Route, message: &MessageData) -> Retry {
        let own = || self.partitions.get(partition).and_then(|config| config.retry);
        let retry = route.kind.retry.or_else(own).unwrap_or(self.config.retry);
        message.options().max_retries.map_or(retry, |retries| retry.max(retries))
    }

    /// The status that has a task delivered again a little later, uncounted.
    pub(crate) fn deferred(&self, delay: Duration) -> QueueMessageStatus {
        match self.queue.capabilities().postpone_delay {
            Some(declared) => QueueMessageStatus::postponed(delay.min(declared.max)),
            None => QueueMessageStatus::Waiting,
        }
    }

    /// Decides what becomes of a task whose attempt failed.
    #[allow(clippy::too_many_arguments, reason = "all that is known about the attempt")]
    pub(crate) fn failed(
        &self,
        partition: usize,
        delivery: Received<'_>,
        route: &Route,
        attempt: u32,
        kind: FailureKind,
        class: ErrorClass,
        text: &str,
    ) -> Decision {
        let retry = self.retry(partition, route, delivery.message);
        let before = attempt.saturating_sub(1);
        let delay = match class {
            _ if kind == FailureKind::TimedOut && !self.config.retry_timeouts => None,
            ErrorClass::Permanent => None,
            ErrorClass::Retry => retry.delay(before),
            ErrorClass::After(delay) => (before < retry.retries()).then_some(delay),
        };
        let how = kind.as_str();
        tracing::debug!(id = %delivery.id(), attempt, how, error = text, retry_in = ?delay, "an attempt failed");
        let Some(delay) = delay else {
            let permanent = if class == ErrorClass::Permanent { " permanently" } else { "" };
            let reason = format!("{how}{permanent} in attempt {attempt}: {text}");
            return Decision::settle(QueueMessageStatus::poisonous(reason), Outcome::Dead);
        };
        let headers = || {
            let failure = Failure::new(attempt, kind, self.queue.clock().wall(), text);
            TaskHeaders::of(delivery.headers()).failed(attempt, failure)
        };
        if retry.is_as_new_message() {
            let state = if kind == FailureKind::TimedOut { EndState::TimedOut } else { EndState::Failed };
            let why = format!("{how} in attempt {attempt}: {text}");
            return self.retried_anew(delivery, delay, &headers(), (state, &why));
        }
        let most = self.queue.capabilities().postpone_delay.map_or(delay, |declared| declared.max);
        let delay = delay.min(most);
        self.remember(delivery.id());
        // For a ledger beside a queue that keeps no headers, or cannot show them.
        let errors = self.queue.keeps_ends().then(|| headers().remove(ERRORS)).flatten();
        Decision::settle(self.retried(delay, headers), Outcome::Retried).with_errors(errors.as_ref())
    }

    /// Lets a part of a work set continue after its cursor, at the end of the queue: as the same message, or
    /// as a new one if its headers cannot be replaced.
    pub(crate) fn goes_on(&self, delivery: &Delivery, cursor: String, outcome: Outcome) -> Decision {
        let mut headers = successors::fresh(delivery.headers());
        headers.insert(CURSOR.to_owned(), cursor);
        if self.queue.capabilities().postpone_headers {
            let status = QueueMessageStatus::Postponed { delay: Duration::ZERO, headers: Some(headers) };
            return Decision::settle(status, outcome);
        }
        let next = successors::copy(delivery.message()).with_headers(headers);
        // The items before the cursor are done, so the message has succeeded, unless the item after them
        // failed.
        let state = if outcome == Outcome::Retried { EndState::Failed } else { EndState::Succeeded };
        let why = format!("resumes as {}", next.id());
        match Successors::new().then(delivery.partition(), next) {
            Ok(then) => {
                Decision::settle(QueueMessageStatus::Processed, outcome).then(then).ended_as(state, why)
            }
            Err(error) => Decision::settle(QueueMessageStatus::poisonous(error.to_string()), Outcome::Dead),
        }
    }

    /// The end of a failed attempt, with the next attempt as a message of its own.
    fn retried_anew(
        &self,
        delivery: Received<'_>,
        delay: Duration,
        headers: &Headers,
        (state, why): (EndState, &str),
    ) -> Decision {
        let most = self.queue.capabilities().push_delay.map_or(Duration::ZERO, |declared| declared.max);
        let held = self.queue.clock().wall().duration_since(delivery.received_at).unwrap_or_default();
        let next = |headers: &Headers| next_attempt(delivery, headers, delay.min(most), held);
        let partition = delivery.partition;
        let mut message = next(headers);
        if self.queue.check_push(partition, &message).is_err() {
            // Most likely the message has become too large: the errors are dropped first.
            let mut fewer = headers.clone();
            fewer.remove(ERRORS);
            message = next(&fewer);
        }
        let why = format!("{why}; retried as {}", message.id());
        match Successors::new().then(partition, message) {
            Ok(then) => Decision::settle(QueueMessageStatus::Processed, Outcome::Retried)
                .then(then)
                .ended_as(state, why)
                .with_errors(headers.get(ERRORS)),
            Err(error) => Decision::settle(QueueMessageStatus::poisonous(error.to_string()), Outcome::Dead),
        }
    }

    /// Decides what becomes of a task that this worker cannot run; `why` is the reason.
    pub(crate) fn unknown_task(&self, delivery: &Delivery, why: &str) -> Decision {
        let headers = TaskHeaders::of(delivery.headers());
        let times = match self.config.counting {
            Counting::Headers => headers.unknown(),
            Counting::Memory | Counting::Failures => self.attempts(delivery),
        };
        if times >= self.config.max_unknown {
            let reason = format!("no worker could run it in {} attempts: {why}", times.saturating_add(1));
            return Decision::settle(QueueMessageStatus::poisonous(reason), Outcome::Dead);
        }
        tracing::warn!(id = %delivery.id(), partition = %delivery.partition(), "a task is deferred: {why}");
        let most = self
            .queue
            .capabilities()
            .postpone_delay
            .map_or(self.config.unknown_delay, |declared| declared.max);
        let delay = self.config.unknown_delay.min(most);
        self.remember(delivery.id());
        let status = self.retried(delay, || headers.unknown_again(times.saturating_add(1)));
        Decision::settle(status, Outcome::Deferred)
    }
}
