//! The traits an adapter implements, and the types that cross them.
//!
//! Everything is batch-shaped, returns a result per item, in order, and is dyn-compatible. There are no default methods: a
//! default that loops would hide N round trips. What every backend needs alike (validation, splitting into batches,
//! joining single calls, repeating what is safe, telemetry, drop handling) is *not* here: core does it once, above.

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
    /// The size of the message as [`Limits::message_bytes`](crate::adapter::Limits) counts it. Pure and fast.
    fn encoded_len(&self, message: &MessageData) -> u64;

    /// Stores messages, in order. One result per message, in order; a bad one harms no other.
    ///
    /// Core guarantees: not empty, within [`Limits`](crate::adapter::Limits), only declared options,
    /// [normalised](MessageData::normalised) times. `Ok` means as durable as declared. Dropping the future may leave any of
    /// the messages stored or not, each whole.
    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>>;
}

/// A storage that messages can be pulled from.
#[async_trait]
pub trait PullQueueStorage: QueueStorage {
    /// Up to `request.max` deliveries, waiting at most `request.wait` for the first; none is not an error.
    ///
    /// What is ready is returned at once, never held back to fill up; a push during the wait wakes it within the declared
    /// wake latency. Core runs the future to its end, also when the caller has gone away; `request.stop` then asks it to
    /// finish early, answering whatever it has claimed.
    ///
    /// # Errors
    /// Nothing was claimed by a failed pull, as far as the client can know; what was claimed all the same comes back at
    /// its lease's end.
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>>;

    /// Ends deliveries. One result per settlement, in order. They may be of several partitions, and the same lease may occur
    /// twice (the second returns `Lost`). [`Move`](Action::Move) into a partition nobody has used yet creates it.
    ///
    /// # Successors
    /// Those of a settlement are stored as [`push`](PushQueueStorage::push) would store them, once the delivery has ended: so one may take over
    /// its id or its deduplication key. One that is a duplicate is left out, and the settlement counts all the same. Under a lost lease none
    /// is stored. If one cannot be stored, the settlement fails and the delivery is still held. Core guarantees of each what it guarantees of
    /// pushed messages, and of all that one call brings that they are within the limits of a push, unless a single settlement brings more
    /// (at most [`MAX_SUCCESSORS`](crate::MAX_SUCCESSORS)).
    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>>;

    /// Moves lease ends to now + the duration given. One result per extension, in order. On a
    /// [`Connection`](crate::adapter::LeaseKind::Connection) lease, which needs no extension, it returns whether the lease still holds.
    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>>;

    /// [`settle`](Self::settle), then [`pull`](Self::pull), in one round trip where the server allows (and
    /// [`Capabilities::exchange`](crate::adapter::Capabilities::exchange) says so). A failure of one half is not a failure of the other.
    ///
    /// # Order
    /// Calls may overlap where [`Coalesce::in_flight`](crate::adapter::Coalesce) of settlements is more than 1. Those that do not wait,
    /// concern the same partition, and neither settle anything of another one nor bring successors for one then claim in the order in which they were first polled, whichever is
    /// answered first: a stream that they feed is to get its messages in order. (A lost connection may change the order, as it
    /// changes what comes back.)
    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>);
}

/// What a `dyn` handle holds: a storage that can be pushed to and pulled from, with its optional sides.
pub trait Storage: PushQueueStorage + PullQueueStorage {
    /// Inspection, if the backend has any.
    fn inspect(&self) -> Option<&dyn InspectQueueStorage>;
    /// Pausing, if the backend has it.
    fn pause(&self) -> Option<&dyn PauseQueueStorage>;
    /// Amending what waits, if the backend can.
    fn amend(&self) -> Option<&dyn AmendQueueStorage>;
    /// Keeping the ends of tasks, if the backend does.
    fn ledger(&self) -> Option<&dyn LedgerQueueStorage>;
    /// Keeping control entries, if the backend does.
    fn control(&self) -> Option<&dyn ControlStorage>;
}

