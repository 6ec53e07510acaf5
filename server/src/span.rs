//! Steps of time, and the tasks that ended in them.

use std::time::{Duration, SystemTime};

use anyqueue::{EndState, Histogram, SeriesRow, SeriesStep};

/// The length of time that is looked back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Span {
    #[default]
    Hour,
    Day,
    Week,
}

impl Span {
    pub(crate) const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
        }
    }

    /// The span with this name; an hour if there is none.
    pub(crate) fn named(name: Option<&str>) -> Self {
        Self::ALL.into_iter().find(|span| Some(span.name()) == name).unwrap_or_default()
    }

    /// The length of its steps in minutes; they begin at multiples of that length in UTC.
    pub(crate) const fn step_minutes(self) -> u64 {
        match self {
            Self::Hour => 5,
            Self::Day => 60,
            Self::Week => 360,
        }
    }

    /// How many complete steps it has; the current one is one more.
    pub(crate) const fn whole_steps(self) -> u64 {
        match self {
            Self::Hour => 12,
            Self::Day => 24,
            Self::Week => 28,
        }
    }

    /// The minute in which the span begins.
    pub(crate) fn first(self, now: u64) -> u64 {
        let step = self.step_minutes();
        (now - now % step).saturating_sub(self.whole_steps() * step)
    }

    pub(crate) const fn grain(self) -> Grain {
        match self {
            Self::Hour => Grain::FiveMinutes,
            Self::Day | Self::Week => Grain::Hours,
        }
    }
}

/// The length of the steps that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Grain {
    FiveMinutes,
    Hours,
}

impl Grain {
    pub(crate) const fn minutes(self) -> u64 {
        match self {
            Self::FiveMinutes => 5,
            Self::Hours => 60,
        }
    }

    pub(crate) const fn asked_by(self) -> SeriesStep {
        match self {
            Self::FiveMinutes => SeriesStep::Minute,
            Self::Hours => SeriesStep::Hour,
        }
    }

    /// The longest span that is shown with steps of this length.
    pub(crate) const fn longest(self) -> Span {
        match self {
            Self::FiveMinutes => Span::Hour,
            Self::Hours => Span::Week,
        }
    }

    /// How many minutes are asked for at once: this bounds what an answer holds.
    pub(crate) const fn asked_minutes(self) -> u64 {
        match self {
            Self::FiveMinutes => 60,
            Self::Hours => 120,
        }
    }
}

/// The tasks that ended in a step of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Step {
    /// The counts, in the order of [`EndState::ALL`].
    states: [u64; EndState::ALL.len()],
    /// How long tasks took and waited, without the cancelled ones: these may never have run.
    pub(crate) ran: Histogram,
    pub(crate) waited: Histogram,
}

impl Step {
    pub(crate) fn add(&mut self, row: &SeriesRow) {
        for (state, count) in EndState::ALL.iter().zip(&mut self.states) {
            *count = count.saturating_add(if *state == row.state { row.tasks } else { 0 });
        }
        if row.state != EndState::Cancelled {
            self.ran.merge(&row.ran_histogram);
            self.waited.merge(&row.waited_histogram);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, more) in self.states.iter_mut().zip(other.states) {
            *count = count.saturating_add(more);
        }
        self.ran.merge(&other.ran);
        self.waited.merge(&other.waited);
    }

    pub(crate) fn count(&self, state: EndState) -> u64 {
        let mut all = EndState::ALL.iter().zip(self.states);
        all.find(|(known, _)| **known == state).map_or(0, |(_, count)| count)
    }

    pub(crate) fn tasks(&self) -> u64 {
        self.states.iter().fold(0, |all, count| all.saturating_add(*count))
    }
}

/// The time at which a minute begins; minutes are counted from 1970.
pub(crate) fn moment_of(minute: u64) -> SystemTime {
    let since_1970 = Duration::from_secs(minute.saturating_mul(60));
    SystemTime::UNIX_EPOCH.checked_add(since_1970).unwrap_or(SystemTime::UNIX_EPOCH)
}
