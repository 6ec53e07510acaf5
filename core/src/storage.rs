//! The traits that an adapter implements, and the types that they exchange.
//!
//! All operations take batches and return one result per item, in order; all traits are dyn-compatible. There
//! are no default methods: a default that loops would hide N round trips. What every backend needs
//! (validation, splitting into batches, joining single calls, repeating what is safe, telemetry, handling of
//! drops) is *not* here: core does it once, on top.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::amend::AmendQueueStorage;
use crate::capabilities::LeaseCapability;
use crate::control::ControlStorage;
use crate::error::{Error, Result};
use crate::inspect::{InspectQueueStorage, PauseQueueStorage};
use crate::ledger::{LedgerQueueStorage, TaskEnd};
use crate::lifecycle::QueueStorage;
use crate::message::{Headers, MessageData, MessageId};
use crate::partition::PartitionId;

/// A storage that messages can be pushed to.
#[async_trait]
pub trait PushQueueStorage: QueueStorage {
    /// Returns the size of the message as [`Limits::message_bytes`](crate::adapter::Limits) counts it. Pure
    /// and fast.
    fn encoded_len(&self, message: &MessageData) -> u64;

    /// Stores messages in order. Returns one result per message, in order; a bad message does not affect the
    /// others.
    ///
    /// Core guarantees that the batch is not empty and within [`Limits`](crate::adapter::Limits), and that
    /// messages have only declared options and [normalised](MessageData::normalised) times. `Ok` means stored
    /// as durably as declared. If the future is dropped, each message may or may not be stored, but never in
    /// part.
    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>>;
}

/// A storage that messages can be pulled from.
#[async_trait]
pub trait PullQueueStorage: QueueStorage {
    /// Returns up to `request.max` deliveries; waits at most `request.wait` for the first. Returning none is
    /// not an error.
    ///
    /// Messages that are ready are returned at once, never held back to fill up the batch; a push during the
    /// wait wakes the pull within the declared wake latency. Core runs the future to its end, even if the
    /// caller has gone away; `request.stop` then asks the pull to finish early and return whatever it has
    /// claimed.
    ///
    /// # Errors
    /// The server's error. A failed pull has claimed nothing, as far as the client can know; whatever it
    /// claimed all the same comes back when its lease ends.
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>>;

    /// Ends deliveries. Returns one result per settlement, in order. Settlements may belong to several
    /// partitions, and the same lease may occur twice (the second then returns `Lost`).
    /// [`Move`](Action::Move) into a partition that nobody has used yet creates it.
    ///
    /// # Successors
    /// Successors of a settlement are stored as [`push`](PushQueueStorage::push) would store them, once the
    /// delivery has ended: so one of them may take over its id or its deduplication key. A successor that is
    /// a duplicate is left out, and the settlement succeeds all the same. Under a lost lease none is stored.
    /// If one cannot be stored, the settlement fails and the delivery is still held. Core guarantees for each
    /// successor what it guarantees for pushed messages, and that all successors in one call are within the
    /// limits of a push, unless a single settlement brings more (at most
    /// [`MAX_SUCCESSORS`](crate::MAX_SUCCESSORS)).
    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>>;

    /// Moves lease ends to now + the given duration. Returns one result per extension, in order. For a
    /// [`Connection`](crate::adapter::LeaseKind::Connection) lease, which needs no extension, it returns
    /// whether the lease still holds.
    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>>;

    /// Does a [`settle`](Self::settle), then a [`pull`](Self::pull), in one round trip if the server allows
    /// that (and [`Capabilities::exchange`](crate::adapter::Capabilities::exchange) says so). If one half
    /// fails, the other may still succeed.
    ///
    /// # Order
    /// Calls may overlap if [`Coalesce::in_flight`](crate::adapter::Coalesce) of settlements is more than 1.
    /// Calls then claim in the order in which they were first polled, whichever returns first, if they do not
    /// wait, concern the same partition, and neither settle anything of another partition nor bring
    /// successors for one: a stream that they feed must get its messages in order. (A lost connection may
    /// change the order, as it changes what comes back.)
    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>);
}

