//! A delivery on its way through a slot: what belongs to it, what to do with it, and how it ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Bytes, Delivery, EndState, QueueMessageStatus, Successors, TaskReport};

use crate::handler::Route;
use crate::pool::SlotPermit;
use crate::summary::Outcome;
use crate::telemetry::Series;

/// A delivery on its way through a slot.
pub(crate) struct Work {
    pub(crate) permit: SlotPermit,
    pub(crate) delivery: Delivery,
    pub(crate) verdict: Verdict,
    pub(crate) series: Arc<Series>,
    /// When the worker received it.
    pub(crate) claimed_at: Instant,
}

/// What to do with a delivery that has a slot.
pub(crate) enum Verdict {
    Run(Arc<Route>),
    /// The task does not run, but is settled like this.
    End(QueueMessageStatus, Outcome),
}

/// How to settle a delivery; without a status if its lease was lost.
pub(crate) struct Decision {
    pub(crate) status: Option<QueueMessageStatus>,
    /// The messages that are stored with the settlement.
    pub(crate) then: Successors,
    pub(crate) outcome: Outcome,
    /// What the ledger records about the end.
    pub(crate) report: TaskReport,
}

impl Decision {
    pub(crate) fn settle(status: QueueMessageStatus, outcome: Outcome) -> Self {
        Self { status: Some(status), then: Successors::new(), outcome, report: TaskReport::new() }
    }

    pub(crate) fn then(mut self, then: Successors) -> Self {
        self.then = then;
        self
    }

    /// Adds the result of the task.
    pub(crate) fn with_result(mut self, result: Option<Bytes>) -> Self {
        self.report.result = result;
        self
    }

    /// Adds the notes of the handler.
    pub(crate) fn with_log(mut self, log: Option<String>) -> Self {
        self.report.log = log.map(Arc::from);
        self
    }

    /// Adds how far the handler had come.
    pub(crate) fn with_progress(mut self, progress: Option<Arc<str>>) -> Self {
        self.report.progress = progress;
        self
    }

    /// Sets how the task ends, if the status does not say it, and why.
    pub(crate) fn ended_as(mut self, state: EndState, reason: impl Into<Arc<str>>) -> Self {
        self.report.state = Some(state);
        self.report.reason = Some(reason.into());
        self
    }

    /// Adds the failed attempts, in the form that a header has.
    pub(crate) fn with_errors(mut self, errors: Option<&String>) -> Self {
        self.report.errors = errors.map(|errors| errors.as_str().into());
        self
    }

    /// Sets which attempt this ends, and how long the attempt took.
    pub(crate) fn of_attempt(mut self, attempt: u32, took: Duration) -> Self {
        (self.report.attempt, self.report.ran) = (Some(attempt), Some(took));
        self
    }

    /// The verdict for a delivery that does not run.
    pub(crate) fn into_verdict(self) -> Verdict {
        Verdict::End(self.status.unwrap_or(QueueMessageStatus::Waiting), self.outcome)
    }

    pub(crate) fn lost() -> Self {
        Self { status: None, then: Successors::new(), outcome: Outcome::Lost, report: TaskReport::new() }
    }
}

/// Work that only has to be settled.
pub(crate) struct Done {
    pub(crate) work: Work,
    pub(crate) decision: Decision,
    /// The number of the attempt; 0 if the handler did not run.
    pub(crate) attempts: u32,
}
