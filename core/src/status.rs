//! The seven statuses a delivery can be settled with.

use std::fmt;
use std::time::Duration;

use crate::message::Headers;

/// The state of a delivery in its handler's hands, and what settling with it asks of the queue.
///
/// | status | what the queue does | counts as a failed attempt |
/// |---|---|---|
/// | `Waiting`, `Running` | releases it, ahead of what was never delivered | no |
/// | `Failed` | releases it the same way | yes |
/// | `Postponed` | puts it at the end of its priority, after the delay | no |
/// | `Processed`, `Cancelled` | removes it | – |
/// | `Poisonous` | moves it to the partition's dead letters, with the reason | – |
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum QueueMessageStatus {
    /// Not started. A fresh delivery is in this status.
    Waiting,
    /// Tried, and to be tried again.
    Failed,
    /// Started but not finished; settling with it releases the message.
    Running,
    /// To be tried later.
    Postponed {
        /// How long it stays invisible.
        delay: Duration,
        /// If given, these replace the message's headers.
        headers: Option<Headers>,
    },
    /// Done.
    Processed,
    /// Not wanted any more.
    Cancelled,
    /// Must not be tried again without somebody looking at it.
    Poisonous {
        /// Why, for the person who looks. Kept in the header
        /// [`anyqueue-dead-reason`](crate::header::DEAD_REASON), cut to [`MAX_REASON_BYTES`].
        reason: String,
    },
}

/// A reason longer than this is cut (at a character boundary), so that a stack trace cannot make a message too large to die.
pub const MAX_REASON_BYTES: usize = 1024;

/// The most that the headers of a dead letter add to its encoded form, in bytes.
pub const DEATH_BYTES: u64 = 2048;

impl QueueMessageStatus {
    /// [`Postponed`](Self::Postponed) with unchanged headers.
    pub fn postponed(delay: Duration) -> Self {
        Self::Postponed { delay, headers: None }
    }

    /// [`Poisonous`](Self::Poisonous) for this reason.
    pub fn poisonous(reason: impl Into<String>) -> Self {
        Self::Poisonous { reason: reason.into() }
    }

    /// The name used in logs and metrics, in `snake_case`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Running => "running",
            Self::Postponed { .. } => "postponed",
            Self::Processed => "processed",
            Self::Cancelled => "cancelled",
            Self::Poisonous { .. } => "poisonous",
        }
    }
}

/// The name of the status alone, as [`as_str`](Self::as_str).
impl fmt::Display for QueueMessageStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