/// A storage that can be pushed to and pulled from, with its optional parts; what a `dyn` handle holds.
pub trait Storage: PushQueueStorage + PullQueueStorage {
    /// Returns the inspection part, if the backend has one.
    fn inspect(&self) -> Option<&dyn InspectQueueStorage>;
    /// Returns the part for pausing, if the backend has one.
    fn pause(&self) -> Option<&dyn PauseQueueStorage>;
    /// Returns the part for changing waiting messages, if the backend has one.
    fn amend(&self) -> Option<&dyn AmendQueueStorage>;
    /// Returns the part that keeps the ends of tasks, if the backend has one.
    fn ledger(&self) -> Option<&dyn LedgerQueueStorage>;
    /// Returns the part that keeps control entries, if the backend has one.
    fn control(&self) -> Option<&dyn ControlStorage>;
}

// Fails to compile when a change makes one of the traits unfit for `dyn`.
const _: fn(&dyn Storage, &dyn QueueStorage, &dyn PushQueueStorage, &dyn PullQueueStorage) = |_, _, _, _| {};

/// The outcome of a push of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum PushOutcome {
    /// The message was stored under this id.
    Stored(MessageId),
    /// The message was not stored, because one with the same id or deduplication key exists. Contains the id
    /// of that message if the backend knows it.
    Duplicate(Option<MessageId>),
    /// The message was not stored as one of its own: a waiting message with its deduplication key now has its
    /// content, as [`OnDuplicate`](crate::OnDuplicate) asked for. Contains the id of that message.
    Replaced(MessageId),
}

/// A request to pull messages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PullRequest {
    /// The maximum number of deliveries to return; at least 1 and at most
    /// [`Limits::pull_batch`](crate::adapter::Limits).
    pub max: usize,
    /// How long to wait for the first delivery; zero means not at all.
    pub wait: Duration,
    /// The lease of each delivery, within [`LeaseCapability`](crate::adapter::LeaseCapability).
    pub lease: Duration,
    /// Whether an empty result must mean that there is no message: a server that answers at once from a part
    /// of itself is then asked as a whole, within [`slack`](crate::adapter::Capabilities::slack) beyond the
    /// wait. This makes no difference to a server that always knows.
    pub thorough: bool,
    /// How many members of one group may be returned at once: its head and those behind it that could be
    /// pulled, in the group's order, one after the other, and within `max`. At least 1, which means the head
    /// alone; more only where [`whole_groups`](crate::adapter::Capabilities::whole_groups) is declared.
    pub group_members: usize,
    /// Cancelled when the caller has gone away or the handle closes: finish early then.
    pub stop: CancellationToken,
}

impl PullRequest {
    /// Creates a request that nothing stops early.
    pub fn new(max: usize, wait: Duration, lease: Duration) -> Self {
        Self { max, wait, lease, thorough: false, group_members: 1, stop: CancellationToken::new() }
    }

    /// Checks that the request asks for something, and for an allowed lease. Core does this before it calls
    /// an adapter; an adapter repeats the check only where another caller's mistake would harm it.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), with a message that says what is allowed.
    pub fn check(&self, leases: &LeaseCapability) -> Result<()> {
        if self.max == 0 {
            return Err(Error::invalid("max is 0: ask for at least 1 message"));
        }
        if self.group_members == 0 {
            return Err(Error::invalid("whole groups of 0 members: ask for at least 1"));
        }
        leases.check(self.lease)
    }

    /// Sets [`thorough`](Self::thorough).
    #[must_use]
    pub fn with_thorough(mut self, thorough: bool) -> Self {
        self.thorough = thorough;
        self
    }

