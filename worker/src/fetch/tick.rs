//! What the loop does once a second: asks the governor, looks for stuck handlers, reports.

use std::time::Instant;

use super::partition::Ready;
use super::state::{Fetch, TICK};
use crate::room::Room;
use crate::{panics, telemetry};

impl Fetch {
    pub(super) fn tick(&mut self, now: Instant) {
        self.next_tick = now + TICK;
        self.ask_governor(now);
        self.schedule.balance(self.shared.usage.told(now).as_deref().unwrap_or_default());
        self.check_memory();
        let stuck = self.stuck(now);
        self.end_overdue(now);
        for (index, (partition, metrics)) in self.partitions.iter().zip(&self.metrics).enumerate() {
            metrics.set(self.shared.pool.slots_in(index), partition.ready.iter().map(Ready::len).sum());
        }
        telemetry::stuck(stuck);
        telemetry::throttled(1.0 - self.throttle.share());
        // If no pull is under way, none was needed: slots, partitions or kinds are full.
        let full = self.partitions.iter().all(|partition| partition.pull.is_none());
        let mut control = self.shared.control();
        control.ticked_at = now;
        if full || control.quiet || control.paused.iter().all(|paused| *paused) {
            control.progress_at = now;
        }
        if stuck > control.stuck {
            tracing::error!(stuck, "handlers did not stop when asked: they block their thread");
        }
        control.stuck = stuck;
        note_throttled(&mut control.throttled, self.throttle.reason());
    }

    /// Lets the number of slots follow the machine's room.
    fn ask_governor(&mut self, now: Instant) {
        let Some(governor) = &self.shared.config.governor else { return };
        let checked = panics::caught(|| governor.check());
        let room = checked.unwrap_or_else(|text| Room::none(format!("the governor panicked: {text}")));
        self.throttle.follow(&room, now);
        self.shared.pool.allow(self.throttle.slots(self.shared.pool.all_slots()));
    }

    /// The number of handlers that should have stopped by now.
    fn stuck(&self, now: Instant) -> usize {
        let grace = self.shared.config.cancel_grace.saturating_add(TICK);
        let overdue = |asked: Instant| now.saturating_duration_since(asked) > grace;
        let tasks = self.shared.pool.running.tasks();
        tasks.iter().filter(|task| task.asked_at().is_some_and(overdue)).count()
    }
}

/// Logs when the governor begins to withhold slots and when it has given all of them back, but not every
/// change of the reason: reasons contain figures that change all the time.
fn note_throttled(before: &mut Option<String>, reason: Option<&String>) {
    match (before.is_some(), reason) {
        (false, Some(reason)) => tracing::warn!(%reason, "the governor leaves the worker fewer slots"),
        (true, None) => tracing::info!("the governor leaves the worker all its slots again"),
        _ => {}
    }
    *before = reason.cloned();
}
