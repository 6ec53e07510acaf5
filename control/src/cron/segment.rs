//! The time between two changes of a zone's clocks.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

pub(super) const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// A time span in which the clocks keep one offset, and the changes at its ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) offset: Offset,
    pub(super) start: Option<Change>,
    pub(super) end: Option<Change>,
}

/// A change of the clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) at: Timestamp,
    before: Offset,
    after: Offset,
}

impl Segment {
    /// The segment that contains this moment.
    pub(super) fn of(zone: &TimeZone, moment: Timestamp) -> Self {
        let behind = moment.checked_add(SECOND).ok().and_then(|next| zone.preceding(next).next());
        let ahead = zone.following(moment).next();
        Self {
            offset: zone.to_offset(moment),
            start: behind.and_then(|change| Change::at(zone, change.timestamp())),
            end: ahead.and_then(|change| Change::at(zone, change.timestamp())),
        }
    }
}

impl Change {
    fn at(zone: &TimeZone, at: Timestamp) -> Option<Self> {
        let before = at.checked_sub(SECOND).ok()?;
        Some(Self { at, before: zone.to_offset(before), after: zone.to_offset(at) })
    }

    /// The times that no clock shows, the last one excluded.
    pub(super) fn skipped(&self) -> Option<(DateTime, DateTime)> {
        (self.after > self.before)
            .then(|| (self.before.to_datetime(self.at), self.after.to_datetime(self.at)))
    }

    /// The times that clocks show twice, the last one excluded.
    pub(super) fn repeated(&self) -> Option<(DateTime, DateTime)> {
        (self.after < self.before)
            .then(|| (self.after.to_datetime(self.at), self.before.to_datetime(self.at)))
    }
}
