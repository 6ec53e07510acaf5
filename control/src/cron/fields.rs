//! The fields of a spec as sets, and the search for a local time that matches them.

use croner::{Cron, CronComponent, Weekday};
use jiff::civil::{Date, DateTime, Time};

/// The seconds that match, by local time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    cron: Box<Cron>,
    seconds: Set,
    minutes: Set,
    hours: Set,
}

impl Fields {
    pub(super) fn new(cron: Cron) -> Self {
        let pattern = &cron.pattern;
        let (seconds, minutes, hours) =
            (Set::of(&pattern.seconds), Set::of(&pattern.minutes), Set::of(&pattern.hours));
        Self { cron: Box::new(cron), seconds, minutes, hours }
    }

    /// The name of the first field without any value, as in `,`.
    pub(super) fn empty(&self) -> Option<&'static str> {
        let times = [("seconds", self.seconds), ("minutes", self.minutes), ("hours", self.hours)];
        times.into_iter().find(|(_, set)| set.0 == 0).map(|(name, _)| name)
    }

    /// The days of the month in the spec.
    pub(super) fn days(&self) -> Vec<u16> {
        self.cron.pattern.days.values()
    }

    /// The months in the spec.
    pub(super) fn months(&self) -> Vec<u16> {
        self.cron.pattern.months.values()
    }

    pub(super) fn matches_day(&self, date: Date) -> bool {
        let [month, day] = [date.month(), date.day()].map(|part| u32::from(part.unsigned_abs()));
        let weekday = date.weekday().to_sunday_zero_offset();
        let weekday = Weekday::from_days_from_sunday(u32::from(weekday.unsigned_abs()));
        let pattern = &self.cron.pattern;
        pattern.month_match(month).unwrap_or(false)
            && pattern.day_match(i32::from(date.year()), month, day, weekday).unwrap_or(false)
    }

    /// The first matching second from `from` on and before `end`. Takes as many steps as there are days in
    /// between.
    pub(super) fn first_in(&self, from: DateTime, end: DateTime) -> Option<DateTime> {
        let (mut date, mut earliest) = (from.date(), from.time());
        while date <= end.date() {
            if self.matches_day(date)
                && let Some(time) = self.first_time(earliest)
            {
                let found = date.to_datetime(time);
                return (found < end).then_some(found);
            }
            date = date.tomorrow().ok()?;
            earliest = Time::midnight();
        }
        None
    }

    /// The last matching second before `end` and from `from` on.
    pub(super) fn last_in(&self, from: DateTime, end: DateTime) -> Option<DateTime> {
        let latest = end.checked_sub(jiff::SignedDuration::from_secs(1)).ok()?;
        let (mut date, mut latest) = (latest.date(), latest.time());
        while date >= from.date() {
            if self.matches_day(date)
                && let Some(time) = self.last_time(latest)
            {
                let found = date.to_datetime(time);
                return (found >= from).then_some(found);
            }
            date = date.yesterday().ok()?;
            latest = Time::constant(23, 59, 59, 0);
        }
        None
    }

    fn first_time(&self, from: Time) -> Option<Time> {
        let [hour, minute, second] = parts(from);
        let (first_minute, first_second) = (self.minutes.from(0)?, self.seconds.from(0)?);
        if self.hours.has(hour) {
            if self.minutes.has(minute)
                && let Some(second) = self.seconds.from(second)
            {
                return time(hour, minute, second);
            }
            if let Some(minute) = self.minutes.from(minute + 1) {
                return time(hour, minute, first_second);
            }
        }
        time(self.hours.from(hour + 1)?, first_minute, first_second)
    }

    fn last_time(&self, until: Time) -> Option<Time> {
        let [hour, minute, second] = parts(until);
        let (last_minute, last_second) = (self.minutes.below(60)?, self.seconds.below(60)?);
        if self.hours.has(hour) {
            if self.minutes.has(minute)
                && let Some(second) = self.seconds.below(second + 1)
            {
                return time(hour, minute, second);
            }
            if let Some(minute) = self.minutes.below(minute) {
                return time(hour, minute, last_second);
            }
        }
        time(self.hours.below(hour)?, last_minute, last_second)
    }
}

fn parts(time: Time) -> [u32; 3] {
    [time.hour(), time.minute(), time.second()].map(|part| u32::from(part.unsigned_abs()))
}

fn time(hour: u32, minute: u32, second: u32) -> Option<Time> {
    let part = |part: u32| i8::try_from(part).ok();
    Time::new(part(hour)?, part(minute)?, part(second)?, 0).ok()
}

/// A set of numbers below 60.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn of(component: &CronComponent) -> Self {
        Self(
            component.values().into_iter().filter(|value| *value < 60).fold(0, |set, value| set | 1 << value),
        )
    }

    fn has(self, number: u32) -> bool {
        self.0 & (1 << number) != 0
    }

    /// The smallest number from `number` on, which is at most 60.
    fn from(self, number: u32) -> Option<u32> {
        let left = self.0 >> number;
        (left != 0).then(|| number + left.trailing_zeros())
    }

    /// The greatest number below `number`, which is at most 60.
    fn below(self, number: u32) -> Option<u32> {
        (self.0 & ((1 << number) - 1)).checked_ilog2()
    }
}
