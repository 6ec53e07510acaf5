//! What a child can be told to do, and what it reports.

use std::io::Write as _;

use serde::{Deserialize, Serialize};

/// The environment variable with the role, as JSON.
pub(super) const ROLE: &str = "ANYQUEUE_CONFORMANCE_ROLE";

/// The environment variable with the storage's address.
pub(super) const ADDRESS: &str = "ANYQUEUE_CONFORMANCE_ADDRESS";

/// What a child process does before it waits to be killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Pushes `count` messages, one by one.
    Pusher {
        /// The partition's name.
        partition: String,
        /// How many messages.
        count: usize,
    },
    /// Pulls until it has taken `count` messages.
    Consumer {
        /// The partition's name.
        partition: String,
        /// How many messages.
        count: usize,
        /// Deliveries per pull.
        max: usize,
        /// The lease of each, in milliseconds.
        lease_ms: u64,
        /// Whether it removes each message, or holds it.
        remove: bool,
    },
    /// Pushes batches until it is killed.
    BatchPusher {
        /// The partition's name.
        partition: String,
        /// Messages per batch.
        batch: usize,
    },
    /// Pulls one message after another and removes it, with a successor whose payload is counted up by one.
    Relay {
        /// The partition's name.
        partition: String,
        /// The lease of each, in milliseconds.
        lease_ms: u64,
    },
    /// Pulls one message after another and removes it, with the end of its task.
    Ender {
        /// The partition's name.
        partition: String,
        /// The lease of each, in milliseconds.
        lease_ms: u64,
    },
    /// Claims a group as a whole, and holds it.
    GroupHolder {
        /// The partition's name.
        partition: String,
        /// How many of its members at most.
        members: usize,
        /// The lease of each, in milliseconds.
        lease_ms: u64,
    },
    /// Pulls `count` messages, holds them for a while, and then removes each on its own.
    LateConsumer {
        /// The partition's name.
        partition: String,
        /// How many messages.
        count: usize,
        /// The lease of each, in milliseconds.
        lease_ms: u64,
        /// How long it holds them, in milliseconds.
        hold_ms: u64,
    },
}

/// One line that a child writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChildEvent {
    /// The child is about to push this message.
    Pushing {
        /// The partition's name.
        partition: String,
        /// The id, as text.
        id: String,
        /// The payload.
        payload: String,
    },
    /// The push was acknowledged.
    Pushed {
        /// The id, as text.
        id: String,
    },
    /// The child holds this message.
    Took {
        /// The id, as text.
        id: String,
        /// The delivery count, where known.
        count: Option<u32>,
        /// The lease, in milliseconds.
        lease_ms: u64,
    },
    /// The removal of this message was confirmed.
    Removed {
        /// The id, as text.
        id: String,
    },
    /// The removal of this message was refused: the lease was lost.
    Lost {
        /// The id, as text.
        id: String,
    },
    /// A pull that waited returned nothing.
    Idle,
    /// The child did everything that its role says.
    Done,
    /// A call failed.
    Failed {
        /// The error.
        error: String,
    },
}

/// Writes one whole line and flushes it. If the parent is gone, errors no longer matter.
pub(super) fn say(event: &ChildEvent) {
    let Ok(mut line) = serde_json::to_vec(event) else { return };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(&line).and_then(|()| out.flush());
}
