//! The state of the queues over time, while somebody watched.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use crate::queues::QueueInfo;

/// The most points that are kept for a queue, and for all queues together.
const MAX_POINTS: usize = 900;
/// Older points are not shown.
const MAX_AGE: Duration = Duration::from_mins(15);

/// What the counts of a queue do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Tasks that succeeded since the previous sample; `None` where no ends are kept, or there was no
    /// previous sample.
    pub(crate) succeeded: Option<u64>,
    /// How long the oldest message that can be pulled has waited.
    pub(crate) oldest: Option<Duration>,
}

/// The state of a queue, or of all together, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) at: SystemTime,
    pub(crate) ready: u64,
    pub(crate) leased: u64,
    pub(crate) oldest: Option<Duration>,
    /// Per second since the previous point; `None` where that is not known.
    pub(crate) rates: Option<Rates>,
}

/// Tasks per second. What left the queue and what the ledger records are not read at the same instant, so a
/// single rate may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) pushed: f64,
    pub(crate) succeeded: f64,
    pub(crate) died: f64,
}

/// A queue in two consecutive samples.
pub(crate) struct Look<'a> {
    pub(crate) now: &'a QueueInfo,
    pub(crate) reading: Reading,
    pub(crate) before: Option<&'a QueueInfo>,
}

/// The last points of each queue, and of all together.
#[derive(Debug, Default)]
pub(crate) struct History {
    all: VecDeque<Point>,
    of: HashMap<String, VecDeque<Point>>,
}

impl History {
    /// Adds a point for each queue; queues that are gone are forgotten.
    pub(crate) fn note(&mut self, at: SystemTime, since: Option<SystemTime>, looks: &[Look<'_>]) {
        let passed = since.and_then(|since| at.duration_since(since).ok()).filter(|passed| !passed.is_zero());
        let points: Vec<_> = looks.iter().map(|look| point(at, passed, look)).collect();
        push(&mut self.all, sum(at, &points));
        self.of.retain(|name, _| looks.iter().any(|look| look.now.partition == *name));
        for (look, point) in looks.iter().zip(points) {
            push(self.of.entry(look.now.partition.clone()).or_default(), point);
        }
    }

    pub(crate) fn of_all(&self) -> Vec<Point> {
        self.all.iter().copied().collect()
    }

    pub(crate) fn of(&self, name: &str) -> Vec<Point> {
        self.of.get(name).into_iter().flatten().copied().collect()
    }
}

fn push(points: &mut VecDeque<Point>, point: Point) {
    // If the clock was set back, the history starts anew.
    if points.back().is_some_and(|last| last.at > point.at) {
        points.clear();
    }
    let is_old = |first: &Point| point.at.duration_since(first.at).is_ok_and(|age| age > MAX_AGE);
    while points.len() >= MAX_POINTS || points.front().is_some_and(is_old) {
        points.pop_front();
    }
    points.push_back(point);
}

fn point(at: SystemTime, passed: Option<Duration>, look: &Look<'_>) -> Point {
    let rates = match (passed, look.before, look.reading.succeeded) {
        (Some(passed), Some(before), Some(succeeded)) => Some(rates(look.now, before, succeeded, passed)),
        _ => None,
    };
    let (ready, leased) = (look.now.ready.unwrap_or(0), look.now.leased.unwrap_or(0));
    Point { at, ready, leased, oldest: look.reading.oldest, rates }
}

/// What was pushed is there now, or has ended. What was deleted or cancelled counts as not pushed.
#[allow(clippy::cast_precision_loss, reason = "a rate on a chart")]
fn rates(now: &QueueInfo, before: &QueueInfo, succeeded: u64, passed: Duration) -> Rates {
    let held = |queue: &QueueInfo| {
        let all = [queue.ready, queue.delayed, queue.leased, queue.disabled, queue.dead];
        all.into_iter().flatten().fold(0, u64::saturating_add) as f64
    };
    let dead = |queue: &QueueInfo| queue.dead.unwrap_or(0) as f64;
    let (seconds, succeeded) = (passed.as_secs_f64(), succeeded as f64);
    Rates {
        pushed: (held(now) - held(before) + succeeded) / seconds,
        succeeded: succeeded / seconds,
        died: (dead(now) - dead(before)).max(0.0) / seconds,
    }
}

fn sum(at: SystemTime, points: &[Point]) -> Point {
    let mut all = Point { at, ready: 0, leased: 0, oldest: None, rates: None };
    for point in points {
        all.ready = all.ready.saturating_add(point.ready);
        all.leased = all.leased.saturating_add(point.leased);
        all.oldest = all.oldest.max(point.oldest);
        if let Some(rates) = point.rates {
            let sum = all.rates.get_or_insert_default();
            sum.pushed += rates.pushed;
            sum.succeeded += rates.succeeded;
            sum.died += rates.died;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn queue(name: &str, ready: u64, dead: u64) -> QueueInfo {
        let (partition, none) = (name.to_owned(), Some(0));
        QueueInfo {
            partition,
            ready: Some(ready),
            delayed: none,
            leased: none,
            disabled: none,
            dead: Some(dead),
            paused: None,
        }
    }

    fn seconds(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn what_was_pushed_is_there_or_has_ended() {
        let (before, now) = (queue("a", 10, 1), queue("a", 4, 3));
        let reading = Reading { succeeded: Some(24), oldest: Some(Duration::from_secs(7)) };
        let mut history = History::default();
        history.note(seconds(0), None, &[Look { now: &before, reading: Reading::default(), before: None }]);
        history.note(seconds(2), Some(seconds(0)), &[Look { now: &now, reading, before: Some(&before) }]);
        let points = history.of("a");
        assert_eq!((points[0].rates, points[0].ready), (None, 10));
        assert_eq!(points[1].rates, Some(Rates { pushed: 10.0, succeeded: 12.0, died: 1.0 }));
        assert_eq!((history.of_all()[1].oldest, points[1].ready), (reading.oldest, 4));
    }

    #[test]
    fn all_together_are_summed_and_what_is_gone_is_forgotten() {
        let (one, other) = (queue("a", 1, 0), queue("b", 2, 0));
        let look = |now| Look { now, reading: Reading::default(), before: None };
        let mut history = History::default();
        history.note(seconds(0), None, &[look(&one), look(&other)]);
        history.note(seconds(1), None, &[look(&other)]);
        assert_eq!(history.of_all().iter().map(|point| point.ready).collect::<Vec<_>>(), [3, 2]);
        assert_eq!((history.of("a").len(), history.of("b").len()), (0, 2));
    }

    #[test]
    fn no_more_points_are_kept_than_are_drawn() {
        let one = queue("a", 1, 0);
        let mut history = History::default();
        for second in 0..=MAX_POINTS as u64 {
            history.note(
                seconds(second),
                None,
                &[Look { now: &one, reading: Reading::default(), before: None }],
            );
        }
        assert_eq!((history.of("a").len(), history.of("a")[0].at), (MAX_POINTS, seconds(1)));
    }

    #[test]
    fn what_is_old_or_after_a_clock_was_set_back_is_not_shown() {
        let one = queue("a", 1, 0);
        let look = || [Look { now: &one, reading: Reading::default(), before: None }];
        let mut history = History::default();
        for second in [10_000, 10_001, 11_000] {
            history.note(seconds(second), None, &look());
        }
        assert_eq!(history.of("a").len(), 1, "nobody watched for a quarter of an hour");
        history.note(seconds(5000), None, &look());
        assert_eq!((history.of("a").len(), history.of_all()[0].at), (1, seconds(5000)));
    }
}