    /// Sets [`group_members`](Self::group_members).
    #[must_use]
    pub fn with_group_members(mut self, group_members: usize) -> Self {
        self.group_members = group_members;
        self
    }

    /// Sets [`stop`](Self::stop).
    #[must_use]
    pub fn with_stop(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }
}

/// The proof towards the storage that a consumer holds a delivery, fenced by a token that no later owner
/// shares.
///
/// If leases are [timed](crate::adapter::LeaseKind::Timed), any client of the backend can settle and extend
/// with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The partition that the message was pulled from.
    pub partition: PartitionId,
    /// The id of the message.
    pub id: MessageId,
    /// The adapter's proof of ownership.
    pub token: Token,
}

/// An adapter's proof of ownership, opaque to everybody else: 128 random bits, or whatever the server hands
/// out (a receipt handle). Counters are not suitable: they roll back in a crash. All deliveries of one pull
/// may share a token.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Bytes);

impl Token {
    /// Creates a token of 128 random bits.
    pub fn random() -> Self {
        Self(Bytes::copy_from_slice(uuid::Uuid::new_v4().as_bytes()))
    }

    /// Creates a token from bytes that the server handed out.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes of the token.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Does not show the token, which is a capability.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A delivery as the storage returns it: one handing of a message to a consumer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RawDelivery {
    /// The lease under which it is held.
    pub lease: Lease,
    /// The message; `message.id() == lease.id`.
    pub message: MessageData,
    /// Until when the lease can be trusted, on this process's monotonic clock, counted from *before* the
    /// request that claimed the message was sent. `None` for a
    /// [`Connection`](crate::adapter::LeaseKind::Connection) lease; core's own timer ends those.
    pub lease_until: Option<Instant>,
    /// The number of deliveries, as declared by [`DeliveryCount`](crate::adapter::DeliveryCount); the first
    /// one is 1. `None` if the backend does not count.
    pub delivery_count: Option<u32>,
    /// How long ago the message was pushed, by the server's clock; zero if unknown. If the server does not
    /// tell its time, this may be the local time of day minus the time that the pusher wrote down, but never
    /// less than zero. It is then as wrong as those two clocks are, and so is expiry, which depends on it.
    pub age: Duration,
    /// Why the message cannot be read, if so; its payload is then the stored bytes as they are.
    /// [`Corrupt`](crate::ErrorKind::Corrupt): it will never be readable, and core moves it to the dead
    /// letters. [`Incompatible`](crate::ErrorKind::Incompatible): a newer release wrote it, and core leaves
    /// it to newer consumers. A move must leave the stored bytes as they are.
    pub unreadable: Option<Error>,
}

impl RawDelivery {
    /// Creates a delivery without a lease end, a count or an age.
    pub fn new(lease: Lease, message: MessageData) -> Self {
        Self {
            lease,
            message,
            lease_until: None,
            delivery_count: None,
            age: Duration::ZERO,
            unreadable: None,
        }
    }

    /// Sets [`lease_until`](Self::lease_until).
    #[must_use]
    pub fn with_lease_until(mut self, lease_until: Instant) -> Self {
        self.lease_until = Some(lease_until);
        self
    }

    /// Sets [`delivery_count`](Self::delivery_count).
    #[must_use]
    pub fn with_delivery_count(mut self, delivery_count: u32) -> Self {
        self.delivery_count = Some(delivery_count);
        self
    }

    /// Sets [`age`](Self::age).
    #[must_use]
    pub fn with_age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Sets [`unreadable`](Self::unreadable).
    #[must_use]
    pub fn with_unreadable(mut self, why: Option<Error>) -> Self {
        self.unreadable = why;
        self
    }
}

