//! Ends as they are stored, and how they are asked for.

use std::sync::Arc;
use std::time::SystemTime;

use super::end::{EndState, TaskEnd};
use crate::message::MessageId;

/// Which ends to list or count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedQuery {
    /// Those in one of these states; none named: in any.
    pub states: Vec<EndState>,
    /// Those that ended at this time or later, by the server's clock.
    pub since: Option<SystemTime>,
    /// Those that ended before this time, by the server's clock.
    pub before: Option<SystemTime>,
}

impl EndedQuery {
    /// Whether it asks for an end like this.
    #[must_use]
    pub fn matches(&self, state: EndState, ended_at: SystemTime) -> bool {
        (self.states.is_empty() || self.states.contains(&state))
            && self.since.is_none_or(|since| ended_at >= since)
            && self.before.is_none_or(|before| ended_at < before)
    }
}

/// Where a page of ends stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedCursor {
    /// When the last of it ended.
    pub ended_at: SystemTime,
    /// Its id.
    pub id: MessageId,
}

/// The end of a task as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedTask {
    /// The message.
    pub id: MessageId,
    /// When it ended, by the server's clock, to the millisecond.
    pub ended_at: SystemTime,
    /// Until when this is kept; `None`: until it is deleted.
    pub expires_at: Option<SystemTime>,
    /// Its end. How long it was to be kept is said by `expires_at`.
    pub end: Arc<TaskEnd>,
}

impl EndedTask {
    /// An end that was stored at this moment.
    #[must_use]
    pub fn new(
        id: MessageId,
        ended_at: SystemTime,
        expires_at: Option<SystemTime>,
        end: Arc<TaskEnd>,
    ) -> Self {
        Self { id, ended_at, expires_at, end }
    }

    /// Where a page that ends with this one goes on.
    #[must_use]
    pub const fn cursor(&self) -> EndedCursor {
        EndedCursor { ended_at: self.ended_at, id: self.id }
    }
}
