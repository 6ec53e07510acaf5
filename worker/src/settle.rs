//! From the end of a run to a status, and that status into the queue.

use std::time::Duration;

use anyqueue::{
    Error, ErrorKind, MessageData, QueueMessageHandler, QueueMessageStatus, SettleOutcome, When, header,
};

use crate::builder::Counting;
use crate::error::ErrorClass;
use crate::execute::Verdict;
use crate::handler::Route;
use crate::message::{Failure, FailureKind, Past};
use crate::retry::Retry;
use crate::summary::Outcome;
use crate::worker::Shared;

/// The pause after a settlement that failed; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What to settle a delivery with; nothing if it is somebody else's now.
pub(crate) struct Decision {
    status: Option<QueueMessageStatus>,
    outcome: Outcome,
}

impl Decision {
    pub(crate) fn settle(status: QueueMessageStatus, outcome: Outcome) -> Self {
        Self { status: Some(status), outcome }
    }

    /// What a delivery is settled with that does not run.
    pub(crate) fn into_verdict(self) -> Verdict {
        Verdict::End(self.status.unwrap_or(QueueMessageStatus::Waiting), self.outcome)
    }

    pub(crate) fn lost() -> Self {
        Self { status: None, outcome: Outcome::Lost }
    }
}

/// Settles, again and again while the lease is trusted. Answers how the delivery ended.
pub(crate) async fn settle(
    shared: &Shared,
    delivery: &mut QueueMessageHandler,
    decision: Decision,
) -> Outcome {
    let Some(status) = decision.status else { return Outcome::Lost };
    match delivery.settle(status.clone()).await {
        Ok(SettleOutcome::Settled) => decision.outcome,
        Ok(SettleOutcome::Lost) => Outcome::Lost,
        Err(error) => Box::pin(settle_again(shared, delivery, status, decision.outcome, error)).await,
    }
}

