//! The time of day, as it is stored in the file.

use std::time::{Duration, SystemTime};

use anyqueue::Clock;

/// A moment in milliseconds of Unix time, rounded in both directions so that nothing is early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Rounded down: for comparing with moments that may be over.
    pub(crate) ms: i64,
    ceil_ms: i64,
}

impl Now {
    pub(crate) fn of(clock: &Clock) -> Self {
        let since = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX), ceil_ms: ceil_ms(since) }
    }

    /// The end of a period that begins now.
    pub(crate) fn after(self, span: Duration) -> i64 {
        self.ceil_ms.saturating_add(ceil_ms(span))
    }

    /// The end of a period that began with this millisecond; `None` if it cannot be represented.
    pub(crate) fn floor_after(self, span: Duration) -> Option<i64> {
        self.ms.checked_add(ceil_ms(span))
    }
}

fn ceil_ms(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}
/// The moment that is this many milliseconds after the beginning of 1970.
pub(crate) fn moment(ms: i64) -> SystemTime {
    let since = Duration::from_millis(ms.max(0).unsigned_abs());
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}
