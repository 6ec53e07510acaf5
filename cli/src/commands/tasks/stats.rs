//! `anyqueue tasks stats`.

use std::time::{Duration, SystemTime};

use anyqueue::{EndState, Histogram, PartitionId, Queue, SeriesQuery, SeriesRow, SeriesStep};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::filter::moment;
use super::line;
use crate::failure::Result;
use crate::output::{Output, Table};
use crate::session::queue_name;

/// Shows how many tasks ended, how many of them failed, and how long they waited and ran
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tasks stats mail
  anyqueue tasks stats mail --since 6h --by minute --kind invoice
  anyqueue tasks stats mail --since 7d --by day --json >> stats.ndjson

The backend counts ends as they happen, even those that are not kept, so no task is read. A time such as 24h includes the
whole first minute; counts are kept for eight days. Dead letters count as failed. `failed %` and the times leave out
cancelled tasks. Half of the tasks ran for less than `run p50`, and 95 of 100 for less than `run p95`. These are the bounds
of buckets that double from one to the next, so the exact figure can be half as much.")]
pub(crate) struct Stats {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// The time to start from: RFC 3339 in UTC, or how long ago
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = moment)]
    since: SystemTime,
    /// The length of a time step
    #[arg(long, value_name = "STEP", value_enum, default_value_t = By::Hour)]
    by: By,
    /// Only tasks of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    Minute,
    Hour,
    Day,
}

impl By {
    const fn step(self) -> SeriesStep {
        match self {
            Self::Minute => SeriesStep::Minute,
            Self::Hour => SeriesStep::Hour,
            Self::Day => SeriesStep::Day,
        }
    }
}

/// The tasks that ended in one step of time, or in all steps.
#[derive(Clone, Debug, Default)]
struct Sum {
    /// The counts, in the order of [`EndState::ALL`].
    states: [u64; EndState::ALL.len()],
    /// The times of all tasks that were not cancelled.
    ran: Histogram,
    waited: Histogram,
}

impl Sum {
    fn add(&mut self, row: &SeriesRow) {
        for (state, count) in EndState::ALL.iter().zip(&mut self.states) {
            *count += if *state == row.state { row.tasks } else { 0 };
        }
        if row.state != EndState::Cancelled {
            self.ran.merge(&row.ran_histogram);
            self.waited.merge(&row.waited_histogram);
        }
    }

    fn of(&self, state: EndState) -> u64 {
        EndState::ALL
            .iter()
            .zip(self.states)
            .find(|(known, _)| **known == state)
            .map_or(0, |(_, count)| count)
    }

    /// The share of failures among the tasks that were not cancelled; `None` if there are none.
    #[allow(clippy::cast_precision_loss, reason = "a part of a hundred needs no more")]
    fn failure_rate(&self) -> Option<f64> {
        let failed = self.of(EndState::Failed) + self.of(EndState::TimedOut);
        let all = failed + self.of(EndState::Succeeded);
        (all > 0).then(|| failed as f64 / all as f64)
    }

    fn cells(&self, at: String) -> Vec<String> {
        let rate = self.failure_rate().map_or("-".to_owned(), |rate| format!("{:.1}", rate * 100.0));
        let counts = SHOWN.map(|state| self.of(state).to_string());
        let times = [&self.ran, &self.waited].map(|times| [50, 95].map(|percent| below(times, percent)));
        [at].into_iter().chain(counts).chain([rate]).chain(times.into_iter().flatten()).collect()
    }

    fn line(&self, queue: &str, kind: Option<&str>, at: Option<String>) -> StatsLine {
        StatsLine {
            queue: queue.to_owned(),
            kind: kind.map(str::to_owned),
            is_total: at.is_none(),
            at,
            succeeded: self.of(EndState::Succeeded),
            failed: self.of(EndState::Failed),
            timed_out: self.of(EndState::TimedOut),
            cancelled: self.of(EndState::Cancelled),
            failure_rate: self.failure_rate(),
            ran_p50_below_us: micros(&self.ran, 50),
            ran_p95_below_us: micros(&self.ran, 95),
            waited_p50_below_us: micros(&self.waited, 50),
            waited_p95_below_us: micros(&self.waited, 95),
        }
    }
}

/// The states in the order of the table.
const SHOWN: [EndState; 4] = [EndState::Succeeded, EndState::Failed, EndState::TimedOut, EndState::Cancelled];

/// A step, or the total, as JSON. Unknown bounds are left out: there were no tasks, or the time is in the
/// last bucket, which has no bound.
#[derive(Serialize)]
struct StatsLine {
    queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// The time at which the step begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// Whether this is the sum of the others.
    is_total: bool,
    succeeded: u64,
    failed: u64,
    timed_out: u64,
    cancelled: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_p50_below_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_p95_below_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_p50_below_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_p95_below_us: Option<u64>,
}

