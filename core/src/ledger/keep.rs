//! How long the ends of tasks are kept.

use std::time::Duration;

use super::end::EndState;

/// How long the end of a task is kept, by how it ended. Zero keeps nothing; `None` keeps it until it is
/// deleted.
///
/// Pass it to [`QueueBuilder::ledger`](crate::QueueBuilder::ledger), or for one partition to
/// [`PartitionOptions::with_keep`](crate::PartitionOptions::with_keep), or for one kind of task to
/// [`PartitionOptions::with_keep_of_kind`](crate::PartitionOptions::with_keep_of_kind). A task can override
/// it with the headers [`task-keep-success`](crate::header::TASK_KEEP_SUCCESS) and
/// [`task-keep-failure`](crate::header::TASK_KEEP_FAILURE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keep {
    /// For tasks that succeeded. Default: 24 hours.
    pub succeeded: Option<Duration>,
    /// For tasks that failed. Default: 7 days.
    pub failed: Option<Duration>,
    /// For tasks that took too long or expired. Default: 7 days.
    pub timed_out: Option<Duration>,
    /// For tasks that were cancelled. Default: 24 hours.
    pub cancelled: Option<Duration>,
}

impl Default for Keep {
    fn default() -> Self {
        let (day, week) = (Duration::from_hours(24), Duration::from_hours(7 * 24));
        Self { succeeded: Some(day), failed: Some(week), timed_out: Some(week), cancelled: Some(day) }
    }
}

impl Keep {
    /// Keeps all ends for the same time.
    #[must_use]
    pub const fn all(keep: Option<Duration>) -> Self {
        Self { succeeded: keep, failed: keep, timed_out: keep, cancelled: keep }
    }

    /// Sets [`succeeded`](Self::succeeded).
    #[must_use]
    pub const fn with_succeeded(mut self, keep: Option<Duration>) -> Self {
        self.succeeded = keep;
        self
    }

    /// Sets [`failed`](Self::failed) and [`timed_out`](Self::timed_out).
    #[must_use]
    pub const fn with_failed(mut self, keep: Option<Duration>) -> Self {
        self.failed = keep;
        self.timed_out = keep;
        self
    }

    /// Sets [`cancelled`](Self::cancelled).
    #[must_use]
    pub const fn with_cancelled(mut self, keep: Option<Duration>) -> Self {
        self.cancelled = keep;
        self
    }

    /// Returns how long ends in this state are kept.
    #[must_use]
    pub const fn of(&self, state: EndState) -> Option<Duration> {
        match state {
            EndState::Succeeded => self.succeeded,
            EndState::Failed => self.failed,
            EndState::TimedOut => self.timed_out,
            EndState::Cancelled => self.cancelled,
        }
    }
}
