//! Whether the server's clock and this machine's agree.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use super::Verdict;
use crate::output::duration;

/// More than this is told, though nobody asked.
const USUAL_SKEW: Duration = Duration::from_secs(1);

/// How the server's clock, told at some moment while it was asked, differs from this machine's. Nothing if nobody wants to know
/// of a clock that is not told: an embedded backend has none of its own.
pub(super) fn judge(
    told: Option<SystemTime>,
    asked: RangeInclusive<SystemTime>,
    most: Option<Duration>,
) -> Option<(Verdict, String)> {
    let Some(told) = told else {
        return most.map(|_| (Verdict::Warning, "this backend does not tell its clock".to_owned()));
    };
    let behind = asked.start().duration_since(told).unwrap_or_default();
    let ahead = told.duration_since(*asked.end()).unwrap_or_default();
    let (skew, way) = if behind > ahead { (behind, "behind") } else { (ahead, "ahead of") };
    if skew.is_zero() {
        return Some((Verdict::Ok, "the server's clock agrees with this machine's".to_owned()));
    }
    let text = format!("the server's clock is {} {way} this machine's", duration(skew));
    if skew <= most.unwrap_or(USUAL_SKEW) {
        return Some((Verdict::Ok, text));
    }
    let verdict = if most.is_some() { Verdict::Failed } else { Verdict::Warning };
    let advice =
        "let both follow a time server: points in time that are given to messages are off by as much";
    Some((verdict, format!("{text}; {advice}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED_FOR: Duration = Duration::from_millis(50);

    /// The server's clock, so much after the end of the question.
    fn judged(after: i64, most: Option<u64>) -> Option<(Verdict, String)> {
        let begin = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let (end, off) = (begin + ASKED_FOR, Duration::from_millis(after.unsigned_abs()));
        let told = if after < 0 { end - off } else { end + off };
        judge(Some(told), begin..=end, most.map(Duration::from_millis))
    }

    fn verdict(after: i64, most: Option<u64>) -> Verdict {
        judged(after, most).unwrap().0
    }

    #[test]
    fn a_clock_within_the_time_of_the_question_agrees() {
        for after in [-50, -20, 0] {
            let (verdict, text) = judged(after, Some(0)).unwrap();
            assert!(verdict == Verdict::Ok && text.contains("agrees"), "{after}: {text}");
        }
    }

    #[test]
    fn a_clock_beyond_the_limit_fails_the_gate_and_says_which_way() {
        assert!(verdict(300, Some(300)) == Verdict::Ok);
        assert!(verdict(301, Some(300)) == Verdict::Failed);
        assert!(verdict(-351, Some(300)) == Verdict::Failed);
        assert!(judged(301, Some(300)).unwrap().1.starts_with("the server's clock is 301ms ahead of this"));
        assert!(judged(-351, Some(300)).unwrap().1.starts_with("the server's clock is 301ms behind this"));
    }

    #[test]
    fn without_a_limit_a_second_is_worth_a_warning() {
        assert!(verdict(1000, None) == Verdict::Ok);
        assert!(verdict(1001, None) == Verdict::Warning);
    }

    #[test]
    fn a_clock_that_is_not_told_matters_only_to_who_asks() {
        let now = SystemTime::now();
        assert!(judge(None, now..=now, None).is_none());
        assert!(judge(None, now..=now, Some(USUAL_SKEW)).unwrap().0 == Verdict::Warning);
    }
}
