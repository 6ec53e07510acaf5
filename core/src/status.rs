//! The seven statuses a delivery can be settled with.

use std::fmt;
use std::time::Duration;

use crate::message::Headers;

/// The state of a delivery while its handler has it, and what settling with it asks of the queue.
///
/// | status | what the queue does | counts as a failed attempt |
/// |---|---|---|
/// | `Waiting`, `Running` | releases it, ahead of messages that were never delivered | no |
/// | `Failed` | releases it the same way | yes |
/// | `Postponed` | puts it at the end of its priority, after the delay | no |
/// | `Processed`, `Cancelled` | removes it | – |
/// | `Poisonous` | moves it to the partition's dead letters, with the reason | – |
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum QueueMessageStatus {
    /// Not started. A fresh delivery is in this status.
    Waiting,
    /// The attempt failed, and the message is to be tried again.
    Failed,
    /// Started but not finished. Settling with this status releases the message.
    Running,
    /// To be tried again later.
    Postponed {
        /// How long the message stays invisible.
        delay: Duration,
        /// If given, these replace the message's headers.
        headers: Option<Headers>,
    },
    /// Done.
    Processed,
    /// No longer wanted.
    Cancelled,
    /// Must not be tried again until somebody has looked at it.
    Poisonous {
        /// The reason, for the person who looks at it. Kept in the header
        /// [`anyqueue-dead-reason`](crate::header::DEAD_REASON), cut to [`MAX_REASON_BYTES`].
        reason: String,
    },
}

/// The maximum length of a reason, in bytes. A longer one is cut at a character boundary, so that a stack
/// trace cannot make a message too large to become a dead letter.
pub const MAX_REASON_BYTES: usize = 1024;

/// The largest number of bytes that the headers of a dead letter add to its encoded form.
pub const DEATH_BYTES: u64 = 2048;

impl QueueMessageStatus {
    /// Creates a [`Postponed`](Self::Postponed) status that leaves the headers unchanged.
    pub fn postponed(delay: Duration) -> Self {
        Self::Postponed { delay, headers: None }
    }

    /// Creates a [`Poisonous`](Self::Poisonous) status with this reason.
    pub fn poisonous(reason: impl Into<String>) -> Self {
        Self::Poisonous { reason: reason.into() }
    }

    /// Returns the name used in logs and metrics, in `snake_case`.
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

/// Shows only the name of the status, as [`as_str`](Self::as_str) returns it.
impl fmt::Display for QueueMessageStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
