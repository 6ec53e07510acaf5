//! One warning for a backend that cannot be reached, however many calls fail.

use std::sync::{Mutex, PoisonError};

use anyqueue::Error;

/// Which of the two loops of a scheduler a call belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Ticks,
    Entries,
}

/// Which parts are failing.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<[bool; 2]>);

impl Outage {
    pub(super) fn fails(&self, part: Part, error: &Error) {
        metrics::counter!("anyqueue_cron_failed_total").increment(1);
        if self.set(part, true) == Some(true) {
            tracing::warn!(%error, "schedules have stopped, because their backend fails; trying again");
        }
    }

    pub(super) fn answers(&self, part: Part) {
        if self.set(part, false) == Some(false) {
            tracing::info!("schedules continue: their backend answers again");
        }
    }

    /// Sets whether a part fails. Returns whether anything fails now, if that has changed.
    fn set(&self, part: Part, fails: bool) -> Option<bool> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = parts.contains(&true);
        let [ticks, entries] = &mut *parts;
        *match part {
            Part::Ticks => ticks,
            Part::Entries => entries,
        } = fails;
        let now = parts.contains(&true);
        (now != failed).then_some(now)
    }
}