// Fails to compile when a change makes one of the traits unfit for `dyn`.
const _: fn(&dyn Storage, &dyn QueueStorage, &dyn PushQueueStorage, &dyn PullQueueStorage) = |_, _, _, _| {};

/// What became of one pushed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum PushOutcome {
    /// Stored under its id.
    Stored(MessageId),
    /// Not stored: a message with the same deduplication key or id is there. Its id, where the backend knows it.
    Duplicate(Option<MessageId>),
    /// Not stored as a message of its own: a waiting one with its deduplication key has its content now, as
    /// [`OnDuplicate`](crate::OnDuplicate) asked for. The id of that one.
    Replaced(MessageId),
}

/// What one pull asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PullRequest {
    /// The most deliveries to return; at least 1 and at most [`Limits::pull_batch`](crate::adapter::Limits).
    pub max: usize,
    /// How long to wait for the first; zero means not at all.
    pub wait: Duration,
    /// The lease of each delivery, within [`LeaseCapability`](crate::adapter::LeaseCapability).
    pub lease: Duration,
    /// Whether an empty result must mean that nothing is there: a server that answers at once from a part of itself is then asked as a
    /// whole, within [`slack`](crate::adapter::Capabilities::slack) beyond the wait. It makes no difference to a server that always knows.
    pub thorough: bool,
    /// How many members of one group may come at once: its head and those behind it that could be pulled, in the group's order, one after
    /// the other, and within `max`. At least 1, which is the head alone; more only where
    /// [`whole_groups`](crate::adapter::Capabilities::whole_groups) is declared.
    pub group_members: usize,
    /// Fires when the caller has gone away or the handle closes: finish early.
    pub stop: CancellationToken,
}

impl PullRequest {
    /// A request that nothing stops early.
    pub fn new(max: usize, wait: Duration, lease: Duration) -> Self {
        Self { max, wait, lease, thorough: false, group_members: 1, stop: CancellationToken::new() }
    }

    /// Whether it asks for anything, and for a lease that can be had. Core checks that before it calls an adapter, which repeats it only
    /// where another caller's mistake would harm it.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), which says what to ask for.
    pub fn check(&self, leases: &LeaseCapability) -> Result<()> {
        if self.max == 0 {
            return Err(Error::invalid("max is 0: ask for at least 1 message"));
        }
        if self.group_members == 0 {
            return Err(Error::invalid("whole groups of 0 members: ask for at least 1"));
        }
        leases.check(self.lease)
    }

    /// Sets whether an empty result must mean that nothing is there.
    #[must_use]
    pub fn with_thorough(mut self, thorough: bool) -> Self {
        self.thorough = thorough;
        self
    }

    /// Sets how many members of one group may come at once.
    #[must_use]
    pub fn with_group_members(mut self, group_members: usize) -> Self {
        self.group_members = group_members;
        self
    }

    /// Sets what asks the pull to finish early.
    #[must_use]
    pub fn with_stop(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }
}

/// Who holds a delivery: proof towards the storage, fenced by a token that no later owner shares.
///
/// Where leases are [timed](crate::adapter::LeaseKind::Timed), this is enough for any client of the backend to settle and extend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The partition it was pulled from.
    pub partition: PartitionId,
    /// The message.
    pub id: MessageId,
    /// The adapter's proof of ownership.
    pub token: Token,
}

/// An adapter's proof of ownership, opaque to everybody else: 128 random bits, or whatever the server hands out (a receipt
/// handle). Counters will not do: they roll back in a crash. All deliveries of one pull may share one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Bytes);

impl Token {
    /// 128 random bits.
    pub fn random() -> Self {
        Self(Bytes::copy_from_slice(uuid::Uuid::new_v4().as_bytes()))
    }