async fn settle_again(
    shared: &Shared,
    delivery: &mut QueueMessageHandler,
    mut status: QueueMessageStatus,
    outcome: Outcome,
    mut error: Error,
) -> Outcome {
    let clock = shared.queue.clock();
    let mut pause = PAUSE;
    loop {
        match error.kind() {
            ErrorKind::Closed => return Outcome::Unsettled,
            ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::TooLarge => {
                tracing::warn!(id = %delivery.id(), %error, "a task could not be settled as it should be");
                let Some(plainer) = plainer(&status) else { return Outcome::Unsettled };
                status = plainer;
            }
            _ if delivery.lease_until().is_none_or(|until| until <= clock.now()) => return Outcome::Lost,
            _ => {
                tracing::warn!(id = %delivery.id(), %error, "a task could not be settled; trying again while its lease holds");
                clock.sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        error = match delivery.settle(status.clone()).await {
            Ok(SettleOutcome::Settled) => return outcome,
            Ok(SettleOutcome::Lost) => return Outcome::Lost,
            Err(error) => error,
        };
    }
}

/// What comes nearest to a status that was refused: headers can be too large by now, for instance.
fn plainer(status: &QueueMessageStatus) -> Option<QueueMessageStatus> {
    match status {
        QueueMessageStatus::Postponed { delay, headers: Some(_) } => {
            Some(QueueMessageStatus::postponed(*delay))
        }
        QueueMessageStatus::Postponed { .. } => Some(QueueMessageStatus::Failed),
        _ => None,
    }
}

/// Whether it has expired since it was claimed, `held` ago.
pub(crate) fn expired(delivery: &QueueMessageHandler, held: Duration) -> bool {
    let expiry = delivery.message().options().expiry;
    let Some(When::In(time_to_live)) = expiry else { return false };
    delivery.age() + held >= time_to_live && !delivery.headers().contains_key(header::REDRIVEN_AT)
}

impl Shared {
    /// Failed attempts before this delivery.
    pub(crate) fn attempts(&self, delivery: &QueueMessageHandler) -> u32 {
        match self.config.counting {
            Counting::Headers => Past::of(delivery.headers()).attempts(),
            Counting::Deliveries | Counting::Failures => {
                delivery.delivery_count().unwrap_or(1).saturating_sub(1)
            }
        }
    }

    /// How often it was lost with the process that ran it, where that can be told.
    pub(crate) fn crashes(&self, delivery: &QueueMessageHandler) -> u32 {
        let told = self.queue.capabilities().delivery_count == anyqueue::DeliveryCount::ExceptReleases
            && self.config.counting == Counting::Headers;
        delivery.delivery_count().filter(|_| told).map_or(0, |count| count.saturating_sub(1))
    }

    /// How long one attempt may take.
    pub(crate) fn timeout(&self, lane: usize, route: &Route, message: &MessageData) -> Option<Duration> {
        let lane = || self.lanes.get(lane).and_then(|lane| lane.timeout);
        message.options().max_duration.or(route.kind.timeout).or_else(lane).or(self.config.timeout)
    }

    fn retry(&self, lane: usize, route: &Route, message: &MessageData) -> Retry {
        let lane = || self.lanes.get(lane).and_then(|lane| lane.retry);
        let retry = route.kind.retry.or_else(lane).unwrap_or(self.config.retry);
        message.options().max_retries.map_or(retry, |retries| retry.max(retries))
    }

    /// The status that offers a task again a little later, uncounted.
    pub(crate) fn put_off(&self, delay: Duration) -> QueueMessageStatus {
        match self.queue.capabilities().postpone_delay {
            Some(declared) => QueueMessageStatus::postponed(delay.min(declared.max)),
            None => QueueMessageStatus::Waiting,
        }
    }

    /// An attempt failed.
    #[allow(clippy::too_many_arguments, reason = "what is known of the attempt")]
    pub(crate) fn failed(
        &self,
        lane: usize,
        delivery: &QueueMessageHandler,
        route: &Route,
        attempt: u32,
        kind: FailureKind,
        class: ErrorClass,
        text: &str,
    ) -> Decision {
        let retry = self.retry(lane, route, delivery.message());
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
            Past::of(delivery.headers()).failed(attempt, failure)
        };
        let most = self.queue.capabilities().postpone_delay.map_or(delay, |declared| declared.max);
        let delay = delay.min(most);
        let status = match self.config.counting {
            Counting::Headers => QueueMessageStatus::Postponed { delay, headers: Some(headers()) },
            Counting::Deliveries => QueueMessageStatus::postponed(delay),
            Counting::Failures => QueueMessageStatus::Failed,
        };
        Decision::settle(status, Outcome::Retried)
    }

    /// Nobody here knows what to do with it: `why` says so.
    pub(crate) fn missed(&self, delivery: &QueueMessageHandler, why: &str) -> Decision {
        let past = Past::of(delivery.headers());
        let misses = match self.config.counting {
            Counting::Headers => past.misses(),
            Counting::Deliveries | Counting::Failures => self.attempts(delivery),
        };
        if misses >= self.config.max_misses {
            let reason = format!("no worker could run it in {} attempts: {why}", misses.saturating_add(1));
            return Decision::settle(QueueMessageStatus::poisonous(reason), Outcome::Dead);
        }
        tracing::warn!(id = %delivery.id(), partition = %delivery.partition(), "a task is put off: {why}");
        let most =
            self.queue.capabilities().postpone_delay.map_or(self.config.miss_delay, |declared| declared.max);
        let delay = self.config.miss_delay.min(most);
        let status = match self.config.counting {
            Counting::Headers => {
                QueueMessageStatus::Postponed { delay, headers: Some(past.missed(misses.saturating_add(1))) }
            }
            Counting::Deliveries => QueueMessageStatus::postponed(delay),
            Counting::Failures => QueueMessageStatus::Failed,
        };
        Decision::settle(status, Outcome::PutOff)
    }
}
