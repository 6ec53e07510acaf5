//! Filters for listing, counting and deleting tasks.

use std::sync::Arc;
use std::time::SystemTime;

use super::end::EndState;
use super::ended::EndedQuery;
use super::task::{Task, TaskState};

/// A filter for the tasks of a partition. A task matches if it meets every condition that is set; at first
/// none is, so that all tasks match.
///
/// The backend itself selects by [state](Self::in_state) and, for tasks that have ended, by
/// [time](Self::since). For all other conditions tasks are read page by page and checked: see
/// [`scans`](Self::scans).
///
/// ```
/// use anyqueue::{TaskFilter, TaskState};
/// let failures = TaskFilter::new().in_state(TaskState::Failed).in_state(TaskState::TimedOut);
/// assert!(!failures.scans());
/// assert!(failures.of_kind("send_mail").scans());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct TaskFilter {
    /// The task is in one of these states; if there are none, in any.
    pub states: Vec<TaskState>,
    /// The task ended at this time or later, by the server's clock. A task that has not ended does not match.
    pub since: Option<SystemTime>,
    /// The task ended before this time, by the server's clock. A task that has not ended does not match.
    pub before: Option<SystemTime>,
    /// The task is of this kind.
    pub kind: Option<Arc<str>>,
    /// The task belongs to this session.
    pub session_id: Option<Arc<str>>,
    /// The task id begins with this.
    pub task_id_prefix: Option<Arc<str>>,
    /// The task was ended by this worker. A task that has not ended does not match.
    pub worker: Option<Arc<str>>,
    /// The reason or the errors contain this text.
    pub error: Option<Arc<str>>,
    /// At least this many attempts were made.
    pub min_attempts: Option<u32>,
}

impl TaskFilter {
    /// Creates a filter that matches all tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a state to those that match.
    pub fn in_state(mut self, state: TaskState) -> Self {
        if !self.states.contains(&state) {
            self.states.push(state);
        }
        self
    }

    /// Sets [`since`](Self::since).
    pub fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(time);
        self
    }

    /// Sets [`before`](Self::before).
    pub fn before(mut self, time: SystemTime) -> Self {
        self.before = Some(time);
        self
    }

    /// Sets [`kind`](Self::kind).
    pub fn of_kind(mut self, kind: impl Into<Arc<str>>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Sets [`session_id`](Self::session_id).
    pub fn of_session(mut self, session_id: impl Into<Arc<str>>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }

    /// Sets [`task_id_prefix`](Self::task_id_prefix).
    pub fn with_task_id_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.task_id_prefix = Some(prefix.into());
        self
    }

    /// Sets [`worker`](Self::worker).
    pub fn by_worker(mut self, worker: impl Into<Arc<str>>) -> Self {
        self.worker = Some(worker.into());
        self
    }

    /// Sets [`error`](Self::error).
    pub fn with_error(mut self, text: impl Into<Arc<str>>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// Sets [`min_attempts`](Self::min_attempts).
    pub fn with_min_attempts(mut self, attempts: u32) -> Self {
        self.min_attempts = Some(attempts);
        self
    }

    /// Returns whether the filter has a condition without an index, so that tasks that do not match are read
    /// too.
    #[must_use]
    pub fn scans(&self) -> bool {
        let Self { kind, session_id, task_id_prefix, worker, error, min_attempts, .. } = self;
        [kind, session_id, task_id_prefix, worker, error].into_iter().any(Option::is_some)
            || min_attempts.is_some()
    }

    /// Returns whether a task matches.
    #[must_use]
    pub fn matches(&self, task: &Task) -> bool {
        let same = |wanted: &Option<Arc<str>>, has: &Option<Arc<str>>| wanted.is_none() || wanted == has;
        let has_text = |wanted: &str| {
            [&task.reason, &task.errors].into_iter().flatten().any(|text| text.contains(wanted))
        };
        let begins = |prefix: &str| task.task_id.as_deref().is_some_and(|id| id.starts_with(prefix));
        (self.states.is_empty() || self.states.contains(&task.state))
            && self.since.is_none_or(|since| task.ended_at.is_some_and(|ended| ended >= since))
            && self.before.is_none_or(|before| task.ended_at.is_some_and(|ended| ended < before))
            && same(&self.kind, &task.kind)
            && same(&self.session_id, &task.session_id)
            && (self.worker.is_none() || (task.state.ended().is_some() && self.worker == task.worker))
            && self.task_id_prefix.as_deref().is_none_or(begins)
            && self.error.as_deref().is_none_or(has_text)
            && self.min_attempts.is_none_or(|least| task.attempt >= least)
    }

    /// Whether living tasks can match.
    pub(crate) fn wants_live(&self) -> bool {
        let is_live = |state: &TaskState| state.ended().is_none();
        self.since.is_none() && self.before.is_none() && self.worker.is_none() && self.wants(is_live)
    }

    /// Whether dead letters can match.
    pub(crate) fn wants_dead(&self) -> bool {
        self.wants(|state| *state == TaskState::Failed)
    }

    /// What to ask the ledger for; `None` if nothing that has ended can match.
    pub(crate) fn ended_query(&self) -> Option<EndedQuery> {
        let states: Vec<EndState> = self.states.iter().filter_map(|state| state.ended()).collect();
        let wanted = self.states.is_empty() || !states.is_empty();
        wanted.then_some(EndedQuery { states, since: self.since, before: self.before })
    }

    fn wants(&self, of: impl FnMut(&TaskState) -> bool) -> bool {
        self.states.is_empty() || self.states.iter().any(of)
    }
}
