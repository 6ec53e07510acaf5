//! How long a lease can be trusted if several extensions of it were in flight at once.
//!
//! The heartbeat and the application extend the same lease, and each extension replaces the end that the one
//! before it set. If two were in flight together, their results do not tell which one the server applied
//! last. So neither is trusted beyond what the other would have left of the lease.

use std::time::{Duration, Instant};

use crate::clock::far;

/// Extensions of one lease that may have been applied in any order.
#[derive(Debug, Default)]
pub(super) struct Crossing {
    /// Those in flight. There are few: the heartbeat gives up each one within a lease, and the application
    /// asks for one at a time.
    open: Vec<Open>,
    doubt: Option<Doubt>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    duration: Duration,
    /// The earliest end of the lease if this extension is granted.
    end: Instant,
}

/// Extensions without a result, which the server may have applied or may still apply.
#[derive(Debug)]
struct Doubt {
    shortest: Duration,
    /// None of them is applied after this.
    until: Instant,
}

impl Crossing {
    /// Notes that an extension is asked for.
    pub(super) fn begin(&mut self, number: u64, now: Instant, duration: Duration) {
        let mut end = far(now, duration);
        for other in &mut self.open {
            // Whichever is applied last sets the end of the lease to its own duration after that, at the
            // earliest counted from now.
            other.end = other.end.min(far(now, duration));
            end = end.min(far(now, other.duration));
        }
        match &self.doubt {
            Some(doubt) if now < doubt.until => end = end.min(far(now, doubt.shortest)),
            _ => self.doubt = None,
        }
        self.open.push(Open { number, duration, end });
    }

    /// Notes that an extension was granted. Returns until when the lease can be trusted because of it; `None`
    /// if it was never asked for.
    pub(super) fn granted(&mut self, number: u64) -> Option<Instant> {
        self.take(number).map(|open| open.end)
    }

    /// Notes that an extension got no result; the server applies it before `until`, if at all.
    pub(super) fn doubted(&mut self, number: u64, until: Instant) {
        let Some(Open { duration, .. }) = self.take(number) else { return };
        let before = self.doubt.take();
        self.doubt = Some(Doubt {
            shortest: before.as_ref().map_or(duration, |doubt| doubt.shortest.min(duration)),
            until: before.map_or(until, |doubt| doubt.until.max(until)),
        });
    }

    fn take(&mut self, number: u64) -> Option<Open> {
        let position = self.open.iter().position(|open| open.number == number)?;
        Some(self.open.swap_remove(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn what_crosses_nothing_is_trusted_as_it_says() {
        let (start, mut crossing) = (Instant::now(), Crossing::default());
        crossing.begin(1, start, secs(30));
        assert_eq!(crossing.granted(1), Some(start + secs(30)));
        crossing.begin(2, start + secs(10), secs(60));
        assert_eq!(crossing.granted(2), Some(start + secs(70)));
        assert_eq!(crossing.granted(2), None);
    }

    #[test]
    fn of_two_that_cross_neither_is_trusted_beyond_what_the_other_leaves() {
        let (start, mut crossing) = (Instant::now(), Crossing::default());
        crossing.begin(1, start, secs(60));
        crossing.begin(2, start + secs(1), secs(3));
        assert_eq!(crossing.granted(2), Some(start + secs(4)));
        assert_eq!(crossing.granted(1), Some(start + secs(4)), "also after the other was answered");
        crossing.begin(3, start + secs(5), secs(3));
        crossing.begin(4, start + secs(6), secs(60));
        assert_eq!(crossing.granted(4), Some(start + secs(9)), "the shorter one may be made after it");
        assert_eq!(crossing.granted(3), Some(start + secs(8)));
    }

    #[test]
    fn what_got_no_answer_is_reckoned_with_until_it_is_too_old() {
        let (start, mut crossing) = (Instant::now(), Crossing::default());
        crossing.begin(1, start, secs(2));
        crossing.doubted(1, start + secs(60));
        crossing.begin(2, start + secs(10), secs(30));
        crossing.doubted(2, start + secs(40));
        crossing.begin(3, start + secs(50), secs(30));
        assert_eq!(crossing.granted(3), Some(start + secs(52)));
        crossing.begin(4, start + secs(60), secs(30));
        assert_eq!(crossing.granted(4), Some(start + secs(90)));
    }
}
