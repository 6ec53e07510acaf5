//! Stored ends, and queries for them.

use std::sync::Arc;
use std::time::SystemTime;

use super::end::{EndState, TaskEnd};
use crate::message::MessageId;

/// Which ends to list or count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedQuery {
    /// Only ends in one of these states; if there are none, in any.
    pub states: Vec<EndState>,
    /// Only tasks that ended at this time or later, by the server's clock.
    pub since: Option<SystemTime>,
    /// Only tasks that ended before this time, by the server's clock.
    pub before: Option<SystemTime>,
}

impl EndedQuery {
    /// Returns whether the query asks for such an end.
    #[must_use]
    pub fn matches(&self, state: EndState, ended_at: SystemTime) -> bool {
        (self.states.is_empty() || self.states.contains(&state))
            && self.since.is_none_or(|since| ended_at >= since)
            && self.before.is_none_or(|before| ended_at < before)
    }
}

/// The position where a page of ends stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedCursor {
    /// When the last task of the page ended.
    pub ended_at: SystemTime,
    /// The id of its message.
    pub id: MessageId,
}

/// The end of a task as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedTask {
    /// The id of the message.
    pub id: MessageId,
    /// When it ended, by the server's clock, to the millisecond.
    pub ended_at: SystemTime,
    /// Until when this is kept; `None` means until it is deleted.
    pub expires_at: Option<SystemTime>,
    /// The end. `expires_at` replaces its [`keep`](TaskEnd::keep).
    pub end: Arc<TaskEnd>,
}

impl EndedTask {
    /// Creates an end that was stored at this moment.
    #[must_use]
    pub fn new(
        id: MessageId,
        ended_at: SystemTime,
        expires_at: Option<SystemTime>,
        end: Arc<TaskEnd>,
    ) -> Self {
        Self { id, ended_at, expires_at, end }
    }

    /// Returns the position after a page that ends with this one.
    #[must_use]
    pub const fn cursor(&self) -> EndedCursor {
        EndedCursor { ended_at: self.ended_at, id: self.id }
    }
}
