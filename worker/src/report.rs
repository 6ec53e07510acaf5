//! What the ledger is told of a task that a worker ends.

use std::time::Duration;

use anyqueue::{Delivery, Error, QueueMessageStatus, TaskReport};

use crate::config::Counting;
use crate::shared::Shared;
use crate::summary::Outcome;
use crate::work::Done;

impl Shared {
    /// Tells the delivery what its end is to say, before it is settled, or what failed and is to be tried again.
    pub(crate) fn report(&self, done: &mut Done) {
        let is_told = match done.decision.status {
            Some(QueueMessageStatus::Processed | QueueMessageStatus::Cancelled) => true,
            Some(QueueMessageStatus::Failed | QueueMessageStatus::Postponed { .. }) => {
                done.decision.outcome == Outcome::Retried
            }
            // Where no header says it, nobody else knows which attempt was the last.
            Some(QueueMessageStatus::Poisonous { .. }) => self.config.counting != Counting::Headers,
            _ => false,
        };
        if !is_told || !self.queue.keeps_ends() {
            return;
        }
        let (report, delivery) = (&mut done.decision.report, &mut done.work.delivery);
        report.attempt.get_or_insert_with(|| self.attempts(delivery));
        report.ran.get_or_insert(Duration::ZERO);
        report.worker = Some(self.config.name.clone());
        // The handler was told already of a result that is too large.
        if let Err(error) = delivery.report(report.clone()) {
            tracing::warn!(id = %delivery.id(), %error, "what a task's end was to say is left out");
        }
    }
}

/// Leaves the result out of a report, because the end of the task could not be stored with it. `false` if there was none.
pub(crate) fn without_result(delivery: &mut Delivery, report: &mut TaskReport, refused: &Error) -> bool {
    if report.result.take().is_none() {
        return false;
    }
    report.reason = Some(format!("its result could not be kept: {refused}").into());
    if let Err(error) = delivery.report(report.clone()) {
        tracing::warn!(id = %delivery.id(), %error, "what a task's end was to say is left out");
    }
    true
}