    /// A token of the server's own.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A token is a capability: it is not shown.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// One handing of a message to a consumer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RawDelivery {
    /// Who holds it.
    pub lease: Lease,
    /// The message; `message.id() == lease.id`.
    pub message: MessageData,
    /// Until when the lease can be trusted, on this process's monotonic clock: counted from *before* the request that
    /// claimed it was sent. `None` for a [`Connection`](crate::adapter::LeaseKind::Connection) lease; core's own timer ends those.
    pub lease_until: Option<Instant>,
    /// See [`DeliveryCount`](crate::adapter::DeliveryCount); the first delivery is 1. `None` where the backend does not count.
    pub delivery_count: Option<u32>,
    /// How long ago the message was pushed, by the server's clock; zero if unknown. Where the server does not tell its time, it may be
    /// the time of day here less that of the push as the pusher wrote it down, and is never less than zero: it is then as wrong as those
    /// two clocks are, and so is what expires by it.
    pub age: Duration,
    /// Why the message cannot be read; its payload is then what is stored, as it is. [`Corrupt`](crate::ErrorKind::Corrupt): it
    /// never will be, and core moves it to the dead letters. [`Incompatible`](crate::ErrorKind::Incompatible): a newer release
    /// wrote it, and core leaves it to newer consumers. A move must leave what is stored as it is.
    pub unreadable: Option<Error>,
}

impl RawDelivery {
    /// A delivery without a lease end, a count or an age.
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
    /// Deletes it.
    Remove,
    /// Releases it, ahead of what was never delivered (declared: [`Requeue`](crate::adapter::Requeue)); no failed attempt.
    Release,
    /// Releases it to the same place, as a failed attempt.
    Retry,
    /// Puts it at the end of its priority once the delay is over; no failed attempt. It holds its group meanwhile.
    Postpone {
        /// How long it stays invisible.
        delay: Duration,
        /// If given, these replace the message's headers.
        headers: Option<Headers>,
    },
    /// Puts it at the end of its priority in another partition. Id, payload and options stay; the delivery count starts
    /// again at zero; a delay is not repeated; a deduplication key is freed and not taken in the new place. In a live partition it
    /// joins its group at the end. Dead letters know no groups.
    Move {
        /// Where to.
        to: PartitionId,
        /// If given, these replace the message's headers.
        headers: Option<Headers>,
    },
}

/// The end of one delivery.
///
/// It does not bring the delivered message. A backend that stores a new copy of what it moves or postpones keeps what it delivered until its lease is
/// over, or reads it again under the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settlement {
    /// Which delivery.
    pub lease: Lease,
    /// What to do.
    pub action: Action,
    /// Messages to store together with the end of the delivery, in order; none unless
    /// [`successors`](crate::adapter::Capabilities::successors) are declared.
    pub then: Vec<Successor>,
    /// What the ledger keeps of the task, stored together with the removal of the message; only with [`Action::Remove`], in a live partition, and
    /// where a [`ledger`](crate::adapter::Capabilities::ledger) is declared. Where [`series`](crate::adapter::Capabilities::series) are, one that is
    /// [kept for no time](TaskEnd::is_kept) or comes with a move to the dead letters too, to be counted and not stored.
    pub end: Option<Arc<TaskEnd>>,
}

impl Settlement {
    /// A settlement without successors, of which nothing is kept.
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

    /// The end that is to be stored with it.
    #[must_use]
    pub fn stored_end(&self) -> Option<&Arc<TaskEnd>> {
        self.end.as_ref().filter(|end| self.action == Action::Remove && end.is_kept())
    }

    /// The end that is to be [counted](crate::adapter::LedgerQueueStorage::series) with it.
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

/// A message that is stored with the end of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The live partition to store it in.
    pub partition: PartitionId,
    /// The message, as a push would have it.
    pub message: MessageData,
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum SettleOutcome {
    /// Done.
    Settled,
    /// The lease was lost before; nothing was changed. Somebody else has the message, or it is already settled.
    Lost,
}

/// A longer hold on one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Which delivery.
    pub lease: Lease,
    /// The new lease, counted from the moment the server handles it.
    pub duration: Duration,
}

/// What became of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ExtendOutcome {
    /// Held on.
    Extended,
    /// Held on, and somebody has [requested the task's cancellation](crate::adapter::InspectQueueStorage::request_cancel).
    CancelRequested,
    /// The lease was lost before; nothing was changed.
    Lost,
}
