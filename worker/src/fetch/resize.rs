//! Changes of the number of slots while the worker runs.

use std::time::Instant;

use super::reserve::reserved;
use super::state::Fetch;

impl Fetch {
    /// Takes up a change in the number of slots. If there are fewer, messages held beyond them are released.
    pub(super) fn take_up_slots(&mut self, now: Instant) {
        let slots = self.shared.pool.slots();
        let before = std::mem::replace(&mut self.slots, slots);
        if slots != before {
            self.schedule.set_slots(slots);
            self.reserved = reserved(&self.shared.partitions, slots);
        }
        if slots < before {
            self.stop_pulls(|_, _| true); // they would bring too much
            self.has_too_many = true;
        }
        if self.has_too_many {
            // Settlements under way may bring more.
            self.hold_refills(now);
            self.release_beyond_slots();
            self.has_too_many = self.shared.pool.occupied() > slots;
        }
    }

    /// Releases the messages that were held last in each partition and have neither a slot nor a place among
    /// the prefetched ones.
    fn release_beyond_slots(&mut self) {
        let all = self.slots + self.shared.config.prefetch;
        let mut left = all.saturating_sub(self.shared.pool.occupied());
        for partition in &mut self.partitions {
            left = partition.release_beyond(left, self.slots);
            partition.count(&self.shared.routes);
        }
    }
}
