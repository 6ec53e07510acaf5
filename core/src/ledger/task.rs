//! A task in any state, as the ledger shows it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::end::EndState;
use super::ended::EndedTask;
use crate::inspect::{Browsed, MessageState};
use crate::message::{Headers, MessageData, MessageId, header};
use crate::partition::PartitionId;

/// The state of a task. The first four are states of its message; the others are ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TaskState {
    /// The task waits for a consumer.
    Queued,
    /// The task waits for its time: it is delayed or postponed.
    Scheduled,
    /// A consumer holds the task.
    Running,
    /// The task is [disabled](crate::Amend::disabled): nobody gets it until it is enabled.
    Disabled,
    /// The task is done.
    Succeeded,
    /// The task failed for good. Its message is a dead letter, unless it was not meant to become one.
    Failed,
    /// The task took too long, or expired before it was handled.
    TimedOut,
    /// The task was no longer wanted.
    Cancelled,
}

impl TaskState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Scheduled,
        Self::Running,
        Self::Disabled,
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
    ];

    /// Returns the name used in logs, filters and output, in `snake_case`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Disabled => "disabled",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns how the task ended, if it has.
    #[must_use]
    pub const fn ended(self) -> Option<EndState> {
        match self {
            Self::Queued | Self::Scheduled | Self::Running | Self::Disabled => None,
            Self::Succeeded => Some(EndState::Succeeded),
            Self::Failed => Some(EndState::Failed),
            Self::TimedOut => Some(EndState::TimedOut),
            Self::Cancelled => Some(EndState::Cancelled),
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<EndState> for TaskState {
    fn from(end: EndState) -> Self {
        match end {
            EndState::Succeeded => Self::Succeeded,
            EndState::Failed => Self::Failed,
            EndState::TimedOut => Self::TimedOut,
            EndState::Cancelled => Self::Cancelled,
        }
    }
}

impl From<MessageState> for TaskState {
    fn from(state: MessageState) -> Self {
        match state {
            MessageState::Ready => Self::Queued,
            MessageState::Delayed => Self::Scheduled,
            MessageState::Leased => Self::Running,
            MessageState::Disabled => Self::Disabled,
        }
    }
}

/// A task and all that is known of it, whether it lives, is dead or has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Task {
    /// The id of its message.
    pub id: MessageId,
    /// The live partition that it belongs to.
    pub partition: PartitionId,
    /// Its state.
    pub state: TaskState,
    /// The kind of task, which selects its handler.
    pub kind: Option<Arc<str>>,
    /// The user's name for it.
    pub task_id: Option<Arc<str>>,
    /// The session it belongs to.
    pub session_id: Option<Arc<str>>,
    /// W3C trace context of the pusher.
    pub trace: Option<Arc<str>>,
    /// Who ran it last, if known.
    pub worker: Option<Arc<str>>,
    /// The number of attempts made so far, if known.
    pub attempt: u32,
    /// The number of deliveries so far, if they are counted.
    pub delivery_count: Option<u32>,
    /// When it was pushed, if known.
    pub pushed_at: Option<SystemTime>,
    /// When it can be pulled, if it waits for its time.
    pub due_at: Option<SystemTime>,
    /// When it ended or died.
    pub ended_at: Option<SystemTime>,
    /// Until when its end is kept; `None` means until it is deleted.
    pub expires_at: Option<SystemTime>,
    /// The time from the push to the beginning of the last run, once the task has ended and is not a dead
    /// letter.
    pub waited: Option<Duration>,
    /// How long the last run took, once the task has ended; of a dead letter, as noted when it died.
    pub ran: Option<Duration>,
    /// Why it failed or was ended.
    pub reason: Option<Arc<str>>,
    /// The failed attempts, as the worker writes them into the header `task-errors`.
    pub errors: Option<Arc<str>>,
    /// What its handler logged in the last run, as lines, once the task has ended. Lists leave this out.
    pub log: Option<Arc<str>>,
    /// How far its last run had come, in the words of its handler, once the task has ended.
    pub progress: Option<Arc<str>>,
    /// What its handler returned.
    pub result: Option<Bytes>,
    /// Its message, while the task lives or is dead, if the queue can be browsed.
    pub message: Option<MessageData>,
}

impl Task {
    /// Returns whether its message is a dead letter, which can be put back. If the task failed otherwise, its
    /// message is gone.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state == TaskState::Failed && self.waited.is_none()
    }

    /// Creates a task that has ended.
    pub(crate) fn ended(partition: PartitionId, ended: EndedTask) -> Self {
        let EndedTask { id, ended_at, expires_at, end } = ended;
        let end = Arc::unwrap_or_clone(end);
        Self {
            id,
            partition,
            state: end.state.into(),
            kind: end.kind,
            task_id: end.task_id,
            session_id: end.session_id,
            trace: end.trace,
            worker: end.worker,
            attempt: end.attempt,
            delivery_count: (end.delivery_count > 0).then_some(end.delivery_count),
            pushed_at: end.waited.checked_add(end.ran).and_then(|age| ended_at.checked_sub(age)),
            due_at: None,
            ended_at: Some(ended_at),
            expires_at,
            waited: Some(end.waited),
            ran: Some(end.ran),
            reason: end.reason,
            errors: end.errors,
            log: end.log,
            progress: end.progress,
            result: end.result,
            message: None,
        }
    }

    /// The task as lists show it, so that a page of them is small.
    pub(crate) fn without_log(self) -> Self {
        Self { log: None, ..self }
    }

    /// Creates a task from its message, among the living or the dead.
    pub(crate) fn of_message(partition: &PartitionId, browsed: Browsed, now: SystemTime) -> Self {
        let Browsed { message, state, delivery_count, age, due_in, .. } = browsed;
        let is_dead = partition.is_dead_letters();
        let headers = message.headers();
        Self {
            id: message.id(),
            partition: partition.live(),
            state: if is_dead { TaskState::Failed } else { state.into() },
            kind: text(headers, header::TASK_KIND),
            task_id: message.task_id().map(Arc::from),
            session_id: message.session_id().map(Arc::from),
            trace: text(headers, header::TRACEPARENT),
            worker: text(headers, header::DEAD_WORKER).filter(|_| is_dead),
            attempt: if is_dead { attempts_of_dead(headers) } else { attempts(headers) },
            delivery_count: if is_dead { number(headers, header::DEAD_DELIVERIES) } else { delivery_count },
            pushed_at: (!age.is_zero()).then(|| now.checked_sub(age)).flatten(),
            due_at: due_in.filter(|_| !is_dead).and_then(|due| now.checked_add(due)),
            ended_at: headers
                .get(header::DEAD_AT)
                .and_then(|at| humantime::parse_rfc3339(at).ok())
                .filter(|_| is_dead),
            expires_at: None,
            waited: None,
            ran: ran_of_dead(headers).filter(|_| is_dead),
            reason: text(headers, header::DEAD_REASON).filter(|_| is_dead),
            errors: text(headers, header::TASK_ERRORS),
            log: None,
            progress: None,
            result: None,
            message: Some(message),
        }
    }
}

