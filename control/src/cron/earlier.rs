//! The task that a schedule pushed last: whether it is alive, and how to end it.

use std::time::{Duration, SystemTime};

use anyqueue::{MessageId, Result, Task};

use super::record::Record;
use super::schedule::Schedule;
use super::scheduler::Shared;
use super::tick::Tick;

/// The state of an earlier task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    /// It is waiting, running, or waiting for a retry.
    Lives(MessageId),
    /// It has ended, at this time if ends are kept.
    Ended(Option<SystemTime>),
    /// There was no such task.
    None,
}

/// The tasks that may have been pushed last: the one in the tick, and the one in the entry, which lags behind
/// or was noted by a manual run.
pub(super) fn earlier(tick: Option<&Tick>, record: &Record) -> Vec<MessageId> {
    let of_tick = tick.and_then(|tick| tick.earlier.as_deref());
    let mut ids: Vec<MessageId> =
        [of_tick, record.pushed.as_deref()].into_iter().flatten().filter_map(|id| id.parse().ok()).collect();
    ids.dedup();
    ids
}

impl Shared {
    /// The state of the tasks that may have been pushed last.
    pub(super) async fn earlier(&self, schedule: &Schedule, ids: &[MessageId]) -> Result<Earlier> {
        let mut found = Earlier::None;
        for id in ids {
            match self.tasks.task(&schedule.partition, *id).await? {
                Some(task) if task.state.ended().is_none() => return Ok(Earlier::Lives(*id)),
                // The latest end counts, and an unknown end counts as now.
                task => found = found.or_later(task.as_ref().and_then(ended_at)),
            }
        }
        Ok(found)
    }

    /// Cancels the tasks. Those that are gone no longer concern the schedule.
    pub(super) async fn cancel(&self, schedule: &Schedule, ids: &[MessageId]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        for cancelled in self.tasks.request_cancel(&schedule.partition, ids).await? {
            cancelled?;
        }
        Ok(())
    }
}

impl Earlier {
    fn or_later(self, ended_at: Option<SystemTime>) -> Self {
        match self {
            Self::Ended(other) => Self::Ended(other.zip(ended_at).map(|(one, other)| one.max(other))),
            _ => Self::Ended(ended_at),
        }
    }

    /// When the next run is due: this long after the end of the task, and at most this long from now.
    pub(super) fn due(self, pause: Duration, now: SystemTime) -> SystemTime {
        let ended_at = match self {
            Self::Ended(Some(at)) => at.min(now),
            _ => now,
        };
        ended_at.checked_add(pause).unwrap_or(now)
    }
}

fn ended_at(task: &Task) -> Option<SystemTime> {
    task.ended_at
}
