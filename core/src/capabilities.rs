//! What a backend gives, as data.

use std::time::Duration;

use crate::error::{Error, Result};

/// What a backend, as configured and on this server, gives.
///
/// Exhaustive and without `Default` on purpose: when a field is added, every adapter stops compiling until its
/// author has answered. Core refuses what is not declared before the adapter sees it, and the conformance suite checks
/// that what is declared is true.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent yes or no of the backend")]
pub struct Capabilities {
    /// Which processes see the same messages.
    pub reach: Reach,
    /// What a crash can take.
    pub durability: Durability,
    /// Pushing a message whose id still lives in the partition, or among its dead letters, returns `Duplicate`, so that repeating
    /// an uncertain push is safe. A server that remembers ids only for a time declares `false`: core may repeat a push, and
    /// a program an interrupted one, after any time.
    pub unique_ids: bool,
    /// Whether the server confirms a settlement.
    pub settle_confirm: SettleConfirm,
    /// Number of priority levels; 1 means none. Levels are 0 (least urgent) to `priority_levels − 1`.
    pub priority_levels: u8,
    /// How strictly a higher level goes first, and how long a lower one may wait meanwhile.
    pub priority: PriorityDiscipline,
    /// Order within one priority.
    pub order: Order,
    /// Where a released or failed message goes.
    pub requeue: Requeue,
    /// Where a postponed message goes, and one whose delay is over.
    pub postponed: Rejoin,
    /// Whether a message under a valid lease is never given to anybody else.
    pub exclusive: Strictness,
    /// Whether a settlement or extension under a lost lease never touches the new owner's message.
    pub fencing: Strictness,
    /// How a delivery is held.
    pub lease: LeaseCapability,
    /// By whose clock ages are counted, and with them expiry.
    pub ages: AgeClock,
    /// Delay at push; `None` if there is none.
    pub push_delay: Option<DelayCapability>,
    /// Delay of [`Postpone`](crate::adapter::Action::Postpone); `None`: only to the end, at once.
    pub postpone_delay: Option<DelayCapability>,
    /// Whether [`Postpone`](crate::adapter::Action::Postpone) can replace the headers.
    pub postpone_headers: bool,
    /// Groups: one member at a time, in push order.
    pub groups: bool,
    /// Deduplication by key.
    pub dedup: Dedup,
    /// Whether a push can do something else with a taken key than be a duplicate: [`OnDuplicate`](crate::OnDuplicate). Only with
    /// [`Dedup::WhileLive`].
    pub on_duplicate: bool,
    /// What [`RawDelivery::delivery_count`](crate::adapter::RawDelivery) counts.
    pub delivery_count: DeliveryCount,
    /// Whether [`Move`](crate::adapter::Action::Move) (and so death and redrive) is atomic, and so is a [`Postpone`](crate::adapter::Action::Postpone) that the
    /// backend makes by storing a copy.
    pub moves: MoveGuarantee,
    /// Whether a settlement can [store messages](crate::adapter::Settlement::then) with the end of its delivery, and whether both are one step:
    /// if it is [`AtLeastOnce`](MoveGuarantee::AtLeastOnce), a crash in the middle, or a lease that ends there, leaves the successors stored and
    /// the delivery not ended. `None`: it cannot.
    pub successors: Option<MoveGuarantee>,
    /// What [`InspectQueueStorage`](crate::adapter::InspectQueueStorage) can do.
    pub inspect: InspectCapability,
    /// Whether partitions can be paused.
    pub pause: bool,
    /// Whether what waits can be changed: [`AmendQueueStorage`](crate::adapter::AmendQueueStorage).
    pub amend: bool,
    /// Whether a message can [become urgent](crate::TaskOptions::urgent_after) while it waits.
    pub urgent_after: bool,
    /// Whether a pull can [claim groups whole](crate::adapter::PullRequest::group_members). Only with [`groups`](Self::groups).
    pub whole_groups: bool,
    /// Whether the end of a task is [stored with its settlement](crate::adapter::Settlement::end), and can be asked for
    /// ([`LedgerQueueStorage`](crate::adapter::LedgerQueueStorage)), and whether both are one step: if it is
    /// [`AtLeastOnce`](MoveGuarantee::AtLeastOnce), a crash in the middle, or a lost lease, leaves an end of what has not ended. `None`: it keeps none.
    pub ledger: Option<MoveGuarantee>,
    /// Whether ends are [counted by the minute](crate::adapter::LedgerQueueStorage::series), in the step that stores them. Only with a
    /// [`ledger`](Self::ledger).
    pub series: bool,
    /// Whether it keeps small shared entries: [`ControlStorage`](crate::control::ControlStorage).
    pub control: bool,
    /// Sizes and batch limits.
    pub limits: Limits,
    /// How late a timed promise (lease end, delay, long-poll end) may be kept.
    pub slack: Duration,
    /// How long after a push a waiting pull may still wait.
    pub wake_latency: Duration,
    /// How many messages beyond `max` a pull may hold for at most [`slack`](Self::slack); 0 except where a server needs
    /// one queue per level.
    pub overfetch: u32,
    /// Whether [`exchange`](crate::adapter::PullQueueStorage::exchange) takes one round trip instead of two.
    pub exchange: bool,
    /// How core joins single pushes into calls.
    pub coalesce_push: Coalesce,
    /// How core joins single settlements and extensions into calls.
    pub coalesce_settle: Coalesce,
    /// How long a message may wait at most before the server drops it; `None`: forever.
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

/// What a crash can take, for each of the three kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// Of acknowledged pushes.
    pub push: DurabilityLevel,
    /// Of claims. A lost claim means an early redelivery; the lost lease is fenced.
    pub claim: DurabilityLevel,
    /// Of confirmed settlements. A lost settlement means a redelivery.
    pub settle: DurabilityLevel,
}

