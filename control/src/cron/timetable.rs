//! When a spec is due in a zone.

use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::fields::Fields;
use super::segment::{Change, SECOND, Segment};
use super::spec::{Spec, When};
use super::zone::Zone;

/// How far ahead to look for an occurrence. In this time, the 29th of February falls on any given weekday at
/// least once.
const HORIZON: SignedDuration = SignedDuration::from_hours(41 * 366 * 24);

/// What happens to a fixed time that the clocks skip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// It moves to the first moment after the gap; several times that are skipped together occur once.
    #[default]
    Shift,
    /// It does not occur.
    Skip,
}

/// Which of the two passes of a fixed time counts, if the clocks show it twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The first.
    #[default]
    First,
    /// The last.
    Last,
}

/// When a [`Spec`] is due by the clocks of a [`Zone`]. See the [module](super) for what happens when the
/// clocks change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    spec: Spec,
    zone: Zone,
    gap: Gap,
    overlap: Overlap,
}

/// A time at which a [`Timetable`] is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    at: Timestamp,
    offset: Offset,
    is_shifted: bool,
}

impl Occurrence {
    /// The time, in whole seconds.
    #[must_use]
    pub fn at(&self) -> SystemTime {
        self.at.into()
    }

    /// What the clocks of the zone show at that time, with their offset from UTC, as in
    /// `2026-03-29T03:00:00+02:00`.
    #[must_use]
    pub fn local(&self) -> String {
        self.at.display_with_offset(self.offset).to_string()
    }

    /// Returns whether the clocks skip its time, so that it occurs at the first moment after the gap.
    #[must_use]
    pub const fn is_shifted(&self) -> bool {
        self.is_shifted
    }
}

impl Timetable {
    /// Makes a timetable with the defaults for gaps and overlaps.
    #[must_use]
    pub fn new(spec: Spec, zone: Zone) -> Self {
        Self { spec, zone, gap: Gap::default(), overlap: Overlap::default() }
    }

    /// Sets what happens to fixed times that the clocks skip.
    #[must_use]
    pub const fn with_gap(mut self, gap: Gap) -> Self {
        self.gap = gap;
        self
    }

    /// Sets which pass counts for fixed times that the clocks show twice.
    #[must_use]
    pub const fn with_overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Returns the first occurrence after a time, excluding that time; `None` if there is none within 41
    /// years, or before the end of the year 9999. It takes at most some milliseconds, for specs that are due
    /// every few years.
    ///
    /// For a spec that counts from the end of the last run, this is the end of the pause after a run that
    /// ends at this time.
    #[must_use]
    pub fn next_after(&self, time: SystemTime) -> Option<Occurrence> {
        let time = Timestamp::try_from(time).ok()?;
        let (fields, follows_clock) = match self.spec.when() {
            When::Clock { fields, follows_clock } => (&**fields, *follows_clock),
            When::After(pause) => return self.after_pause(time, *pause),
        };
        let mut from = floor(time)?.checked_add(SECOND).ok()?;
        let horizon = from.saturating_add(HORIZON).ok()?;
        while from <= horizon {
            let segment = Segment::of(self.zone.time_zone(), from);
            if let Some(shifted) = segment
                .start
                .filter(|start| start.at == from && !follows_clock)
                .and_then(|start| self.shifted(fields, start))
            {
                return Some(shifted);
            }
            let end = segment.end.map_or(horizon, |end| end.at.min(horizon));
            let (first, last) = self.range(&segment, from, end, follows_clock);
            if let Some(found) = fields.first_in(first, last) {
                return on(found, segment.offset);
            }
            from = segment.end?.at;
        }
        None
    }

    /// Returns the last occurrence before a time, excluding that time; `None` if there is none in the 41
    /// years before, or if the spec counts from the ends of runs. It takes as long as
    /// [`next_after`](Self::next_after).
    #[must_use]
    pub fn latest_before(&self, time: SystemTime) -> Option<Occurrence> {
        let When::Clock { fields, follows_clock } = self.spec.when() else { return None };
        let time = Timestamp::try_from(time).ok()?;
        let seconds = floor(time)?;
        let mut until = if seconds == time { seconds } else { seconds.checked_add(SECOND).ok()? };
        let horizon = until.saturating_sub(HORIZON).ok()?;
        while until > horizon {
            let segment = Segment::of(self.zone.time_zone(), until.checked_sub(SECOND).ok()?);
            let start = segment.start.map_or(horizon, |start| start.at.max(horizon));
            let (first, last) = self.range(&segment, start, until, *follows_clock);
            if let Some(found) = fields.last_in(first, last) {
                return on(found, segment.offset);
            }
            let start = segment.start?;
            if let Some(shifted) =
                Some(start).filter(|_| !follows_clock).and_then(|start| self.shifted(fields, start))
            {
                return Some(shifted);
            }
            until = start.at;
        }
        None
    }

    /// Returns the occurrences after a time, in order. The iterator ends where
    /// [`next_after`](Self::next_after) finds none.
    pub fn after(&self, time: SystemTime) -> impl Iterator<Item = Occurrence> + '_ {
        std::iter::successors(self.next_after(time), |last| self.next_after(last.at()))
    }

    /// The spec.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The time zone.
    #[must_use]
    pub const fn zone(&self) -> &Zone {
        &self.zone
    }

    /// What happens to fixed times that the clocks skip.
    #[must_use]
    pub const fn gap(&self) -> Gap {
        self.gap
    }

    /// Which pass counts for fixed times that the clocks show twice.
    #[must_use]
    pub const fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// The first whole second at which the pause is over.
    fn after_pause(&self, time: Timestamp, pause: Duration) -> Option<Occurrence> {
        let seconds = floor(time)?;
        let whole = if seconds == time { seconds } else { seconds.checked_add(SECOND).ok()? };
        let at = whole.checked_add(SignedDuration::try_from(pause).ok()?).ok()?;
        Some(Occurrence { at, offset: self.zone.time_zone().to_offset(at), is_shifted: false })
    }

    /// The occurrence at the end of a gap that contains fixed times.
    fn shifted(&self, fields: &Fields, change: Change) -> Option<Occurrence> {
        if self.gap == Gap::Skip {
            return None;
        }
        let (first, end) = change.skipped()?;
        fields.first_in(first, end)?;
        let offset = self.zone.time_zone().to_offset(change.at);
        Some(Occurrence { at: change.at, offset, is_shifted: true })
    }

    /// What the clocks show in a part of a segment, without the pass of repeated times that does not count.
    fn range(
        &self,
        segment: &Segment,
        from: Timestamp,
        until: Timestamp,
        follows_clock: bool,
    ) -> (DateTime, DateTime) {
        let (mut first, mut end) = (segment.offset.to_datetime(from), segment.offset.to_datetime(until));
        if follows_clock {
            return (first, end);
        }
        match self.overlap {
            Overlap::First => {
                if let Some((_, counted)) = segment.start.and_then(|change| change.repeated()) {
                    first = first.max(counted);
                }
            }
            Overlap::Last => {
                if let Some((counted, _)) = segment.end.and_then(|change| change.repeated()) {
                    end = end.min(counted);
                }
            }
        }
        (first, end)
    }
}

fn on(civil: DateTime, offset: Offset) -> Option<Occurrence> {
    Some(Occurrence { at: offset.to_timestamp(civil).ok()?, offset, is_shifted: false })
}

/// Removes the fraction of a second, towards the past.
fn floor(time: Timestamp) -> Option<Timestamp> {
    let whole = Timestamp::from_second(time.as_second()).ok()?;
    if whole > time { whole.checked_sub(SECOND).ok() } else { Some(whole) }
}
