//! What a worker reports to the ledger about a task that it ends.

use std::time::Duration;

use anyqueue::{Delivery, Error, QueueMessageStatus, TaskReport};

use crate::config::Counting;
use crate::shared::Shared;
use crate::summary::Outcome;
use crate::work::Done;

impl Shared {
    /// Adds a report to the delivery before it is settled: what its end or its dead letter should say, or what
    /// failed and will be retried.
    pub(crate) fn report(&self, done: &mut Done) {
        let is_dead = matches!(done.decision.status, Some(QueueMessageStatus::Poisonous { .. }));
        let is_told = match done.decision.status {
            Some(QueueMessageStatus::Processed | QueueMessageStatus::Cancelled) => self.queue.keeps_ends(),
            Some(QueueMessageStatus::Failed | QueueMessageStatus::Postponed { .. }) => {
                done.decision.outcome == Outcome::Retried && self.queue.keeps_ends()
            }
            // The dead letter itself says who ran it, whether ends are kept or not.
            _ => is_dead,
        };
        if !is_told {
            return;
        }
        let (report, delivery) = (&mut done.decision.report, &mut done.work.delivery);
        // Of a dead letter the headers say it, unless no header counts attempts.
        if !is_dead || self.config.counting != Counting::Headers {
            report.attempt.get_or_insert_with(|| self.attempts(delivery));
        }
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
