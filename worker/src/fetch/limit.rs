//! The end of a run that has reached its limits.

use super::state::Fetch;
use crate::memory::resident_memory;
use crate::summary::RunLimit;

impl Fetch {
    /// The number of tasks that this run may still take on.
    pub(super) fn tasks_left(&self) -> u64 {
        let most = self.shared.config.max_tasks.map_or(u64::MAX, std::num::NonZeroU64::get);
        if self.is_over_memory { 0 } else { most.saturating_sub(self.started) }
    }

    /// That number, as a number of slots.
    pub(super) fn starts_left(&self) -> usize {
        usize::try_from(self.tasks_left()).unwrap_or(usize::MAX)
    }

    /// The limit that the run has reached, once nothing runs any more.
    pub(super) fn reached(&self) -> Option<RunLimit> {
        if self.tasks_left() > 0 || self.shared.pool.occupied() > 0 {
            return None;
        }
        Some(if self.is_over_memory { RunLimit::Memory } else { RunLimit::Tasks })
    }

    /// Checks how much memory the process occupies. A run that has not started a task does not end: the next
    /// run would begin with as much.
    pub(super) fn check_memory(&mut self) {
        let Some(most) = self.shared.config.max_memory_bytes.filter(|_| self.started > 0) else { return };
        let Some(bytes) = resident_memory().filter(|bytes| *bytes > most) else { return };
        if !std::mem::replace(&mut self.is_over_memory, true) {
            tracing::info!(
                bytes,
                most,
                "the process uses more memory than it may: the run ends after its tasks"
            );
        }
    }
}
