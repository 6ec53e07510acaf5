//! The server's time, and durations as scripts count them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// An estimate of the server's clock from its last answer. Scripts correct a value that is far off.
#[derive(Debug)]
pub(crate) struct ServerClock {
    start: Instant,
    /// The server's time at `start`, in microseconds since 1970.
    start_us: AtomicI64,
}

impl Default for ServerClock {
    fn default() -> Self {
        Self { start: Instant::now(), start_us: AtomicI64::new(0) }
    }
}

impl ServerClock {
    /// Sets the time that the server has just returned.
    pub(crate) fn set(&self, now_us: u64) {
        let now_us = i64::try_from(now_us).unwrap_or(i64::MAX);
        self.start_us.store(now_us.saturating_sub(self.elapsed_us()), Ordering::Relaxed);
    }

    pub(crate) fn now_us(&self) -> u64 {
        let now_us = self.start_us.load(Ordering::Relaxed).saturating_add(self.elapsed_us());
        u64::try_from(now_us).unwrap_or(0)
    }

    fn elapsed_us(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

/// Whole milliseconds, rounded up: nothing timed may come early.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
