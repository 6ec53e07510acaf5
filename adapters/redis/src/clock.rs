//! The server's time, and durations in the units of scripts.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An estimate of the server's clock, based on its last answers. Scripts correct a value that is far off.
#[derive(Debug)]
pub(crate) struct ServerClock {
    start: Instant,
    /// The server's time at `start`, in microseconds since 1970.
    start_us: AtomicI64,
    /// One more than the last time that was assigned to a record.
    next_us: AtomicU64,
}

/// If the last answer suggests an earlier time than the current estimate, but by at most this many
/// microseconds, the estimate is kept, because answers take time to arrive.
const DELAYED_US: u64 = 5000;

impl Default for ServerClock {
    fn default() -> Self {
        Self { start: Instant::now(), start_us: AtomicI64::new(0), next_us: AtomicU64::new(0) }
    }
}

impl ServerClock {
    /// Updates the estimate with the time that the server has just returned.
    pub(crate) fn set(&self, now_us: u64) {
        let now_us = i64::try_from(now_us).unwrap_or(i64::MAX);
        let start_us = now_us.saturating_sub(self.elapsed_us());
        let known_us = self.start_us.load(Ordering::Relaxed);
        if start_us > known_us || known_us.abs_diff(start_us) > DELAYED_US {
            self.start_us.store(start_us, Ordering::Relaxed);
        }
    }

    /// Returns the first of `count` times for records, one microsecond apart. No time is assigned twice, so
    /// the times reflect the order in which this handle pushes.
    pub(crate) fn stamps_us(&self, count: usize) -> u64 {
        let now_us = self.now_us();
        let first_us = |last: u64| if last > now_us + DELAYED_US { now_us } else { now_us.max(last) };
        let next = |last| Some(first_us(last) + count as u64);
        let last = self.next_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        first_us(last.unwrap_or_else(|last| last))
    }

    pub(crate) fn now_us(&self) -> u64 {
        let now_us = self.start_us.load(Ordering::Relaxed).saturating_add(self.elapsed_us());
        u64::try_from(now_us).unwrap_or(0)
    }

    fn elapsed_us(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

/// Converts to whole milliseconds. Rounds up, so that nothing timed is early.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
