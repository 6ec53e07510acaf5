//! The server's clock, as revealed by its answers.
//!
//! An answer with a time limits the clock from both sides: the time had been reached when the answer arrived,
//! and the next tick had not been reached when the request was sent. Together, many answers leave little room
//! between the bounds.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyqueue::Clock;

/// The resolution of times in message attributes.
pub(crate) const ATTRIBUTE_GRAIN: Duration = Duration::from_millis(1);
/// The resolution of times in HTTP headers.
pub(crate) const HEADER_GRAIN: Duration = Duration::from_secs(1);

/// The server's clock, between two bounds.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    bounds: Mutex<Option<Bounds>>,
    /// Used until the server has sent a time.
    local: Clock,
}

/// The earliest and the latest time that the server's clock may show.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    earliest: SystemTime,
    latest: SystemTime,
    at: Instant,
}

impl Bounds {
    fn at(self, now: Instant) -> Self {
        let since = now.saturating_duration_since(self.at);
        Self { earliest: self.earliest + since, latest: self.latest + since, at: now }
    }

    /// Returns the overlap of both bounds at the same moment. If there is none, a clock was set, and only the
    /// new bounds are valid.
    fn narrowed(self, observed: Self) -> Self {
        let (earliest, latest) = (self.earliest.max(observed.earliest), self.latest.min(observed.latest));
        if earliest <= latest { Self { earliest, latest, at: observed.at } } else { observed }
    }
}

impl ServerClock {
    pub(crate) fn new(local: Clock) -> Self {
        Self { bounds: Mutex::default(), local }
    }

    /// Records a time that the server sent, truncated to a multiple of `grain`, in an answer that has just arrived. The request
    /// was sent at `asked` or later.
    pub(crate) fn observe(&self, server: SystemTime, grain: Duration, asked: Instant) {
        let at = Instant::now();
        let latest = server + grain + at.saturating_duration_since(asked);
        let observed = Bounds { earliest: server, latest, at };
        let mut known = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(known.map_or(observed, |known| known.at(at).narrowed(observed)));
    }

    /// The earliest time that it may be, for whatever must not be early.
    pub(crate) fn earliest(&self) -> SystemTime {
        self.now().map_or_else(|| self.local.wall(), |bounds| bounds.earliest)
    }

    /// The latest time that it may be, for ages, which must not be too low.
    pub(crate) fn latest(&self) -> SystemTime {
        self.now().map_or_else(|| self.local.wall(), |bounds| bounds.latest)
    }

    /// Returns `None` until the server has sent a time.
    fn now(&self) -> Option<Bounds> {
        let bounds = *self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        bounds.map(|bounds| bounds.at(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn before(moment: Instant, secs: u32) -> Instant {
        moment.checked_sub(SECOND * secs).unwrap()
    }

    #[test]
    fn the_time_that_an_answer_took_lies_between_the_bounds() {
        let clock = ServerClock::default();
        let server = SystemTime::now() + SECOND * 3600;
        clock.observe(server, ATTRIBUTE_GRAIN, before(Instant::now(), 5));
        assert!(clock.earliest() >= server);
        assert!(clock.earliest() < server + SECOND * 5);
        assert!(clock.latest() >= server + SECOND * 5 + ATTRIBUTE_GRAIN);
    }

    #[test]
    fn a_prompt_answer_narrows_and_a_slow_or_coarse_one_does_not_widen() {
        let clock = ServerClock::default();
        let server = SystemTime::now() + SECOND * 3600;
        let start = Instant::now();
        clock.observe(server - SECOND * 2, ATTRIBUTE_GRAIN, before(start, 5));
        clock.observe(server, ATTRIBUTE_GRAIN, start);
        clock.observe(server - SECOND / 2, HEADER_GRAIN, start);
        clock.observe(server - SECOND * 7, ATTRIBUTE_GRAIN, before(start, 20));
        assert!(clock.earliest() >= server);
        assert!(clock.latest() <= server + start.elapsed() + ATTRIBUTE_GRAIN);
    }

    #[test]
    fn it_follows_a_clock_that_was_set() {
        let clock = ServerClock::default();
        let server = SystemTime::now();
        for set_to in [server + SECOND * 3600, server - SECOND * 3600, server] {
            clock.observe(set_to, HEADER_GRAIN, Instant::now());
            assert!(clock.earliest() >= set_to);
            assert!(clock.latest() < set_to + SECOND * 600);
        }
    }
}
