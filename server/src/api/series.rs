//! How many tasks ended, and how long they took.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::{Histogram, PartitionId, SeriesQuery, SeriesRow, SeriesStep};
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::wire::{Json, Query, partition, time, time_text};

/// The most rows in one response.
const MAX_ROWS: usize = 10_000;
/// The longest that a response takes, including the wait for others that are under way.
const DEADLINE: Duration = Duration::from_secs(5);
/// The length of time if the request names no start.
const BY_DEFAULT: Duration = Duration::from_hours(24);

/// Which ends: those of whole minutes, by the server's clock.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Range {
    /// The queue.
    partition: String,
    /// From the minute of this time on: RFC 3339. By default a day ago; counts are kept for eight days.
    #[serde(default)]
    since: Option<String>,
    /// Before this time; by default until now.
    #[serde(default)]
    before: Option<String>,
    /// The length of a time step: minute, hour or day; by default hour. At most 1,500 steps.
    #[serde(default)]
    by: Option<String>,
    /// Only tasks of this kind.
    #[serde(default)]
    kind: Option<String>,
}

impl Range {
    fn query(&self, now: SystemTime) -> Answer<SeriesQuery> {
        let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let since = match said(&self.since) {
            Some(since) => time(&since)?,
            None => now.checked_sub(BY_DEFAULT).unwrap_or(SystemTime::UNIX_EPOCH),
        };
        let mut query = SeriesQuery::since(since).by(step(self.by.as_deref())?);
        if let Some(before) = said(&self.before) {
            query = query.before(time(&before)?);
        }
        query.kind = said(&self.kind).map(Into::into);
        Ok(query)
    }
}

fn step(by: Option<&str>) -> Answer<SeriesStep> {
    match by.unwrap_or_default() {
        "minute" => Ok(SeriesStep::Minute),
        "" | "hour" => Ok(SeriesStep::Hour),
        "day" => Ok(SeriesStep::Day),
        other => Err(Problem::invalid(format!("there is no step {other:?}: use minute, hour or day"))),
    }
}

/// The tasks of one kind that ended in one state in one time step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SeriesInfo {
    /// When the step begins.
    at: String,
    /// The kind of task, if they have one.
    kind: Option<String>,
    /// How they ended. Dead letters count as failed.
    state: &'static str,
    /// How many.
    tasks: u64,
    /// How long they ran in total, in microseconds.
    ran_us: u64,
    /// How long they waited in total, in microseconds, each from its push to the beginning of its last run.
    waited_us: u64,
    /// A histogram of how long they ran: entry n of the list, counted from 0, is the number of tasks that
    /// took less than 2ⁿ microseconds and no less than half of that; entry 39 also counts all that took
    /// longer. Zeros at the end are left out.
    ran_histogram: Vec<u64>,
    /// The same for how long they waited.
    waited_histogram: Vec<u64>,
}

impl SeriesInfo {
    fn of(row: &SeriesRow) -> Self {
        Self {
            at: time_text(row.at),
            kind: row.kind.as_deref().map(str::to_owned),
            state: row.state.as_str(),
            tasks: row.tasks,
            ran_us: micros(row.ran),
            waited_us: micros(row.waited),
            ran_histogram: without_zeros(&row.ran_histogram),
            waited_histogram: without_zeros(&row.waited_histogram),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn without_zeros(histogram: &Histogram) -> Vec<u64> {
    let last = histogram.buckets().iter().rposition(|tasks| *tasks > 0);
    histogram.buckets().iter().copied().take(last.map_or(0, |last| last + 1)).collect()
}

/// The rows, in the order of their times, kinds and states.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SeriesAnswer {
    rows: Vec<SeriesInfo>,
}

/// Counts the tasks that ended, by time step, kind and state. The backend counts them as they end, so no task
/// is read. At most 10,000 rows.
#[utoipa::path(
    get, path = "/v1/tasks/series", operation_id = "task_series", tag = "tasks", params(Range),
    responses(
        (status = 200, description = "How many ended, and how long they took.", body = SeriesAnswer),
        (status = 400, description = "There would be too many steps or rows, or the counts of that time are gone. The detail says what to ask instead.", body = Problem),
        (status = 413, description = "There would be far too many rows, or counters to read. The detail says what to ask instead.", body = Problem),
        (status = 501, description = "The backend does not count ends.", body = Problem),
        (status = 503, description = "They could not be counted in five seconds: ask for a shorter time, or ask again.", body = Problem),
    )
)]
pub(crate) async fn series(
    State(app): State<Arc<App>>,
    Query(range): Query<Range>,
) -> Answer<Json<SeriesAnswer>> {
    let partition = partition(&range.partition)?;
    let query = range.query(app.queue.clock().wall())?;
    let answer = timeout(DEADLINE, answer(&app, partition, &query)).await;
    let busy =
        || Problem::busy("they could not be counted in five seconds: ask for a shorter time, or again");
    answer.unwrap_or_else(|_| Err(busy())).map(Json)
}

/// Waits until not too many others are under way: each may hold many rows.
async fn answer(app: &App, partition: PartitionId, query: &SeriesQuery) -> Answer<SeriesAnswer> {
    let ended = |_| Problem::busy("the service is shutting down: try again");
    let _permit = app.series.acquire().await.map_err(ended)?;
    let rows = app.queue.series(partition, query).await?;
    if rows.len() > MAX_ROWS {
        let text = format!(
            "{} rows: at most {MAX_ROWS} are returned at once; ask for a longer step, a shorter time, or one kind",
            rows.len()
        );
        return Err(Problem::invalid(text));
    }
    Ok(SeriesAnswer { rows: rows.iter().map(SeriesInfo::of).collect() })
}
