//! What a backend offers, as data.

use std::time::Duration;

use crate::error::{Error, Result};

/// What a backend offers, as configured and on this server.
///
/// Exhaustive and without `Default` on purpose: when a field is added, every adapter stops compiling until
/// its author has filled it in. Core refuses what is not declared before the adapter sees it, and the
/// conformance suite checks that what is declared is true.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent yes or no of the backend")]
pub struct Capabilities {
    /// Which processes see the same messages.
    pub reach: Reach,
    /// What a crash can destroy.
    pub durability: Durability,
    /// Whether ids are unique: pushing a message whose id still lives in the partition, or among its dead
    /// letters, returns `Duplicate`, so that repeating an uncertain push is safe. A server that remembers ids
    /// only for some time declares `false`: core may repeat a push, and a program may repeat an interrupted
    /// one, after any length of time.
    pub unique_ids: bool,
    /// Whether the server confirms a settlement.
    pub settle_confirm: SettleConfirm,
    /// The number of priority levels; 1 means none. Levels are 0 (least urgent) to `priority_levels − 1`.
    pub priority_levels: u8,
    /// How strictly a higher level goes first, and how long a lower one may wait meanwhile.
    pub priority: PriorityDiscipline,
    /// The order within one priority.
    pub order: Order,
    /// Where a released or failed message goes.
    pub requeue: Requeue,
    /// Where a message goes that was postponed or whose delay is over.
    pub postponed: Rejoin,
    /// Whether a message under a valid lease is never given to anybody else.
    pub exclusive: Strictness,
    /// Whether a settlement or extension under a lost lease never affects the new owner's message.
    pub fencing: Strictness,
    /// How deliveries are held.
    pub lease: LeaseCapability,
    /// Whose clocks measure the age of messages, on which expiry depends.
    pub ages: AgeClock,
    /// The delays that a push may ask for; `None` if there are none.
    pub push_delay: Option<DelayCapability>,
    /// The delays of [`Postpone`](crate::adapter::Action::Postpone); `None`: it only moves the message to the
    /// end, at once.
    pub postpone_delay: Option<DelayCapability>,
    /// Whether [`Postpone`](crate::adapter::Action::Postpone) can replace the headers.
    pub postpone_headers: bool,
    /// Whether there are groups, whose members are delivered one at a time, in push order.
    pub groups: bool,
    /// Deduplication by key.
    pub dedup: Dedup,
    /// Whether a push with a taken key can do something other than return `Duplicate`:
    /// [`OnDuplicate`](crate::OnDuplicate). Only with [`Dedup::WhileLive`].
    pub on_duplicate: bool,
    /// What [`RawDelivery::delivery_count`](crate::adapter::RawDelivery) counts.
    pub delivery_count: DeliveryCount,
    /// Whether a [`Move`](crate::adapter::Action::Move) (and so death and redrive) is atomic, and likewise a
    /// [`Postpone`](crate::adapter::Action::Postpone) that the backend does by storing a copy.
    pub moves: MoveGuarantee,
    /// Whether a settlement can [store messages](crate::adapter::Settlement::then) together with the end of
    /// its delivery, and whether both are one step. With [`AtLeastOnce`](MoveGuarantee::AtLeastOnce), a crash
    /// or the end of the lease in between leaves the successors stored and the delivery not ended. `None`: it
    /// cannot.
    pub successors: Option<MoveGuarantee>,
    /// What [`InspectQueueStorage`](crate::adapter::InspectQueueStorage) can do.
    pub inspect: InspectCapability,
    /// Whether partitions can be paused.
    pub pause: bool,
    /// Whether waiting messages can be changed: [`AmendQueueStorage`](crate::adapter::AmendQueueStorage).
    pub amend: bool,
    /// Whether a message can [become urgent](crate::TaskOptions::urgent_after) while it waits.
    pub urgent_after: bool,
    /// Whether a pull can [claim whole groups](crate::adapter::PullRequest::group_members). Only with
    /// [`groups`](Self::groups).
    pub whole_groups: bool,
    /// Whether the end of a task is [stored with its settlement](crate::adapter::Settlement::end) and can be
    /// queried ([`LedgerQueueStorage`](crate::adapter::LedgerQueueStorage)), and whether both are one step.
    /// With [`AtLeastOnce`](MoveGuarantee::AtLeastOnce), a crash in between, or a lost lease, leaves the end
    /// of a task that has not ended. `None`: no ends are kept.
    pub ledger: Option<MoveGuarantee>,
    /// Whether ends are [counted by the minute](crate::adapter::LedgerQueueStorage::series), in the step that
    /// stores them. Only with a [`ledger`](Self::ledger).
    pub series: bool,
    /// Whether the backend keeps small shared entries: [`ControlStorage`](crate::control::ControlStorage).
    pub control: bool,
    /// Sizes and batch limits.
    pub limits: Limits,
    /// How late a timed promise may be kept: the end of a lease, a delay or a long poll.
    pub slack: Duration,
    /// How long after a push a waiting pull may still wait for the message.
    pub wake_latency: Duration,
    /// How many messages beyond `max` a pull may hold, for at most [`slack`](Self::slack); 0 except where a
    /// server needs one queue per level.
    pub overfetch: u32,
    /// Whether [`exchange`](crate::adapter::PullQueueStorage::exchange) takes one round trip instead of two.
    pub exchange: bool,
    /// How core joins single pushes into calls.
    pub coalesce_push: Coalesce,
    /// How core joins single settlements and extensions into calls.
    pub coalesce_settle: Coalesce,
    /// How long a message may wait before the server drops it; `None`: forever.
    pub retention: Option<Duration>,
}

