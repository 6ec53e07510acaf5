//! A slow, independent way to find when a spec comes: minute by minute through UTC. Of jiff it takes only what the clocks show.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use anyqueue_control::cron::{Gap, Overlap, Spec, Timetable, Zone};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// A spec with five fields of which the oracle knows the sets; `None` is `*`.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) minutes: Option<Vec<i8>>,
    pub(crate) hours: Option<Vec<i8>>,
    pub(crate) days: Option<Vec<i8>>,
    pub(crate) months: Option<Vec<i8>>,
    /// From Sunday, which is 0.
    pub(crate) weekdays: Option<Vec<i8>>,
    /// How minutes are written if otherwise than as a list: so that `*/15` counts as one with `*`.
    pub(crate) steps: Option<i8>,
}

impl Known {
    pub(crate) fn at(minutes: &[i8], hours: &[i8]) -> Self {
        let fixed = |set: &[i8]| (!set.is_empty()).then(|| set.to_vec());
        Self {
            minutes: fixed(minutes),
            hours: fixed(hours),
            days: None,
            months: None,
            weekdays: None,
            steps: None,
        }
    }

    pub(crate) fn every(minutes: i8) -> Self {
        let all = (0..60).step_by(usize::try_from(minutes).unwrap()).collect();
        Self { minutes: Some(all), steps: Some(minutes), ..Self::at(&[], &[]) }
    }

    pub(crate) fn on(mut self, days: &[i8], weekdays: &[i8]) -> Self {
        let set = |days: &[i8]| (!days.is_empty()).then(|| days.to_vec());
        (self.days, self.weekdays) = (set(days), set(weekdays));
        self
    }

    pub(crate) fn text(&self) -> String {
        let list = |set: &Option<Vec<i8>>| {
            let Some(set) = set else { return "*".to_owned() };
            let mut text = String::new();
            for (place, value) in set.iter().enumerate() {
                write!(text, "{}{value}", if place > 0 { "," } else { "" }).unwrap();
            }
            text
        };
        let minutes = self.steps.map_or_else(|| list(&self.minutes), |step| format!("*/{step}"));
        [minutes, list(&self.hours), list(&self.days), list(&self.months), list(&self.weekdays)].join(" ")
    }

    fn follows_clock(&self) -> bool {
        self.minutes.is_none() || self.hours.is_none() || self.steps.is_some()
    }

    fn matches(&self, civil: DateTime) -> bool {
        let has = |set: &Option<Vec<i8>>, value: i8| set.as_ref().is_none_or(|set| set.contains(&value));
        let weekday = civil.weekday().to_sunday_zero_offset();
        let day = match (&self.days, &self.weekdays) {
            (Some(days), Some(weekdays)) => days.contains(&civil.day()) || weekdays.contains(&weekday),
            _ => has(&self.days, civil.day()) && has(&self.weekdays, weekday),
        };
        day && has(&self.minutes, civil.minute())
            && has(&self.hours, civil.hour())
            && has(&self.months, civil.month())
    }

    pub(crate) fn timetable(&self, zone: &str, gap: Gap, overlap: Overlap) -> Timetable {
        let (spec, zone): (Spec, Zone) = (self.text().parse().unwrap(), zone.parse().unwrap());
        Timetable::new(spec, zone).with_gap(gap).with_overlap(overlap)
    }
}

/// A stretch of time, and what the clocks show in each of its minutes, with a day more on both sides.
pub(crate) struct Window {
    from: Timestamp,
    until: Timestamp,
    minutes: Vec<(Timestamp, DateTime)>,
}

/// More than any change of the clocks.
const MARGIN: SignedDuration = SignedDuration::from_hours(25);

impl Window {
    /// Around a moment, so far on each side.
    pub(crate) fn around(
        zone: &TimeZone,
        moment: Timestamp,
        side: SignedDuration,
        margin: SignedDuration,
    ) -> Self {
        let whole = Timestamp::from_second(moment.as_second().div_euclid(60) * 60).unwrap();
        let (from, until) = (whole - side, whole + side);
        let (mut at, mut minutes) = (from - margin, Vec::new());
        while at <= until + margin {
            minutes.push((at, zone.to_datetime(at)));
            at += MINUTE;
        }
        Self { from, until, minutes }
    }

    pub(crate) fn wide(zone: &TimeZone, moment: Timestamp, side: SignedDuration) -> Self {
        Self::around(zone, moment, side, MARGIN)
    }

    /// When the spec comes in it.
    pub(crate) fn expected(&self, known: &Known, gap: Gap, overlap: Overlap) -> Vec<Timestamp> {
        let counts = self.counted_passes(known, overlap);
        let mut found = Vec::new();
        let mut before: Option<DateTime> = None;
        for ((at, shown), counts) in self.minutes.iter().zip(counts) {
            let mut comes = counts && known.matches(*shown);
            let mut skipped = before.map_or(*shown, |before| before + MINUTE);
            while !comes && gap == Gap::Shift && !known.follows_clock() && skipped < *shown {
                comes = known.matches(skipped);
                skipped += MINUTE;
            }
            before = Some(*shown);
            if comes && *at > self.from && *at < self.until {
                found.push(*at);
            }
        }
        found
    }

    /// For each minute, whether it is in the pass that counts, if the clocks show its time twice.
    fn counted_passes(&self, known: &Known, overlap: Overlap) -> Vec<bool> {
        if known.follows_clock() {
            return vec![true; self.minutes.len()];
        }
        let shown: Vec<_> = self.minutes.iter().map(|(_, shown)| *shown).collect();
        if overlap == Overlap::First {
            let mut latest = DateTime::MIN;
            let is_new = |shown: DateTime| {
                let before = latest;
                latest = latest.max(shown);
                before < shown
            };
            return shown.into_iter().map(is_new).collect();
        }
        let mut earliest = DateTime::MAX;
        let is_last = |shown: DateTime| {
            let after = earliest;
            earliest = earliest.min(shown);
            after > shown
        };
        let mut counts: Vec<_> = shown.into_iter().rev().map(is_last).collect();
        counts.reverse();
        counts
    }

    /// Compares both directions of a timetable with the oracle.
    pub(crate) fn check(&self, known: &Known, zone: &str, gap: Gap, overlap: Overlap) {
        self.check_with(&known.timetable(zone, gap, overlap), known, gap, overlap);
    }

    pub(crate) fn check_with(&self, timetable: &Timetable, known: &Known, gap: Gap, overlap: Overlap) {
        let expected: Vec<SystemTime> =
            self.expected(known, gap, overlap).into_iter().map(SystemTime::from).collect();
        let (from, until) = (SystemTime::from(self.from), SystemTime::from(self.until));
        let forward: Vec<_> =
            timetable.after(from).map(|found| found.at()).take_while(|at| *at < until).collect();
        assert_eq!(forward, expected, "{timetable:?} after {}", self.from);
        let back = |at| timetable.latest_before(at).map(|found| found.at());
        let mut backward: Vec<_> =
            std::iter::successors(back(until), |at| back(*at)).take_while(|at| *at > from).collect();
        backward.reverse();
        assert_eq!(backward, expected, "{timetable:?} before {}", self.until);
        for at in expected.iter().take(2) {
            // Itself is excluded, to the nanosecond.
            let almost = *at - Duration::from_nanos(1);
            assert_eq!(timetable.next_after(almost).map(|found| found.at()), Some(*at));
            assert_eq!(back(*at + Duration::from_nanos(1)), Some(*at));
        }
    }
}
