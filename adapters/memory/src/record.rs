//! A stored message.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use anyqueue::{MessageData, MessageId};

/// A message and its position in its partition.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) data: MessageData,
    /// Its size, as it counts towards the limits.
    pub(crate) bytes: u64,
    /// A move keeps it: expiry is measured from here.
    pub(crate) pushed_at: Instant,
    pub(crate) deliveries: u32,
    pub(crate) cancel_requested: bool,
    pub(crate) position: Position,
    pub(crate) place: Place,
    /// Its place in its group, assigned when it joins. Deliveries and postponements keep it.
    pub(crate) joined: u64,
    /// Whether others of its group wait for it, because it is on offer, held or postponed.
    pub(crate) in_front: bool,
    /// When it gets the highest priority, if that is still to happen.
    pub(crate) urgent_at: Option<Instant>,
}

/// The position of a message among the ready ones. The derived order is the order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    priority: Reverse<u8>,
    pub(crate) lane: Lane,
    /// Unique within the partition. Assigned when the message lines up, and kept when it is returned.
    pub(crate) seq: u64,
}

/// Returned messages go ahead of messages that were never delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Returned,
    Fresh,
}

/// The queue of its partition that a message is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Can be claimed.
    Ready,
    /// Waits until those in front of its group are gone.
    Behind,
    /// Waits until a certain moment.
    Delayed { until: Instant },
    /// Held by the owner of the claim.
    Leased { claim: ClaimId },
    /// Disabled. Once it is enabled, it still waits for the moment, if there is one.
    Disabled { until: Option<Instant> },
}

impl Place {
    /// The moment that a message in this place waits for.
    pub(crate) fn until(self) -> Option<Instant> {
        match self {
            Self::Delayed { until } => Some(until),
            Self::Disabled { until } => until,
            Self::Ready | Self::Behind | Self::Leased { .. } => None,
        }
    }
}

impl Position {
    pub(crate) fn set_priority(&mut self, priority: u8) {
        self.priority = Reverse(priority);
    }
}

/// Identifies a claim. The derived order is the order in which claims expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimId {
    pub(crate) until: Instant,
    pub(crate) number: u64,
}

impl Message {
    pub(crate) fn new(data: MessageData, bytes: u64, pushed_at: Instant) -> Self {
        let position = Position { priority: Reverse(data.options().priority), lane: Lane::Fresh, seq: 0 };
        Self {
            data,
            bytes,
            pushed_at,
            deliveries: 0,
            cancel_requested: false,
            position,
            place: Place::Ready,
            joined: 0,
            in_front: false,
            urgent_at: None,
        }
    }

    pub(crate) fn id(&self) -> MessageId {
        self.data.id()
    }

    pub(crate) fn is_in(&self, claim: ClaimId) -> bool {
        self.place == Place::Leased { claim }
    }

    /// Whether the message waits for a moment later than the given one.
    pub(crate) fn is_due_after(&self, moment: Instant) -> bool {
        self.place.until().is_some_and(|until| until > moment)
    }

    pub(crate) fn is_leased(&self) -> bool {
        matches!(self.place, Place::Leased { .. })
    }
}

/// Returns `now + duration`, capped at a century; `now` if the result cannot be represented.
pub(crate) fn after(now: Instant, duration: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
    now.checked_add(duration.min(CENTURY)).unwrap_or(now)
}
