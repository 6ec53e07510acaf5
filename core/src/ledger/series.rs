//! Counts of how many tasks ended in each minute, and how long they waited and ran: kept together with the
//! ends, so that nobody has to scan those.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::end::{EndState, TaskEnd};

/// How long counts of ends are kept, at a resolution of one minute.
pub const SERIES_KEPT: Duration = Duration::from_hours(8 * 24);

/// The largest number of time steps that one call of [`Queue::series`](crate::Queue::series) returns: a
/// little more than a day by the minute.
pub const MAX_SERIES_STEPS: u64 = 1_500;

/// The largest number of rows that one call of [`Queue::series`](crate::Queue::series) returns. Each takes a
/// little less than a kilobyte.
pub const MAX_SERIES_ROWS: usize = 20_000;

/// The longest time that one task adds to the totals of times.
pub const MAX_COUNTED_TIME: Duration = Duration::from_hours(365 * 24);

/// The number of buckets of a [`Histogram`].
pub const HISTOGRAM_BUCKETS: usize = 40;

/// A histogram of durations, with the same buckets everywhere: the first one is for less than a microsecond,
/// number *n* for 2ⁿ⁻¹ microseconds to less than 2ⁿ, and the last, number 39, for 2³⁸ microseconds (three
/// days) or longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; HISTOGRAM_BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; HISTOGRAM_BUCKETS] }
    }
}

impl Histogram {
    /// Returns the number of the bucket for this time.
    #[must_use]
    pub fn bucket(time: Duration) -> u8 {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bits = u64::BITS - micros.leading_zeros();
        u8::try_from(bits).unwrap_or(u8::MAX).min(LAST_BUCKET)
    }

    /// Returns the upper bound of this bucket, which everything in it is below; `None` for the last bucket,
    /// which has no bound, and for numbers beyond it.
    #[must_use]
    pub fn bound(bucket: u8) -> Option<Duration> {
        (bucket < LAST_BUCKET).then(|| Duration::from_micros(1 << bucket))
    }

    /// Adds tasks to a bucket. A number beyond the last bucket counts as the last.
    pub fn add(&mut self, bucket: u8, tasks: u64) {
        if let Some(count) = self.buckets.get_mut(usize::from(bucket.min(LAST_BUCKET))) {
            *count = count.saturating_add(tasks);
        }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, tasks) in (0..).zip(&other.buckets) {
            self.add(bucket, *tasks);
        }
    }

    /// Returns the number of tasks in each bucket.
    #[must_use]
    pub const fn buckets(&self) -> &[u64; HISTOGRAM_BUCKETS] {
        &self.buckets
    }

    /// Returns the number of tasks in all buckets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the bound of the bucket in which the given percentile falls: with 95, at least 95 of 100 tasks
    /// took less than this. It may be up to twice the exact quantile. `None` if there are no tasks, or if the
    /// percentile falls into the last bucket, which has no bound.
    #[must_use]
    pub fn below(&self, percent: u8) -> Option<Duration> {
        let wanted = self.count().checked_mul(u64::from(percent.min(100)))?.div_ceil(100).max(1);
        let mut passed = 0;
        for (bucket, tasks) in (0..).zip(&self.buckets) {
            passed += tasks;
            if passed >= wanted {
                return Self::bound(bucket);
            }
        }
        None
    }
}

const LAST_BUCKET: u8 = 39;
const _: () = assert!(LAST_BUCKET as usize + 1 == HISTOGRAM_BUCKETS);

/// The key of a counter of ends. Counters are ordered by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// The minute in which the tasks ended by the server's clock, in whole minutes since 1970.
    pub minute: u64,
    /// The kind of task, if there is one and it is not empty.
    pub kind: Option<Arc<str>>,
    /// How the tasks ended.
    pub state: EndState,
    /// The [bucket](Histogram::bucket) for how long each task ran.
    pub ran_bucket: u8,
    /// The bucket for how long each task waited.
    pub waited_bucket: u8,
}

/// A counter of ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeriesCell {
    /// Which ends this counts.
    pub key: SeriesKey,
    /// The number of tasks.
    pub tasks: u64,
    /// How long the tasks ran in all, each counted to the microsecond and with at most [`MAX_COUNTED_TIME`].
    pub ran: Duration,
    /// How long the tasks waited in all, counted in the same way.
    pub waited: Duration,
}

