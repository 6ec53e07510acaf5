//! Ends tasks whose handler blocks its thread: nobody can stop the handler, but the task need not wait for
//! it.

use std::sync::Arc;

use anyqueue::{DeliveryTwin, ErrorKind, QueueMessageStatus, SettleOutcome};

use crate::context::TaskContext;
use crate::error::ErrorClass;
use crate::handler::Route;
use crate::message::FailureKind;
use crate::settle::{LONGEST_PAUSE, PAUSE, fallback};
use crate::shared::{Failing, Shared};
use crate::summary::Outcome;
use crate::telemetry::Series;
use crate::work::Decision;

/// Ends a task as timed out while its handler still runs. The handler keeps the slot.
pub(crate) async fn end_overdue(
    shared: Arc<Shared>,
    (partition, route): (usize, &Route),
    task: &TaskContext,
    twin: &DeliveryTwin,
    series: &Series,
) {
    let text = "it ran longer than it may, and blocks its thread";
    let class = ErrorClass::Retry;
    let decision =
        shared.failed(partition, twin.into(), route, task.attempt(), FailureKind::TimedOut, class, text);
    let took = shared.queue.clock().now().saturating_duration_since(task.started_at());
    let decision = decision.of_attempt(task.attempt(), took).with_progress(task.progress());
    let outcome = settle(&shared, partition, twin, decision).await;
    tracing::error!(id = %twin.id(), partition = %twin.partition(), outcome = outcome.as_str(), "a handler blocks its thread beyond its time: its task was ended without it");
    if outcome == Outcome::Dead {
        shared.forget(twin.id());
    }
    shared.tally.count(outcome);
    series.ended(outcome, task.attempt());
}

/// Settles the delivery, and tries again while the lease holds. Returns how the task ended.
async fn settle(shared: &Shared, partition: usize, twin: &DeliveryTwin, decision: Decision) -> Outcome {
    let Decision { status: Some(wanted), mut then, outcome, mut report } = decision else {
        return Outcome::Lost;
    };
    report.worker = Some(shared.config.name.clone());
    let (mut status, mut pause, clock) = (wanted.clone(), PAUSE, shared.queue.clock());
    loop {
        let error = match twin.settle_with(status.clone(), then.clone(), &report).await {
            Ok(SettleOutcome::Settled) => {
                shared.note(partition, Failing::settled);
                let is_dead = matches!(status, QueueMessageStatus::Poisonous { .. });
                return if is_dead { Outcome::Dead } else { outcome };
            }
            Ok(SettleOutcome::Lost) => return Outcome::Lost,
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Closed => return Outcome::Unsettled,
            ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::TooLarge => {
                tracing::warn!(id = %twin.id(), %error, "a task could not be settled as planned");
                let followed = !std::mem::take(&mut then).is_empty();
                let Some(next) = fallback(&status, &wanted, followed, &error) else {
                    return Outcome::Unsettled;
                };
                status = next;
            }
            _ if twin.lease_until().is_none_or(|until| until <= clock.now()) => return Outcome::Lost,
            _ => {
                shared.note(partition, |failing| failing.settlement_failed(error.clone()));
                tracing::warn!(id = %twin.id(), %error, "a task could not be settled; retrying while its lease holds");
                clock.sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