/// What a settlement does with the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Deletes the message.
    Remove,
    /// Releases the message, ahead of messages that were never delivered (declared:
    /// [`Requeue`](crate::adapter::Requeue)); does not count as a failed attempt.
    Release,
    /// Releases the message to the same place, as a failed attempt.
    Retry,
    /// Puts the message at the end of its priority once the delay is over; does not count as a failed
    /// attempt. Meanwhile the message blocks its group.
    Postpone {
        /// How long the message stays invisible.
        delay: Duration,
        /// If given, these replace the message's headers.
        headers: Option<Headers>,
    },
    /// Puts the message at the end of its priority in another partition. The id, payload and options stay.
    /// The delivery count starts again at zero, a delay is not repeated, and the deduplication key is freed
    /// and not taken in the new place. In a live partition the message joins its group at the end; dead
    /// letters have no groups.
    Move {
        /// The partition to move the message to.
        to: PartitionId,
        /// If given, these replace the message's headers.
        headers: Option<Headers>,
    },
}

/// A settlement: the end of one delivery.
///
/// It does not carry the delivered message. A backend that stores a new copy of what it moves or postpones
/// keeps what it delivered until the lease is over, or reads it again under the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settlement {
    /// The lease of the delivery.
    pub lease: Lease,
    /// What to do with the message.
    pub action: Action,
    /// Messages to store together with the end of the delivery, in order; empty unless
    /// [`successors`](crate::adapter::Capabilities::successors) are declared.
    pub then: Vec<Successor>,
    /// What the ledger keeps of the task, stored in the same step as the removal of the message; only with
    /// [`Action::Remove`], in a live partition, and where a [`ledger`](crate::adapter::Capabilities::ledger)
    /// is declared. Where [`series`](crate::adapter::Capabilities::series) are declared, this can also be an
    /// end that is only counted and not stored: one that is [kept for no time](TaskEnd::is_kept), or one that
    /// comes with a move to the dead letters.
    pub end: Option<Arc<TaskEnd>>,
}

impl Settlement {
    /// Creates a settlement without successors, of which the ledger keeps nothing.
    #[must_use]
    pub const fn new(lease: Lease, action: Action) -> Self {
        Self { lease, action, then: Vec::new(), end: None }
    }

    /// Sets [`then`](Self::then).
    #[must_use]
    pub fn with_then(mut self, then: Vec<Successor>) -> Self {
        self.then = then;
        self
    }

    /// Returns the end to store with the settlement, if any.
    #[must_use]
    pub fn stored_end(&self) -> Option<&Arc<TaskEnd>> {
        self.end.as_ref().filter(|end| self.action == Action::Remove && end.is_kept())
    }

    /// Returns the end to [count](crate::adapter::LedgerQueueStorage::series) with the settlement, if any.
    #[must_use]
    pub fn counted_end(&self) -> Option<&Arc<TaskEnd>> {
        let ends = match &self.action {
            Action::Remove => true,
            Action::Move { to, .. } => to.is_dead_letters(),
            _ => false,
        };
        self.end.as_ref().filter(|_| ends)
    }

    /// Sets [`end`](Self::end).
    #[must_use]
    pub fn with_end(mut self, end: Option<Arc<TaskEnd>>) -> Self {
        self.end = end;
        self
    }
}

/// A message that is stored together with the end of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The live partition to store it in.
    pub partition: PartitionId,
    /// The message, as it would be pushed.
    pub message: MessageData,
}

/// The outcome of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum SettleOutcome {
    /// The delivery has ended as asked for.
    Settled,
    /// The lease was lost before; nothing was changed. Another consumer has the message, or it is already
    /// settled.
    Lost,
}

/// An extension of the lease of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The lease of the delivery.
    pub lease: Lease,
    /// The new length of the lease, counted from the moment the server handles the request.
    pub duration: Duration,
}

/// The outcome of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ExtendOutcome {
    /// The lease was extended.
    Extended,
    /// The lease was extended, and somebody has [requested the task's
    /// cancellation](crate::adapter::InspectQueueStorage::request_cancel).
    CancelRequested,
    /// The lease was lost before; nothing was changed.
    Lost,
}