/// Which processes see the same messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Only this process.
    Process,
    /// Every process on this host.
    Host,
    /// Every client of the server.
    Network,
}

/// What a crash can destroy, for each of the three kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// The durability of acknowledged pushes.
    pub push: DurabilityLevel,
    /// The durability of claims. A lost claim means an early redelivery; the lost lease is fenced.
    pub claim: DurabilityLevel,
    /// The durability of confirmed settlements. A lost settlement means a redelivery.
    pub settle: DurabilityLevel,
}

/// The worst event that acknowledged data survives. Each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DurabilityLevel {
    /// Nothing: the data is gone with the process that holds it.
    None,
    /// Survives a crash of clients and server processes (the operating system has the data).
    ProcessCrash,
    /// Survives loss of power (the data is flushed to disk).
    PowerLoss,
    /// Survives the loss of one machine (the data is on several).
    MachineLoss,
}

/// Whether the server confirms a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleConfirm {
    /// `Settled` means that the server confirmed it.
    Confirmed,
    /// `Settled` means that the settlement was sent, or will be in a moment; a broken connection or a crash
    /// may cause a redelivery.
    Sent,
}

/// How strictly a higher priority goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityDiscipline {
    /// There is only one level.
    None,
    /// Higher levels always go first; a lower level can wait forever under sustained higher load.
    Strict,
    /// Higher levels get a larger share; no ready message waits longer than `bound` for lack of share.
    Weighted {
        /// The longest such wait.
        bound: Duration,
    },
}

/// The order of messages within one priority that were never delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// There is no order.
    None,
    /// Push order within each group; no order without a group.
    PerGroup,
    /// Push order.
    PushOrder,
}

/// Where a released or failed message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Ahead of messages of its priority that were never delivered.
    Front,
    /// Behind messages of its priority that were never delivered.
    Back,
    /// Anywhere.
    Unordered,
}

/// Where a message goes that was postponed or whose delay is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin {
    /// To the end of its priority, when its delay is over.
    End,
    /// Ahead of messages of its priority that were never delivered.
    Front,
    /// Anywhere.
    Unordered,
}

/// How strictly a promise is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Always.
    Strict,
    /// Always except in the situations that the adapter documents.
    BestEffort,
}

/// How deliveries are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCapability {
    /// What ends a lease that nobody settles.
    pub kind: LeaseKind,
    /// The shortest lease a pull may ask for.
    pub min: Duration,
    /// The longest lease a pull or an extension may ask for.
    pub max: Duration,
    /// How long a delivery can be held in all, extensions included; `None`: no limit.
    pub max_hold: Option<Duration>,
    /// Whether another handle, in any process, can settle a delivery with every action. If not, the handle
    /// that pulled it has to: its leases belong to its connection, or only it has the message that a move
    /// stores anew.
    pub portable: bool,
}

impl LeaseCapability {
    /// Creates timed leases from `min` to `max`, without a limit in all, which any handle can settle.
    #[must_use]
    pub const fn timed(min: Duration, max: Duration) -> Self {
        Self { kind: LeaseKind::Timed, min, max, max_hold: None, portable: true }
    }