/// The number of failed attempts so far, as the worker counts them in the headers.
pub(crate) fn attempts(headers: &Headers) -> u32 {
    number(headers, header::TASK_ATTEMPTS).unwrap_or(0)
}

/// The number of attempts made with a dead letter, including the last one. A message that was pushed there
/// and did not die here may lack a note of that one.
pub(crate) fn attempts_of_dead(headers: &Headers) -> u32 {
    number(headers, header::DEAD_ATTEMPTS).unwrap_or_else(|| attempts(headers))
}

/// How long the last attempt of a dead letter ran, if that was noted.
pub(crate) fn ran_of_dead(headers: &Headers) -> Option<Duration> {
    headers.get(header::DEAD_RAN).and_then(|ran| humantime::parse_duration(ran).ok())
}

/// How often a redrive put the message back.
pub(crate) fn generation(headers: &Headers) -> u32 {
    number(headers, header::GENERATION).unwrap_or(0)
}

pub(crate) fn text(headers: &Headers, name: &str) -> Option<Arc<str>> {
    headers.get(name).map(|value| Arc::from(value.as_str()))
}

fn number(headers: &Headers, name: &str) -> Option<u32> {
    headers.get(name)?.parse().ok()
}

/// How many tasks match a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskCount {
    /// The number of tasks; a lower bound if not exact.
    pub value: u64,
    /// Whether all were counted. If not, the count stopped at its cap.
    pub exact: bool,
}
