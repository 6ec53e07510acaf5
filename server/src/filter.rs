//! The filter of tasks in the query of a URL.

use std::time::{Duration, Instant};

use anyqueue::{Queue, TaskCount, TaskFilter, TaskPage, TaskState, TaskStream};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::noted;
use crate::problem::{Answer, Problem};
use crate::wire::{partition, time, time_text};

/// Which tasks: those that meet all conditions.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    /// The queue.
    pub(crate) partition: String,
    /// Only tasks in these states, separated by commas: queued, scheduled, running, disabled, succeeded,
    /// failed, `timed_out`, cancelled.
    #[serde(default)]
    pub(crate) state: Option<String>,
    /// Only tasks that ended at this time or later: RFC 3339.
    #[serde(default)]
    pub(crate) since: Option<String>,
    /// Only tasks that ended before this time.
    #[serde(default)]
    pub(crate) before: Option<String>,
    /// Only tasks of this kind.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    /// Only tasks of this session.
    #[serde(default)]
    pub(crate) session: Option<String>,
    /// Only tasks whose task id begins with this.
    #[serde(default)]
    pub(crate) task_id_prefix: Option<String>,
    /// Only tasks that this worker ended.
    #[serde(default)]
    pub(crate) worker: Option<String>,
    /// Only tasks with this text in their reason or errors.
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// Only tasks with at least this many attempts.
    #[serde(default)]
    pub(crate) min_attempts: Option<u32>,
    /// How many at most, up to 1000; by default 100. A stream has no limit unless you set one.
    #[serde(default)]
    pub(crate) limit: Option<u64>,
    /// For a count: how far to count, up to a million; by default 10,000.
    #[serde(default)]
    pub(crate) cap: Option<u64>,
}

impl Filter {
    /// Returns the name of a text that is given but empty. Elsewhere that is as if it were left out, as a form sends all it has.
    pub(crate) fn empty(&self) -> Option<&'static str> {
        let texts = [
            ("state", &self.state),
            ("kind", &self.kind),
            ("session", &self.session),
            ("task_id_prefix", &self.task_id_prefix),
            ("since", &self.since),
            ("before", &self.before),
            ("worker", &self.worker),
            ("error", &self.error),
        ];
        texts.into_iter().find(|(_, text)| text.as_deref() == Some("")).map(|(name, _)| name)
    }

    /// Builds the filter. Refuses a queue that the caller may not touch.
    pub(crate) fn build(&self) -> Answer<TaskFilter> {
        partition(&self.partition)?;
        let mut filter = TaskFilter::new();
        for name in self.state.iter().flat_map(|states| states.split(',')).filter(|name| !name.is_empty()) {
            let state = TaskState::ALL.into_iter().find(|state| state.as_str() == name);
            let known = || TaskState::ALL.map(TaskState::as_str).join(", ");
            let problem = || Problem::invalid(format!("there is no state {name:?}: use some of {}", known()));
            filter = filter.in_state(state.ok_or_else(problem)?);
        }
        if let Some(since) = self.since.as_deref().filter(|text| !text.is_empty()) {
            filter = filter.since(time(since)?);
        }
        if let Some(before) = self.before.as_deref().filter(|text| !text.is_empty()) {
            filter = filter.before(time(before)?);
        }
        let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(kind) = said(&self.kind) {
            filter = filter.of_kind(kind);
        }
        if let Some(session) = said(&self.session) {
            filter = filter.of_session(session);
        }
        if let Some(prefix) = said(&self.task_id_prefix) {
            filter = filter.with_task_id_prefix(prefix);
        }
        if let Some(worker) = said(&self.worker) {
            filter = filter.by_worker(worker);
        }
        if let Some(error) = said(&self.error) {
            filter = filter.with_error(error);
        }
        if let Some(attempts) = self.min_attempts {
            filter = filter.with_min_attempts(attempts);
        }
        Ok(filter)
    }

    /// Notes in the audit trail which tasks are meant, and how many at most; the queue is noted in any case.
    pub(crate) fn note(&self) {
        let said: Vec<_> = self.pairs().into_iter().skip(1).collect();
        if said.is_empty() {
            noted::detail("filter", "all");
        }
        for (name, value) in said {
            noted::detail(&format!("filter {}", name.replace('_', " ")), value);
        }
        if let Some(most) = self.limit {
            noted::detail("limit", most);
        }
    }

    /// The filter as pairs of a query string, the queue first.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("state", &self.state),
            ("since", &self.since),
            ("before", &self.before),
            ("kind", &self.kind),
            ("session", &self.session),
            ("task_id_prefix", &self.task_id_prefix),
            ("worker", &self.worker),
            ("error", &self.error),
        ];
        let said = texts.into_iter().filter_map(|(name, text)| Some((name, text.clone()?)));
        let mut all = vec![("partition", self.partition.clone())];
        all.extend(said.filter(|(_, text)| !text.is_empty()));
        all.extend(self.min_attempts.map(|least| ("min_attempts", least.to_string())));
        all
    }
}

/// The longest that one response looks for matching tasks. Whoever waits for it should have it within 200 ms,
/// even if millions of tasks have to be read to find a few.
pub(crate) const LOOK: Duration = Duration::from_millis(120);

/// Returns the first matching tasks that are found in time.
pub(crate) async fn first(mut found: TaskStream, limit: usize) -> Answer<TaskPage> {
    Ok(found.page(limit, LOOK).await?)
}

/// The longest that tasks are counted which no index covers.
pub(crate) const COUNT_FOR: Duration = Duration::from_secs(5);
/// The most tasks that a count holds in memory at once.
const COUNTED_AT_ONCE: usize = 1000;

/// Counts the matching tasks, up to a cap; if they have to be read for that, as many as are found in time.
pub(crate) async fn counted(queue: &Queue, name: &str, filter: &TaskFilter, cap: u64) -> Answer<TaskCount> {
    if !filter.scans() {
        return Ok(queue.count_tasks(name, filter, cap).await?);
    }
    let (mut found, begun) = (queue.tasks(name, filter.clone())?, Instant::now());
    let mut value = 0;
    while value < cap {
        let left = usize::try_from(cap - value).unwrap_or(usize::MAX);
        let page = found.page(left.min(COUNTED_AT_ONCE), COUNT_FOR.saturating_sub(begun.elapsed())).await?;
        value += page.tasks.len() as u64;
        if !page.more {
            return Ok(TaskCount { value, exact: !page.unfinished });
        }
    }
    Ok(TaskCount { value, exact: false })
}

/// The value of `before` with which to continue after the tasks that were examined, if time ran out among
/// ended tasks.
pub(crate) fn further(page: &TaskPage) -> Option<String> {
    let reached = page.reached.filter(|_| page.unfinished)?;
    // The bound is exclusive, and times are whole milliseconds.
    Some(time_text(reached + Duration::from_millis(1)))
}