/// The worst event that acknowledged data survives. Each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DurabilityLevel {
    /// None: gone with the process that holds it.
    None,
    /// Survives the crash of clients and server processes (it is with the operating system).
    ProcessCrash,
    /// Survives power loss (flushed to the disk).
    PowerLoss,
    /// Survives the loss of one machine (on several).
    MachineLoss,
}

/// Whether the server confirms a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleConfirm {
    /// `Settled` means that the server said so.
    Confirmed,
    /// `Settled` means that it was sent, or will be in a moment; a cut or crash may redeliver.
    Sent,
}

/// How strictly a higher priority goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityDiscipline {
    /// There is one level.
    None,
    /// Higher levels first, always; a lower level can wait forever under sustained higher load.
    Strict,
    /// Higher levels get a larger share; no ready message waits longer than this for lack of share.
    Weighted {
        /// The longest such wait.
        bound: Duration,
    },
}

/// Order of never-delivered messages within one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None.
    None,
    /// Push order within each group, none without.
    PerGroup,
    /// Push order.
    PushOrder,
}

/// Where a released or failed message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Ahead of messages of its priority that were never delivered.
    Front,
    /// Behind them.
    Back,
    /// Anywhere.
    Unordered,
}

/// Where a message goes that was postponed, or has matured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin {
    /// To the end of its priority, when its delay is over.
    End,
    /// Ahead of messages of its priority that were never delivered.
    Front,
    /// Anywhere.
    Unordered,
}

/// How far a promise goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Always.
    Strict,
    /// Except in the windows that the adapter documents.
    BestEffort,
}

/// How a delivery is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCapability {
    /// By time or by connection.
    pub kind: LeaseKind,
    /// The shortest lease a pull may ask for.
    pub min: Duration,
    /// The longest lease a pull or an extension may ask for.
    pub max: Duration,
    /// How long a delivery can be held in all, extensions included; `None`: without limit.
    pub max_hold: Option<Duration>,
    /// Whether another handle, in any process, can settle a delivery in every way. If not, the one that pulled it has to: its leases belong to its
    /// connection, or it alone has the message that a move stores anew.
    pub portable: bool,
}

