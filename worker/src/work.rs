//! A delivery on its way through a slot: what belongs to it, what to do with it, and how it ended.

use std::sync::Arc;
use std::time::Instant;

use anyqueue::{Delivery, QueueMessageStatus, Successors};

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
    /// It does not run, but is settled like this.
    End(QueueMessageStatus, Outcome),
}

/// What to settle a delivery with; nothing if its lease was lost.
pub(crate) struct Decision {
    pub(crate) status: Option<QueueMessageStatus>,
    /// What is stored with it.
    pub(crate) then: Successors,
    pub(crate) outcome: Outcome,
}

impl Decision {
    pub(crate) fn settle(status: QueueMessageStatus, outcome: Outcome) -> Self {
        Self { status: Some(status), then: Successors::new(), outcome }
    }

    pub(crate) fn then(mut self, then: Successors) -> Self {
        self.then = then;
        self
    }

    /// The verdict for a delivery that does not run.
    pub(crate) fn into_verdict(self) -> Verdict {
        Verdict::End(self.status.unwrap_or(QueueMessageStatus::Waiting), self.outcome)
    }

    pub(crate) fn lost() -> Self {
        Self { status: None, then: Successors::new(), outcome: Outcome::Lost }
    }
}

/// Work that only has to be settled.
pub(crate) struct Done {
    pub(crate) work: Work,
    pub(crate) decision: Decision,
    /// The number of the attempt; 0 if the handler did not run.
    pub(crate) attempts: u32,
}
