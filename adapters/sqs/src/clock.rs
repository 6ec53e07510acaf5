//! What time it is at the server, as its answers tell.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How far an answer may seem to lie in the past before it is believed that the server's clock was set back: its whole seconds, and
/// the time that an answer may take.
const BELIEVED: Duration = Duration::from_secs(15);

/// The server's clock, never ahead of it: every answer says a time that had come when it arrived.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<Sample>>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    server: SystemTime,
    heard: Instant,
}

impl Sample {
    fn at(self, now: Instant) -> SystemTime {
        self.server + now.saturating_duration_since(self.heard)
    }
}

impl ServerClock {
    /// The server said this time in an answer that arrived just now.
    pub(crate) fn heard(&self, server: SystemTime) {
        let heard = Instant::now();
        let mut sample = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = sample.is_none_or(|known| {
            let expected = known.at(heard);
            server > expected || server + BELIEVED < expected
        });
        if is_news {
            *sample = Some(Sample { server, heard });
        }
    }

    /// The time at the server; this machine's, as long as the server has said nothing.
    pub(crate) fn now(&self) -> SystemTime {
        let sample = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sample.map_or_else(SystemTime::now, |sample| sample.at(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_latest_time_heard_and_a_clock_that_was_set_back() {
        let clock = ServerClock::default();
        let hour = Duration::from_hours(1);
        let ahead = SystemTime::now() + hour;
        clock.heard(ahead);
        clock.heard(ahead - Duration::from_secs(1)); // whole seconds lag behind
        assert!(clock.now() >= ahead);
        assert!(clock.now() < ahead + hour);
        clock.heard(ahead - hour);
        assert!(clock.now() < ahead);
    }
}