impl LeaseCapability {
    /// Leases that end by their time, from `min` to `max`, without limit in all, and that any handle can settle.
    #[must_use]
    pub const fn timed(min: Duration, max: Duration) -> Self {
        Self { kind: LeaseKind::Timed, min, max, max_hold: None, portable: true }
    }

    /// Whether a lease can be had.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), with the bounds, if it is too short or too long.
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
    /// Its time, kept by the server, moved by [`extend`](crate::adapter::PullQueueStorage::extend).
    Timed,
    /// The death of the connection; core's own timer releases what nobody extends.
    Connection,
}

/// A delay that a backend offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayCapability {
    /// The longest.
    pub max: Duration,
    /// Delays are rounded up to a multiple of this.
    pub granularity: Duration,
}

/// By whose clock the age of a message is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeClock {
    /// The server's, or the host's.
    Server,
    /// Those of who pushes and of who pulls: where they differ, messages expire too early or too late by as much.
    Clients,
}

/// Deduplication by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedup {
    /// None.
    None,
    /// While a message with the key lives in the partition (waiting, delayed or leased; death frees the key).
    WhileLive,
    /// For this long after the first push, whatever became of it. The repetition is not stored; that it is one may remain untold: it may be
    /// answered as [`Stored`](crate::PushOutcome::Stored) too. Only pushes are compared: a move, a redrive or a
    /// [successor](crate::adapter::Settlement::then) is never dropped for its key.
    Window(Duration),
}

/// What the delivery count counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryCount {
    /// There is none.
    None,
    /// Deliveries since push, move or redrive, this one included, whatever ended them: releases count too.
    Deliveries,
    /// As [`Deliveries`](Self::Deliveries), but one that ended with a release or postponement is taken off again.
    ExceptReleases,
}

/// Whether what takes two steps on some servers is one: a move between partitions, a postponement by a copy, successors or the end of a task with a
/// settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveGuarantee {
    /// The message is in exactly one place at any moment.
    Atomic,
    /// A crash in the middle, or a lease that ends there, leaves it in both, or twice in its own partition if it was postponed.
    AtLeastOnce,
}

/// What inspection can do. All `false` where the adapter has no [`InspectQueueStorage`](crate::adapter::InspectQueueStorage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent yes or no of the backend")]
pub struct InspectCapability {
    /// Counts of messages ready to be pulled.
    pub ready: bool,
    /// Counts of delayed messages.
    pub delayed: bool,
    /// Counts of leased messages.
    pub leased: bool,
    /// Counts of dead letters.
    pub dead: bool,
    /// How old a count may be.
    pub staleness: Duration,
    /// List of partitions.
    pub list: bool,
    /// Browsing without leasing.
    pub browse: bool,
    /// Deletion by id.
    pub delete: bool,
    /// Removing everything that is not leased.
    pub purge: bool,
    /// Requests for cancellation by id.
    pub cancel: bool,
}

/// Sizes and batch limits. Core splits larger batches; larger messages are `TooLarge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message in its encoded form, as [`encoded_len`](crate::adapter::PushQueueStorage::encoded_len) counts them. A message
    /// at the limit must still be able to die: death adds up to [`DEATH_BYTES`](crate::adapter::DEATH_BYTES) of headers beyond it.
    pub message_bytes: u64,
    /// Messages in one push call.
    pub push_batch: usize,
    /// Bytes (encoded) in one push call.
    pub push_batch_bytes: u64,
    /// Deliveries in one pull call. Core asks again for more.
    pub pull_batch: usize,
    /// Settlements or extensions in one call.
    pub settle_batch: usize,
}

/// How core joins single requests into calls. A lone caller never waits, whatever this says, unless `linger` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// Calls under way at once per lane. While this many are, requests gather. Settlements that bring the next deliveries with them must
    /// keep [their order](crate::adapter::PullQueueStorage::exchange) if this is more than 1.
    pub in_flight: usize,
    /// How long a request waits for company before its call starts; zero except where each request costs money.
    pub linger: Duration,
    /// Whether requests of different partitions can share a call. (Pushes never do: a push call is for one partition.)
    pub across_partitions: bool,
}