fn micros(times: &Histogram, percent: u8) -> Option<u64> {
    times.below(percent).map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// A bound for people, in one unit. It is a bound, so it is rounded up.
fn below(times: &Histogram, percent: u8) -> String {
    let Some(time) = times.below(percent) else {
        return if times.count() == 0 { "-".to_owned() } else { "over 3 days".to_owned() };
    };
    let in_unit = |unit: Duration| time.as_nanos().div_ceil(unit.as_nanos());
    match time {
        time if time < Duration::from_millis(10) => format!("{}us", in_unit(Duration::from_micros(1))),
        time if time < Duration::from_secs(10) => format!("{}ms", in_unit(Duration::from_millis(1))),
        time if time < Duration::from_mins(10) => format!("{}s", in_unit(Duration::from_secs(1))),
        time if time < Duration::from_hours(10) => format!("{}m", in_unit(Duration::from_mins(1))),
        _ => format!("{}h", in_unit(Duration::from_hours(1))),
    }
}

/// Returns the sum of each step in which any task ended, and the total.
fn sums(rows: &[SeriesRow]) -> (Vec<(SystemTime, Sum)>, Sum) {
    let (mut steps, mut total): (Vec<(SystemTime, Sum)>, _) = (Vec::new(), Sum::default());
    for row in rows {
        if steps.last().is_none_or(|(at, _)| *at != row.at) {
            steps.push((row.at, Sum::default()));
        }
        if let Some((_, sum)) = steps.last_mut() {
            sum.add(row);
        }
        total.add(row);
    }
    (steps, total)
}

impl Stats {
    pub(super) async fn run(self, queue: &Queue, output: Output) -> Result {
        let mut query = SeriesQuery::since(self.since).by(self.by.step());
        query.kind = self.kind.as_deref().map(Into::into);
        let (steps, total) = sums(&queue.series(&self.queue, &query).await?);
        if output.json {
            let line = |sum: &Sum, at| output.object(&sum.line(self.queue.name(), self.kind.as_deref(), at));
            steps.iter().try_for_each(|(at, sum)| line(sum, Some(line::moment(*at))))?;
            return line(&total, None);
        }
        let mut table = Table::new(&[
            "since",
            "succeeded",
            "failed",
            "timed out",
            "cancelled",
            "failed %",
            "run p50",
            "run p95",
            "wait p50",
            "wait p95",
        ]);
        for (at, sum) in &steps {
            // To the minute: a step begins at a whole minute.
            let at: String = line::moment(*at).chars().take("1970-01-01T00:00".len()).collect();
            table.row(sum.cells(format!("{}Z", at.replace('T', " "))));
        }
        table.row(total.cells("total".to_owned()));
        table.print(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(minute: u64, state: EndState, tasks: u64, ran_bucket: u8) -> SeriesRow {
        let mut row = SeriesRow::new(SystemTime::UNIX_EPOCH + Duration::from_mins(minute), None, state);
        row.tasks = tasks;
        row.ran_histogram.add(ran_bucket, tasks);
        row.waited_histogram.add(39, tasks);
        row
    }

    #[test]
    fn what_was_cancelled_is_counted_and_left_out_of_rates_and_times() {
        let rows = [
            row(1, EndState::Cancelled, 50, 0),
            row(1, EndState::Failed, 1, 3),
            row(1, EndState::Succeeded, 2, 10),
            row(2, EndState::TimedOut, 1, 14),
        ];
        let (steps, total) = sums(&rows);
        let cells = steps[0].1.cells("a".to_owned());
        let wanted = ["a", "2", "1", "0", "50", "33.3", "1024us", "1024us", "over 3 days", "over 3 days"];
        assert_eq!(cells, wanted);
        assert_eq!((steps.len(), total.failure_rate()), (2, Some(0.5)));
        assert_eq!(micros(&total.ran, 95), Some(1 << 14));
        let of_nothing = Sum::default().cells("b".to_owned());
        assert_eq!(of_nothing[4..], ["0", "-", "-", "-", "-", "-"]);
    }

    #[test]
    fn bounds_have_one_unit_for_people_and_are_never_less_than_they_are() {
        let told = [0, 13, 14, 23, 24, 29, 30, 35, 36, 38].map(|bucket| {
            let mut times = Histogram::default();
            times.add(bucket, 1);
            below(&times, 50)
        });
        let wanted = ["1us", "8192us", "17ms", "8389ms", "17s", "537s", "18m", "573m", "20h", "77h"];
        assert_eq!(told, wanted);
    }
}