    /// Checks whether a lease of this length is allowed.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), with the bounds, if the lease is too short or too
    /// long.
    pub fn check(&self, lease: Duration) -> Result<()> {
        if (self.min..=self.max).contains(&lease) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a lease of {} is out of range: {} to {} are allowed",
            humantime::format_duration(lease),
            humantime::format_duration(self.min),
            humantime::format_duration(self.max)
        )))
    }
}

/// What ends a lease that nobody settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// The lease has a time, kept by the server and moved by
    /// [`extend`](crate::adapter::PullQueueStorage::extend).
    Timed,
    /// The end of the connection ends the lease; core's own timer releases what nobody extends.
    Connection,
}

/// The delays that a backend supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayCapability {
    /// The longest delay.
    pub max: Duration,
    /// Delays are rounded up to a multiple of this.
    pub granularity: Duration,
}

/// Whose clocks measure the age of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeClock {
    /// The clock of the server, or of the host.
    Server,
    /// The clocks of the pusher and the consumer: if they differ, messages expire too early or too late by
    /// the difference.
    Clients,
}

/// Deduplication by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedup {
    /// There is no deduplication.
    None,
    /// A key is taken while a message with it lives in the partition (waiting, delayed or leased; death frees
    /// the key).
    WhileLive,
    /// A key is taken for this long after the first push, whatever happened to that message. A repetition is
    /// not stored, but the caller may not learn that: the push may return
    /// [`Stored`](crate::PushOutcome::Stored) too. Only pushes are compared: a move, a redrive or a
    /// [successor](crate::adapter::Settlement::then) is never dropped for its key.
    Window(Duration),
}

/// What the delivery count counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryCount {
    /// Deliveries are not counted.
    None,
    /// Deliveries since push, move or redrive, including this one, however they ended: releases count too.
    Deliveries,
    /// Like [`Deliveries`](Self::Deliveries), but a delivery that ended with a release or a postponement is
    /// subtracted again.
    ExceptReleases,
}

/// Whether an operation that takes two steps on some servers is a single one: a move between partitions, a
/// postponement by a copy, or successors or the end of a task with a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveGuarantee {
    /// The operation is one step: the message is in exactly one place at any moment.
    Atomic,
    /// A crash or the end of the lease in between leaves the message in both places, or twice in its own
    /// partition if it was postponed.
    AtLeastOnce,
}

/// What inspection can do. All `false` if the adapter has no
/// [`InspectQueueStorage`](crate::adapter::InspectQueueStorage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent yes or no of the backend")]
pub struct InspectCapability {
    /// Counting messages that are ready to be pulled.
    pub ready: bool,
    /// Counting delayed messages.
    pub delayed: bool,
    /// Counting leased messages.
    pub leased: bool,
    /// Counting dead letters.
    pub dead: bool,
    /// How old a count may be.
    pub staleness: Duration,
    /// Listing partitions.
    pub list: bool,
    /// Browsing messages without leasing them.
    pub browse: bool,
    /// Deleting messages by id.
    pub delete: bool,
    /// Deleting everything that is not leased.
    pub purge: bool,
    /// Requesting cancellation by id.
    pub cancel: bool,
}

/// Sizes and batch limits. Core splits larger batches; larger messages are refused as `TooLarge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of one message in its encoded form, in bytes, as
    /// [`encoded_len`](crate::adapter::PushQueueStorage::encoded_len) counts it. A message at the limit must
    /// still be able to become a dead letter, which adds up to [`DEATH_BYTES`](crate::adapter::DEATH_BYTES)
    /// of headers beyond the limit.
    pub message_bytes: u64,
    /// The maximum number of messages in one push call.
    pub push_batch: usize,
    /// The maximum number of encoded bytes in one push call.
    pub push_batch_bytes: u64,
    /// The maximum number of deliveries in one pull call. Core asks again for more.
    pub pull_batch: usize,
    /// The maximum number of settlements or extensions in one call.
    pub settle_batch: usize,
}

/// How core joins single requests into calls. A lone caller never waits, unless `linger` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// How many calls may be in flight at once per lane. While there are this many, requests gather. If this
    /// is more than 1, settlements that bring the next deliveries with them must keep [their
    /// order](crate::adapter::PullQueueStorage::exchange).
    pub in_flight: usize,
    /// How long a request waits for others before its call starts; zero except where each request costs
    /// money.
    pub linger: Duration,
    /// Whether requests for different partitions can share a call. (Pushes never do: a push call is for one
    /// partition.)
    pub across_partitions: bool,
}
