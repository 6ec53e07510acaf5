//! What became of the tasks of a run.

use std::sync::atomic::{AtomicU64, Ordering};

/// How one delivery of a task ended, as logs and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Processed,
    Retried,
    Dead,
    Cancelled,
    Interrupted,
    Lost,
    Deferred,
    Unsettled,
    Released,
}

impl Outcome {
    pub(crate) const ALL: [Self; 9] = [
        Self::Processed,
        Self::Retried,
        Self::Dead,
        Self::Cancelled,
        Self::Interrupted,
        Self::Lost,
        Self::Deferred,
        Self::Unsettled,
        Self::Released,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Retried => "retried",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Lost => "lost",
            Self::Deferred => "deferred",
            Self::Unsettled => "unsettled",
            Self::Released => "released",
        }
    }
}

/// What became of the tasks of one run of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Done.
    pub processed: u64,
    /// Failed, and to be tried again.
    pub retried: u64,
    /// Gone to the dead letters.
    pub dead: u64,
    /// Removed because somebody requested it.
    pub cancelled: u64,
    /// Begun, and released because of the shutdown, uncounted.
    pub interrupted: u64,
    /// Held, and released by the shutdown before it began.
    pub released: u64,
    /// Not settled because the lease was lost; somebody else has the task.
    pub lost: u64,
    /// Not run now: its kind is unknown here or runs often enough already, or an earlier run of it has not ended yet.
    pub deferred: u64,
    /// Could not be settled; the task comes back when its lease ends.
    pub unsettled: u64,
    /// Still running when the shutdown's time was over: their handlers block and cannot be stopped.
    pub abandoned: u64,
}

/// Counts while the run goes on.
#[derive(Debug, Default)]
pub(crate) struct Tally([AtomicU64; Outcome::ALL.len()]);

impl Tally {
    pub(crate) fn count(&self, outcome: Outcome) {
        if let Some(counter) = self.0.get(outcome as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn reset(&self) {
        for counter in &self.0 {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn summary(&self, abandoned: usize) -> Summary {
        let of =
            |outcome: Outcome| self.0.get(outcome as usize).map_or(0, |count| count.load(Ordering::Relaxed));
        Summary {
            processed: of(Outcome::Processed),
            retried: of(Outcome::Retried),
            dead: of(Outcome::Dead),
            cancelled: of(Outcome::Cancelled),
            interrupted: of(Outcome::Interrupted),
            released: of(Outcome::Released),
            lost: of(Outcome::Lost),
            deferred: of(Outcome::Deferred),
            unsettled: of(Outcome::Unsettled),
            abandoned: abandoned as u64,
        }
    }
}
