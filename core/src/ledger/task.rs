//! A task as the ledger shows it, whatever its state.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::end::EndState;
use super::ended::EndedTask;
use crate::inspect::{Browsed, MessageState};
use crate::message::{Headers, MessageData, MessageId, header};
use crate::partition::PartitionId;

/// Where a task stands. The first four are states of its message; the others are ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TaskState {
    /// It waits for a consumer.
    Queued,
    /// It waits for its time: delayed, or postponed.
    Scheduled,
    /// A consumer holds it.
    Running,
    /// It is [disabled](crate::Amend::disabled): nobody gets it until it is enabled.
    Disabled,
    /// It is done.
    Succeeded,
    /// It failed for good. Its message is a dead letter, unless it was not to become one.
    Failed,
    /// It took too long, or expired before it was handled.
    TimedOut,
    /// It was not wanted any more.
    Cancelled,
}

impl TaskState {
    /// All of them.
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

    /// The name in logs, filters and output, in `snake_case`.
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

    /// How it ended, if it has.
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

/// A task: what is known of it, whether it lives, is dead or has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Task {
    /// Its message.
    pub id: MessageId,
    /// The live partition it belongs to.
    pub partition: PartitionId,
    /// Where it stands.
    pub state: TaskState,
    /// The kind of task, which selects its handler.
    pub kind: Option<Arc<str>>,
    /// The user's name for it.
    pub task_id: Option<Arc<str>>,
    /// The session it belongs to.
    pub session_id: Option<Arc<str>>,
    /// W3C trace context of the pusher.
    pub trace: Option<Arc<str>>,
    /// Who ran it last, where that is known.
    pub worker: Option<Arc<str>>,
    /// Attempts made so far, where they are known.
    pub attempt: u32,
    /// Deliveries so far, where they are counted.
    pub delivery_count: Option<u32>,
    /// When it was pushed, as far as known.
    pub pushed_at: Option<SystemTime>,
    /// When it can be pulled, if it waits for its time.
    pub due_at: Option<SystemTime>,
    /// When it ended or died.
    pub ended_at: Option<SystemTime>,
    /// Until when its end is kept; `None`: until it is deleted.
    pub expires_at: Option<SystemTime>,
    /// From the push to the beginning of the last run, once it has ended and is no dead letter.
    pub waited: Option<Duration>,
    /// How long the last run took, once it has ended and is no dead letter.
    pub ran: Option<Duration>,
    /// Why it failed, or was ended.
    pub reason: Option<Arc<str>>,
    /// Failed attempts, as the worker writes them into the header `task-errors`.
    pub errors: Option<Arc<str>>,
    /// What its handler noted in the last run, in lines, once it has ended. Lists leave it out.
    pub log: Option<Arc<str>>,
    /// What its handler returned.
    pub result: Option<Bytes>,
    /// Its message, while it lives or is dead, where the queue can be browsed.
    pub message: Option<MessageData>,
}

impl Task {
    /// Whether its message is a dead letter, which can be put back. The message of what failed otherwise is gone.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state == TaskState::Failed && self.waited.is_none()
    }

    /// A task that has ended.
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
            result: end.result,
            message: None,
        }
    }

    /// As lists have it, so that a page of them is small.
    pub(crate) fn without_log(self) -> Self {
        Self { log: None, ..self }
    }

    /// A task whose message is there, among the living or the dead.
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
            worker: None,
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
            ran: None,
            reason: text(headers, header::DEAD_REASON).filter(|_| is_dead),
            errors: text(headers, header::TASK_ERRORS),
            log: None,
            result: None,
            message: Some(message),
        }
    }
}

/// Failed attempts so far, as the worker counts them in the headers.
pub(crate) fn attempts(headers: &Headers) -> u32 {
    number(headers, header::TASK_ATTEMPTS).unwrap_or(0)
}

/// Attempts made of a dead letter, the last one included. What was pushed there, and did not die here, may have no note of that one.
pub(crate) fn attempts_of_dead(headers: &Headers) -> u32 {
    number(headers, header::DEAD_ATTEMPTS).unwrap_or_else(|| attempts(headers))
}

/// How often the message was put back from dead letters.
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
    /// How many; at least as many, if not exact.
    pub value: u64,
    /// Whether all were counted: else the count stopped at its cap.
    pub exact: bool,
}
