//! A stored message.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use anyqueue::{MessageData, MessageId};

/// A message, and where it stands in its partition.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) data: MessageData,
    /// Its size as the limits count it.
    pub(crate) bytes: u64,
    /// Kept by moves: expiry counts from here.
    pub(crate) pushed_at: Instant,
    pub(crate) deliveries: u32,
    pub(crate) cancel_requested: bool,
    pub(crate) position: Position,
    pub(crate) place: Place,
    /// Its place in its group, taken when it joins: it keeps it through deliveries and postponements.
    pub(crate) joined: u64,
    /// Whether others of its group wait for it: it is on offer, held, or postponed.
    pub(crate) in_front: bool,
    /// When it gets the highest priority, if that is still to come.
    pub(crate) urgent_at: Option<Instant>,
}

/// Where a message stands among the ready ones. The derived order is the order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    priority: Reverse<u8>,
    pub(crate) lane: Lane,
    /// Unique within the partition: taken when the message lines up, kept when it comes back.
    pub(crate) seq: u64,
}

/// What came back goes ahead of what was never delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Returned,
    Fresh,
}

/// In which queue of its partition a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Can be claimed.
    Ready,
    /// Waits for those in front of its group to go.
    Behind,
    /// Waits for a moment.
    Delayed { until: Instant },
    /// Held by whoever made the claim.
    Leased { claim: ClaimId },
    /// Set aside. Once that is over, it still waits for the moment if there is one.
    Disabled { until: Option<Instant> },
}

impl Place {
    /// The moment that a message there waits for.
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

/// Names a claim; the derived order is the order in which claims lapse.
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

    /// Whether it waits for a moment later than this.
    pub(crate) fn is_due_after(&self, moment: Instant) -> bool {
        self.place.until().is_some_and(|until| until > moment)
    }

    pub(crate) fn is_leased(&self) -> bool {
        matches!(self.place, Place::Leased { .. })
    }
}

/// `now + duration`, or a time too far off to matter where that cannot be expressed.
pub(crate) fn after(now: Instant, duration: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
    now.checked_add(duration.min(CENTURY)).unwrap_or(now)
}