impl SeriesCell {
    /// Creates a counter with these values.
    #[must_use]
    pub const fn new(key: SeriesKey, tasks: u64, ran: Duration, waited: Duration) -> Self {
        Self { key, tasks, ran, waited }
    }

    /// Returns what a task adds that ended in this way at this moment of the server's clock.
    #[must_use]
    pub fn of(end: &TaskEnd, ended_at: SystemTime) -> Self {
        let (ran, waited) = (counted(end.ran), counted(end.waited));
        let key = SeriesKey {
            minute: minute_of(ended_at),
            kind: end.kind.clone().filter(|kind| !kind.is_empty()),
            state: end.state,
            ran_bucket: Histogram::bucket(ran),
            waited_bucket: Histogram::bucket(waited),
        };
        Self { key, tasks: 1, ran, waited }
    }

    /// Adds another counter with the same key.
    pub fn add(&mut self, other: &Self) {
        self.tasks = self.tasks.saturating_add(other.tasks);
        self.ran = self.ran.saturating_add(other.ran);
        self.waited = self.waited.saturating_add(other.waited);
    }
}

/// The time as it is counted: in whole microseconds.
fn counted(time: Duration) -> Duration {
    let micros = u64::try_from(time.min(MAX_COUNTED_TIME).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(micros)
}

/// Returns the minute of this moment, in whole minutes since 1970.
#[must_use]
pub fn minute_of(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60)
}

/// Returns the first minute whose counts are kept at this moment; counts before it can be freed.
#[must_use]
pub fn first_minute_kept(now: SystemTime) -> u64 {
    // One more, so that a query for the whole time gets all of it.
    minute_of(now).saturating_sub(SERIES_KEPT.as_secs() / 60 + 1)
}

/// The time steps by which ends are counted. Each begins at a full minute, hour or day in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum SeriesStep {
    /// By the minute.
    Minute,
    /// By the hour.
    #[default]
    Hour,
    /// By the day.
    Day,
}

impl SeriesStep {
    /// Returns the length of a step.
    #[must_use]
    pub const fn length(self) -> Duration {
        match self {
            Self::Minute => Duration::from_mins(1),
            Self::Hour => Duration::from_hours(1),
            Self::Day => Duration::from_hours(24),
        }
    }

    /// In minutes.
    pub(crate) const fn minutes(self) -> u64 {
        self.length().as_secs() / 60
    }
}

/// A query for counts of ends: those of whole minutes from `since` on, by the server's clock.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use anyqueue::{SeriesQuery, SeriesStep};
/// let day = SeriesQuery::since(SystemTime::now() - Duration::from_hours(24)).by(SeriesStep::Hour).of_kind("mail");
/// assert_eq!(day.step, SeriesStep::Hour);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SeriesQuery {
    /// Counts ends from the minute of this moment on.
    pub since: SystemTime,
    /// Counts ends before this moment; if it lies within a minute, that whole minute is included. `None`:
    /// until now.
    pub before: Option<SystemTime>,
    /// The length of the time steps.
    pub step: SeriesStep,
    /// Counts only tasks of this kind.
    pub kind: Option<Arc<str>>,
}

impl SeriesQuery {
    /// Creates a query for everything that ended since this moment, by the hour.
    pub const fn since(since: SystemTime) -> Self {
        Self { since, before: None, step: SeriesStep::Hour, kind: None }
    }

    /// Sets [`before`](Self::before).
    pub const fn before(mut self, before: SystemTime) -> Self {
        self.before = Some(before);
        self
    }

    /// Sets [`step`](Self::step).
    pub const fn by(mut self, step: SeriesStep) -> Self {
        self.step = step;
        self
    }

    /// Sets [`kind`](Self::kind).
    pub fn of_kind(mut self, kind: impl Into<Arc<str>>) -> Self {
        self.kind = Some(kind.into());
        self
    }
}

