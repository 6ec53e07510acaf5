//! What a worker reports to the ledger about a task that it ends.

use std::time::Duration;

use anyqueue::{Delivery, Error, QueueMessageStatus, TaskReport};

use crate::config::Counting;
use crate::shared::Shared;
use crate::summary::Outcome;
use crate::work::Done;

impl Shared {
    /// Adds a report to the delivery before it is settled: what its end should say, or what failed and will
    /// be retried.
    pub(crate) fn report(&self, done: &mut Done) {
        let is_told = match done.decision.status {
            Some(QueueMessageStatus::Processed | QueueMessageStatus::Cancelled) => true,
            Some(QueueMessageStatus::Failed | QueueMessageStatus::Postponed { .. }) => {
                done.decision.outcome == Outcome::Retried
            }
            // If no header says it, nobody else knows which attempt was the last.
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
        // The handler has already been told about a result that is too large.
        if let Err(error) = delivery.report(report.clone()) {
            tracing::warn!(id = %delivery.id(), %error, "what was reported with the end of a task is left out");
        }
    }
}

/// Leaves the result out of a report, because the end of the task could not be stored with it. Returns
/// `false` if there was no result.
pub(crate) fn without_result(delivery: &mut Delivery, report: &mut TaskReport, refused: &Error) -> bool {
    if report.result.take().is_none() {
        return false;
    }
    report.reason = Some(format!("its result could not be kept: {refused}").into());
    if let Err(error) = delivery.report(report.clone()) {
        tracing::warn!(id = %delivery.id(), %error, "what was reported with the end of a task is left out");
    }
    true
}
