//! How many slots each partition uses, so that workers share them fairly across all processes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyqueue_worker::{SlotUsage, Worker};

use super::record::WorkerInfo;

/// The slots that others use on average, by partition.
pub(super) type Elsewhere = HashMap<String, f64>;

/// The slots that the partitions of a worker use.
#[derive(Debug)]
pub(super) struct Usage {
    at: Instant,
    total: Vec<Duration>,
    here: Vec<f64>,
}

impl Usage {
    pub(super) fn new(worker: &Worker, now: Instant) -> Self {
        Self { at: now, total: worker.slot_time(), here: Vec::new() }
    }

    /// Measures the time since the last call.
    pub(super) fn measure(&mut self, worker: &Worker, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        if elapsed <= 0.0 {
            return;
        }
        let total = worker.slot_time();
        let used = total.iter().zip(&self.total).map(|(now, before)| now.saturating_sub(*before));
        self.here = used.map(|used| used.as_secs_f64() / elapsed).collect();
        (self.at, self.total) = (now, total);
    }

    /// The slots that each partition uses here, in the order of the worker's partitions.
    pub(super) fn here(&self) -> &[f64] {
        &self.here
    }

    /// The slots that each partition uses here, and those that others use.
    pub(super) fn beside(&self, worker: &Worker, elsewhere: &Elsewhere) -> Vec<SlotUsage> {
        let here = self.here.iter().copied().chain(std::iter::repeat(0.0));
        let usage = |(partition, here): (&anyqueue::PartitionId, f64)| {
            let mut usage = SlotUsage::default();
            usage.here = here;
            usage.elsewhere = elsewhere.get(&partition.to_string()).copied().unwrap_or_default();
            usage
        };
        worker.partitions().zip(here).map(usage).collect()
    }
}

/// Adds what a living worker uses.
pub(super) fn add(elsewhere: &mut Elsewhere, worker: &WorkerInfo) {
    for (partition, thousandths) in worker.partitions.iter().zip(&worker.used).filter(|(_, used)| **used > 0)
    {
        #[allow(clippy::cast_precision_loss, reason = "a number of slots")]
        let slots = *thousandths as f64 / 1000.0;
        *elsewhere.entry(partition.clone()).or_default() += slots;
    }
}
