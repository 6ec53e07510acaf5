//! Tasks whose handlers block their thread beyond the deadline: such a task ends as timed out all the same.

use std::sync::Arc;
use std::time::Instant;

use super::state::{Fetch, TICK};
use crate::overdue::end_overdue;

impl Fetch {
    /// Asks handlers that are past their deadline to stop: while a handler blocks its thread, nobody else
    /// does this. Ends the tasks of those that have not stopped by the end of the grace.
    pub(super) fn end_overdue(&mut self, now: Instant) {
        // A handler that can be dropped is dropped before this.
        let grace = self.shared.config.cancel_grace.saturating_add(TICK);
        for task in self.shared.pool.running.tasks() {
            let Some(deadline) = task.deadline().filter(|deadline| *deadline <= now) else { continue };
            task.time_out();
            let is_over = now.saturating_duration_since(deadline) > grace;
            if !is_over || !task.is_overdue_still() {
                continue;
            }
            let Some(twin) = task.twin().cloned() else { continue };
            let place = self.shared.partitions.iter().position(|config| config.id == *task.partition());
            let (Some(place), Some(route)) = (place, self.shared.routes.of(task.message()).cloned()) else {
                continue;
            };
            if task.claim_end() {
                let series = self.series.of(place, task.partition(), Some(&route.kind.name));
                let shared = Arc::clone(&self.shared);
                tokio::spawn(
                    async move { end_overdue(shared, (place, &route), &task, &twin, &series).await },
                );
            }
        }
    }
}
