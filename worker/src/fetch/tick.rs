//! What the loop does once a second: asks the governor, looks for stuck handlers, reports.

use std::time::{Duration, Instant};

use super::partition::Ready;
use super::state::Fetch;
use crate::{panics, telemetry};

/// How often the loop goes round if nothing happens.
const TICK: Duration = Duration::from_secs(1);

impl Fetch {
    pub(super) fn tick(&mut self, now: Instant) {
        self.next_tick = now + TICK;
        let throttled = self.throttled();
        let stuck = self.stuck(now);
        for (index, (partition, metrics)) in self.partitions.iter().zip(&self.metrics).enumerate() {
            metrics.set(self.shared.pool.slots_in(index), partition.ready.iter().map(Ready::len).sum());
        }
        telemetry::stuck(stuck);
        telemetry::throttled(throttled.is_some());
        // Where no pull is under way none was needed: slots, partitions or kinds are full.
        let full = self.partitions.iter().all(|partition| partition.pull.is_none());
        let mut control = self.shared.control();
        control.ticked_at = now;
        if full || throttled.is_some() || control.quiet || control.paused.iter().all(|paused| *paused) {
            control.progress_at = now;
        }
        if stuck > control.stuck {
            tracing::error!(stuck, "handlers did not stop when asked: they block their thread");
        }
        control.stuck = stuck;
        if throttled != control.throttled {
            if let Some(reason) = &throttled {
                tracing::warn!(%reason, "the governor stops the worker from taking on tasks");
            } else {
                tracing::info!("the governor lets the worker take on tasks again");
            }
            control.throttled = throttled;
        }
    }

    /// Why the governor says no, if it does.
    fn throttled(&self) -> Option<String> {
        let governor = self.shared.config.governor.as_ref()?;
        let checked = panics::caught(|| governor.check());
        checked.unwrap_or_else(|text| Err(format!("the governor panicked: {text}"))).err()
    }

    /// Handlers that should have stopped by now.
    fn stuck(&self, now: Instant) -> usize {
        let grace = self.shared.config.cancel_grace.saturating_add(TICK);
        let overdue = |asked: Instant| now.saturating_duration_since(asked) > grace;
        let tasks = self.shared.pool.running.tasks();
        tasks.iter().filter(|task| task.asked_at().is_some_and(overdue)).count()
    }
}
