//! Sharing slots fairly with other processes.

use std::time::Duration;

use crate::usage::SlotUsage;
use crate::worker::Worker;

impl Worker {
    /// Returns how long tasks of each partition have occupied slots, in the order of
    /// [`partitions`](Self::partitions): two slots for a second are two seconds. The worker's loop counts
    /// from the first call on; it updates the times whenever a quarter of the slots becomes free, and at
    /// least once a second.
    pub fn slot_time(&self) -> Vec<Duration> {
        self.0.usage.slot_time()
    }

    /// Tells the worker how many slots its partitions use in other processes, in the order of
    /// [`partitions`](Self::partitions). [`Sharing::Fair`](crate::Sharing::Fair) then takes the slots of all
    /// processes into account. The values count for a minute, so repeat the call every few seconds. Members
    /// of the registry in `anyqueue-control` do that.
    pub fn balance(&self, usage: Vec<SlotUsage>) {
        self.0.usage.tell(self.0.queue.clock().now(), usage);
    }
}
