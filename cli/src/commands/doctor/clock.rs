//! Whether the server's clock and this machine's agree.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::Reach;

use super::findings::Verdict;
use crate::output::duration;

/// A larger difference is a warning even without a limit.
const USUAL_SKEW: Duration = Duration::from_secs(1);

/// The two clocks to compare.
pub(super) struct Clocks {
    /// The server's clock, if it tells.
    pub(super) server: Option<SystemTime>,
    /// This machine's clock, from before the question until after the reply.
    pub(super) asked: RangeInclusive<SystemTime>,
    /// Who shares the messages: a backend on a single machine uses that machine's clock.
    pub(super) reach: Reach,
}

impl Clocks {
    /// Compares the clocks. If there is a limit and it cannot be measured, the check fails.
    pub(super) fn judge(&self, most: Option<Duration>) -> (Verdict, String) {
        match self.server {
            Some(server) => self.compare(server, most),
            None if self.reach != Reach::Network => {
                (Verdict::Ok, "it is this machine's: the backend has no clock of its own".to_owned())
            }
            None if most.is_some() => {
                let text =
                    "this backend does not tell its clock: --max-clock-skew cannot be measured, so it fails";
                (Verdict::Failed, text.to_owned())
            }
            None => (Verdict::Unknown, "unknown: this backend does not tell its clock".to_owned()),
        }
    }

    fn compare(&self, server: SystemTime, most: Option<Duration>) -> (Verdict, String) {
        let behind = self.asked.start().duration_since(server).unwrap_or_default();
        let ahead = server.duration_since(*self.asked.end()).unwrap_or_default();
        let (skew, way) = if behind > ahead { (behind, "behind") } else { (ahead, "ahead of") };
        if skew.is_zero() {
            return (Verdict::Ok, "the server's clock agrees with this machine's".to_owned());
        }
        let text = format!("the server's clock is {} {way} this machine's", duration(skew));
        if skew <= most.unwrap_or(USUAL_SKEW) {
            return (Verdict::Ok, text);
        }
        let verdict = if most.is_some() { Verdict::Failed } else { Verdict::Warning };
        let advice =
            "synchronise both with a time server: the times given with messages are wrong by as much";
        (verdict, format!("{text}; {advice}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED_FOR: Duration = Duration::from_millis(50);

    /// Judges a server's clock that is this many milliseconds after the end of the question.
    fn judged(after: i64, most: Option<u64>) -> (Verdict, String) {
        let begin = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let (end, off) = (begin + ASKED_FOR, Duration::from_millis(after.unsigned_abs()));
        let server = if after < 0 { end - off } else { end + off };
        let clocks = Clocks { server: Some(server), asked: begin..=end, reach: Reach::Network };
        clocks.judge(most.map(Duration::from_millis))
    }

    /// The verdict if the server does not tell its clock.
    fn unknown(reach: Reach, most: Option<Duration>) -> Verdict {
        let now = SystemTime::now();
        Clocks { server: None, asked: now..=now, reach }.judge(most).0
    }

    fn verdict(after: i64, most: Option<u64>) -> Verdict {
        judged(after, most).0
    }

    #[test]
    fn a_clock_within_the_time_of_the_question_agrees() {
        for after in [-50, -20, 0] {
            let (verdict, text) = judged(after, Some(0));
            assert!(verdict == Verdict::Ok && text.contains("agrees"), "{after}: {text}");
        }
    }

    #[test]
    fn a_clock_beyond_the_limit_fails_the_gate_and_says_which_way() {
        assert!(verdict(300, Some(300)) == Verdict::Ok);
        assert!(verdict(301, Some(300)) == Verdict::Failed);
        assert!(verdict(-351, Some(300)) == Verdict::Failed);
        assert!(judged(301, Some(300)).1.starts_with("the server's clock is 301ms ahead of this"));
        assert!(judged(-351, Some(300)).1.starts_with("the server's clock is 301ms behind this"));
    }

    #[test]
    fn without_a_limit_a_second_is_worth_a_warning() {
        assert!(verdict(1000, None) == Verdict::Ok);
        assert!(verdict(1001, None) == Verdict::Warning);
    }

    #[test]
    fn an_unknown_clock_fails_only_where_a_limit_was_given() {
        assert!(unknown(Reach::Network, None) == Verdict::Unknown);
        assert!(unknown(Reach::Network, Some(USUAL_SKEW)) == Verdict::Failed);
    }

    #[test]
    fn a_backend_on_this_machine_alone_goes_by_its_clock() {
        for reach in [Reach::Process, Reach::Host] {
            assert!(unknown(reach, Some(Duration::ZERO)) == Verdict::Ok);
        }
    }
}
