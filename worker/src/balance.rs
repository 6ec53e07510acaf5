//! Sharing slots fairly with other processes.

use std::time::Duration;

use crate::usage::SlotUsage;
use crate::worker::Worker;

impl Worker {
    /// For how long slots were occupied by tasks of each partition, in the order of [`partitions`](Self::partitions): two slots for a second are two
    /// seconds. It is counted from the first call on, by the worker's loop, which looks whenever a quarter of the slots frees and at least once a second.
    pub fn slot_time(&self) -> Vec<Duration> {
        self.0.usage.slot_time()
    }

    /// Tells the worker how many slots its partitions use in other processes, in the order of [`partitions`](Self::partitions). Then
    /// [`Sharing::Fair`](crate::Sharing::Fair) is about the slots of all processes together. It counts for a minute: tell it again every few seconds. Members of
    /// the registry in `anyqueue-control` do.
    pub fn balance(&self, usage: Vec<SlotUsage>) {
        self.0.usage.tell(self.0.queue.clock().now(), usage);
    }
}