/// The tasks of one kind that ended in one state within one time step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeriesRow {
    /// When the step begins.
    pub at: SystemTime,
    /// The kind of task, if there is one.
    pub kind: Option<Arc<str>>,
    /// How the tasks ended.
    pub state: EndState,
    /// The number of tasks.
    pub tasks: u64,
    /// How long the tasks ran in all, each counted with at most [`MAX_COUNTED_TIME`].
    pub ran: Duration,
    /// How long the tasks waited in all, from the push to the beginning of the last run.
    pub waited: Duration,
    /// The histogram of how long the tasks ran.
    pub ran_histogram: Histogram,
    /// The histogram of how long the tasks waited.
    pub waited_histogram: Histogram,
}

impl SeriesRow {
    /// Creates a row without tasks.
    #[must_use]
    pub fn new(at: SystemTime, kind: Option<Arc<str>>, state: EndState) -> Self {
        let (ran_histogram, waited_histogram) = (Histogram::default(), Histogram::default());
        let (ran, waited) = (Duration::ZERO, Duration::ZERO);
        Self { at, kind, state, tasks: 0, ran, waited, ran_histogram, waited_histogram }
    }

    pub(crate) fn count(&mut self, cell: &SeriesCell) {
        self.tasks = self.tasks.saturating_add(cell.tasks);
        self.ran = self.ran.saturating_add(cell.ran);
        self.waited = self.waited.saturating_add(cell.waited);
        self.ran_histogram.add(cell.key.ran_bucket, cell.tasks);
        self.waited_histogram.add(cell.key.waited_bucket, cell.tasks);
    }

    /// Adds the tasks of another row to this one, whatever its time, kind and state.
    pub fn merge(&mut self, other: &Self) {
        self.tasks = self.tasks.saturating_add(other.tasks);
        self.ran = self.ran.saturating_add(other.ran);
        self.waited = self.waited.saturating_add(other.waited);
        self.ran_histogram.merge(&other.ran_histogram);
        self.waited_histogram.merge(&other.waited_histogram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn each_time_is_below_the_bound_of_its_bucket_and_not_below_that_of_the_one_before() {
        let times = [0, 1, 2, 3, 4, 1_000, 1_023, 1_024, (1 << 38) - 1];
        for time in times.map(micros) {
            let bucket = Histogram::bucket(time);
            assert!(Histogram::bound(bucket).unwrap() > time, "{time:?} in {bucket}");
            assert!(bucket == 0 || Histogram::bound(bucket - 1).unwrap() <= time, "{time:?} in {bucket}");
        }
        for time in [micros(1 << 38), micros(u64::MAX), Duration::MAX] {
            assert_eq!(Histogram::bucket(time), 39);
        }
        assert_eq!([Histogram::bound(39), Histogram::bound(255)], [None, None]);
    }

    #[test]
    fn a_quantile_is_told_as_the_bound_of_its_bucket() {
        let mut times = Histogram::default();
        assert_eq!(times.below(50), None, "of nothing");
        for time in [1, 5, 5, 5, 5, 5, 5, 5, 5, 900].map(micros) {
            times.add(Histogram::bucket(time), 1);
        }
        assert_eq!([0, 10, 50, 90].map(|percent| times.below(percent)), [2, 2, 8, 8].map(micros).map(Some));
        assert_eq!([91, 95, 100].map(|percent| times.below(percent)), [Some(micros(1024)); 3]);
        times.add(39, 20);
        assert_eq!(times.below(95), None, "the last bucket has no bound");
        let mut both = times.clone();
        both.merge(&times);
        assert_eq!(both.count(), 60);
    }

    #[test]
    fn an_end_is_counted_in_its_minute_to_the_microsecond() {
        let mut end = TaskEnd::new(EndState::Failed);
        (end.ran, end.waited) = (Duration::from_nanos(1_999), Duration::MAX);
        end.kind = Some("".into());
        let cell = SeriesCell::of(&end, SystemTime::UNIX_EPOCH + Duration::from_millis(119_999));
        assert_eq!((cell.key.minute, cell.key.kind, cell.tasks), (1, None, 1));
        assert_eq!((cell.ran, cell.waited), (micros(1), MAX_COUNTED_TIME));
        assert_eq!((cell.key.ran_bucket, cell.key.waited_bucket), (1, 39));
    }
}
