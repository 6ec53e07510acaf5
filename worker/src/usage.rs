//! How many slots each partition uses: here, and in other processes that serve it too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long information about other processes counts: whoever gave it may be gone by then.
const KEPT: Duration = Duration::from_mins(1);

/// How many slots a partition has used on average in the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SlotUsage {
    /// In this worker.
    pub here: f64,
    /// In all other workers together.
    pub elsewhere: f64,
}

/// What the loop measures of its partitions, and what it was told about other processes.
#[derive(Debug)]
pub(crate) struct UsageBoard {
    /// Whether the times are measured, because they were asked for.
    is_metered: AtomicBool,
    /// Slots times microseconds, for each partition.
    slot_micros: Vec<AtomicU64>,
    told: Mutex<Option<(Instant, Vec<SlotUsage>)>>,
}

impl UsageBoard {
    pub(crate) fn new(partitions: usize) -> Self {
        Self {
            is_metered: AtomicBool::new(false),
            slot_micros: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            told: Mutex::new(None),
        }
    }

    /// How long slots were occupied, for each partition, counted from the first call.
    pub(crate) fn slot_time(&self) -> Vec<Duration> {
        self.is_metered.store(true, Relaxed);
        self.slot_micros.iter().map(|micros| Duration::from_micros(micros.load(Relaxed))).collect()
    }

    pub(crate) fn tell(&self, now: Instant, usage: Vec<SlotUsage>) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, usage));
    }

    /// What was told last, unless that was too long ago.
    pub(crate) fn told(&self, now: Instant) -> Option<Vec<SlotUsage>> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = told.as_ref().filter(|(at, _)| now.saturating_duration_since(*at) <= KEPT);
        fresh.map(|(_, usage)| usage.clone())
    }
}

/// Adds up the slots that are occupied from one round of the loop to the next.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    since: Option<Instant>,
    slots: Vec<usize>,
}

impl Meter {
    /// Counts the time since the previous round ended, at the beginning of a new one.
    pub(crate) fn add(&mut self, board: &UsageBoard, now: Instant) {
        let Some(since) = self.since.take() else { return };
        let micros = u64::try_from(now.saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX);
        for (total, slots) in board.slot_micros.iter().zip(&self.slots).filter(|(_, slots)| **slots > 0) {
            total.fetch_add(micros.saturating_mul(*slots as u64), Relaxed);
        }
    }

    /// A round that began at `now` has ended, with this many slots of each partition occupied.
    pub(crate) fn begin(&mut self, board: &UsageBoard, now: Instant, slots_in: impl Fn(usize) -> usize) {
        if !board.is_metered.load(Relaxed) {
            return;
        }
        self.since = Some(now);
        self.slots.clear();
        self.slots.extend((0..board.slot_micros.len()).map(slots_in));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_count_for_as_long_as_they_were_occupied() {
        let (board, mut meter, start) = (UsageBoard::new(2), Meter::default(), Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        meter.begin(&board, at(0), |_| 5);
        meter.add(&board, at(10));
        assert_eq!(board.slot_time(), [Duration::ZERO; 2], "nobody had asked");
        meter.begin(&board, at(10), |partition| 3 * partition);
        meter.add(&board, at(12));
        meter.add(&board, at(20));
        assert_eq!(board.slot_time(), [Duration::ZERO, Duration::from_secs(6)]);
    }

    #[test]
    fn what_was_told_long_ago_counts_no_longer() {
        let (board, start) = (UsageBoard::new(1), Instant::now());
        assert_eq!(board.told(start), None);
        board.tell(start, vec![SlotUsage { here: 1.0, elsewhere: 2.0 }]);
        assert!(board.told(start + KEPT).is_some());
        assert_eq!(board.told(start + KEPT + Duration::from_nanos(1)), None);
    }
}
