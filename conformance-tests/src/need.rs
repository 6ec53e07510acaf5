//! What a case can need beyond what every backend must offer.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Dedup, DeliveryCount, LeaseKind, MoveGuarantee, Order, PriorityDiscipline, Reach,
    Rejoin, Requeue, SettleConfirm, Strictness,
};

/// Message limits above this are not tested.
pub(crate) const MAX_TRIED_BYTES: u64 = 32 << 20;

macro_rules! needs {
    ($(#[doc = $doc:literal] $name:ident: $what:literal, |$c:pat_param| $declared:expr;)+) => {
        /// What a case needs beyond what every backend must offer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Need {
            $(#[doc = $doc] $name,)+
        }

        impl Need {
            /// Returns what is needed, in words that complete "needs …".
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$name => $what,)+
                }
            }

            /// Returns whether a backend with these capabilities declares this. A backend may leave it
            /// undeclared.
            pub fn is_declared(self, capabilities: &Capabilities) -> bool {
                match self {
                    $(Self::$name => {
                        let $c = capabilities;
                        $declared
                    })+
                }
            }
        }
    };
}

needs! {
    /// Several priority levels, where a higher level always goes first.
    StrictPriority: "strict priorities",
        |c| c.priority_levels > 1 && c.priority == PriorityDiscipline::Strict;
    /// Several priority levels.
    Priority: "priorities", |c| c.priority_levels > 1;
    /// Push order within a priority.
    PushOrder: "push order", |c| c.order == Order::PushOrder;
    /// Settlements that bring the next deliveries with them, several of them at once.
    OverlappingExchanges: "exchanges that overlap", |c| c.exchange && c.coalesce_settle.in_flight > 1;
    /// Returned messages go ahead of never-delivered ones.
    RequeueFront: "requeue to the front", |c| c.requeue == Requeue::Front;
    /// Postponed and matured messages go behind those that were already there.
    RejoinLast: "postponed and matured messages at the end", |c| c.postponed == Rejoin::End;
    /// Leases that end after a time.
    TimedLease: "timed leases", |c| c.lease.kind == LeaseKind::Timed;
    /// Deliveries that any client can settle in every way.
    PortableLease: "leases that any client can settle", |c| c.lease.portable;
    /// Leases that last as long as a connection.
    ConnectionLease: "leases that are connections", |c| c.lease.kind == LeaseKind::Connection;
    /// Strict fencing.
    Fencing: "strict fencing", |c| c.fencing == Strictness::Strict;
    /// Delay at push.
    PushDelay: "push delay", |c| c.push_delay.is_some();
    /// Delay at postponement.
    PostponeDelay: "postpone delay", |c| c.postpone_delay.is_some();
    /// New headers at postponement.
    PostponeHeaders: "headers replaced by postponement", |c| c.postpone_headers;
    /// Groups.
    Groups: "groups", |c| c.groups;
    /// Ages by a clock that belongs to no client.
    ServerAges: "ages by the server's clock", |c| c.ages == AgeClock::Server;
    /// Deduplication by key.
    Dedup: "deduplication", |c| c.dedup != Dedup::None;
    /// Deduplication that ends with the message.
    DedupWhileLive: "deduplication while the first message lives", |c| c.dedup == Dedup::WhileLive;
    /// Deduplication that lasts for a time.
    DedupWindow: "deduplication for a time after the push", |c| matches!(c.dedup, Dedup::Window(_));
    /// Pushes that change the waiting message with their key.
    OnDuplicate: "pushes that change what waits with their key", |c| c.on_duplicate;
    /// Moves in one step. Moves in several steps may overtake each other.
    AtomicMoves: "atomic moves", |c| c.moves == MoveGuarantee::Atomic;
    /// Amendment of waiting messages.
    Amend: "amendment of what waits", |c| c.amend;
    /// Messages that become urgent.
    UrgentAfter: "messages that become urgent", |c| c.urgent_after;
    /// Groups claimed whole.
    WholeGroups: "groups claimed whole", |c| c.whole_groups;
    /// Ends of tasks that are kept.
    Ledger: "a ledger of the ends of tasks", |c| c.ledger.is_some();
    /// Ends of tasks that are stored in one step with their settlements.
    AtomicLedger: "a ledger in one step with the settlement", |c| c.ledger == Some(MoveGuarantee::Atomic);
    /// Ends of tasks that are counted by the minute.
    Series: "counts of ends by the minute", |c| c.series;
    /// Small shared entries with versions and times to live.
    Control: "a control store", |c| c.control;
    /// Successors that are stored with the end of a delivery.
    Successors: "successors", |c| c.successors.is_some();
    /// Successors that are stored in one step with the end.
    AtomicSuccessors: "successors in one step", |c| c.successors == Some(MoveGuarantee::Atomic);
    /// Unique ids.
    UniqueIds: "unique ids", |c| c.unique_ids;
    /// Delivery counts.
    DeliveryCount: "delivery counts", |c| c.delivery_count != DeliveryCount::None;
    /// Delivery counts that distinguish releases: by the server, or by a note in the headers.
    ReleasesTold: "releases told from other deliveries", |c| match c.delivery_count {
        DeliveryCount::ExceptReleases => true,
        DeliveryCount::Deliveries => c.postpone_headers && c.postpone_delay.is_some(),
        DeliveryCount::None => false,
    };
    /// All four counts.
    Counts: "all four counts", |c| c.inspect.ready && c.inspect.delayed && c.inspect.leased && c.inspect.dead;
    /// The list of partitions.
    List: "a list of partitions", |c| c.inspect.list;
    /// Browsing.
    Browse: "browsing", |c| c.inspect.browse;
    /// Deletion by id.
    Delete: "deletion by id", |c| c.inspect.delete;
    /// Purging.
    Purge: "purging", |c| c.inspect.purge;
    /// Cancellation by id.
    Cancel: "cancellation by id", |c| c.inspect.cancel;
    /// Pausing.
    Pause: "pausing", |c| c.pause;
    /// Some part of inspection or pausing that the backend does not offer.
    Undeclared: "an undeclared inspection", |c| {
        let inspect = c.inspect;
        let all = [inspect.list, inspect.browse, inspect.delete, inspect.purge, inspect.cancel, c.pause];
        all.contains(&false)
    };
    /// Child processes that use the same storage.
    Children: "other processes on the same storage", |c| c.reach >= Reach::Host;
    /// A clock that the suite controls, where no server has its own.
    ControlledClock: "a controlled clock", |c| c.reach < Reach::Network;
    /// A client whose clock is wrong. The processes of one host have one clock.
    SkewedClient: "a client whose clock is wrong", |c| c.reach != Reach::Host;
    /// Stored bytes that did not come from this release of the adapter.
    Foreign: "stored bytes that others can write", |_| true;
    /// A server for one case alone, which the case may disrupt.
    FaultTarget: "a server that can be killed and cut off", |c| c.reach == Reach::Network;
    /// A stored form that can be damaged.
    Corruptible: "a stored form that can be damaged", |_| true;
    /// At least ten priority levels, where a higher level always goes first.
    TenPriorities: "ten strict priority levels",
        |c| c.priority_levels >= 10 && c.priority == PriorityDiscipline::Strict;
    /// Push order, at least within a group.
    GroupOrder: "push order within a group", |c| c.order != Order::None;
    /// Leases that can hold a task for half a day.
    TwelveHourLease: "timed leases of up to twelve hours",
        |c| c.lease.kind == LeaseKind::Timed && c.lease.max >= Duration::from_hours(12);
    /// A message is never held by two consumers at once.
    Exclusive: "one holder at a time, always", |c| c.exclusive == Strictness::Strict;
    /// Push delays to the millisecond.
    ExactPushDelay: "push delays in steps of a millisecond",
        |c| c.push_delay.is_some_and(|delay| delay.granularity <= Duration::from_millis(1));
    /// Postpone delays to the millisecond.
    ExactPostponeDelay: "postpone delays in steps of a millisecond",
        |c| c.postpone_delay.is_some_and(|delay| delay.granularity <= Duration::from_millis(1));
    /// Settlements that the server confirms.
    ConfirmedSettlements: "confirmed settlements", |c| c.settle_confirm == SettleConfirm::Confirmed;
    /// Two of the four counts.
    ReadyAndDeadCounts: "counts of ready messages and dead letters", |c| c.inspect.ready && c.inspect.dead;
    /// One of the four counts.
    ReadyCounts: "counts of ready messages", |c| c.inspect.ready;
    /// Long leases.
    HourLease: "leases of an hour", |c| c.lease.max >= Duration::from_hours(1);
    /// Long push delays.
    HourPushDelay: "push delays of an hour",
        |c| c.push_delay.is_some_and(|delay| delay.max >= Duration::from_hours(1));
    /// Long postponements.
    HourPostponement: "postponements of an hour",
        |c| c.postpone_delay.is_some_and(|delay| delay.max >= Duration::from_hours(1));
    /// A message limit that can be tested: above it, a case would measure the memory of the machine.
    ModestMessageLimit: "a limit on messages of at most 32 MiB",
        |c| c.limits.message_bytes <= MAX_TRIED_BYTES;
}

impl Need {
    /// Returns what the harness must offer for this. If the backend declares the capability but the harness
    /// does not offer this, the certificate is partial.
    pub const fn offer(self) -> Option<Offer> {
        match self {
            Self::Children => Some(Offer::Children),
            Self::ControlledClock => Some(Offer::Clock),
            Self::SkewedClient => Some(Offer::Skew),
            Self::Foreign => Some(Offer::Foreign),
            Self::Corruptible => Some(Offer::Corruption),
            Self::FaultTarget => Some(Offer::FaultTarget),
            _ => None,
        }
    }
}

/// Something that only a harness can offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Child processes that use the same storage: [`Harness::address`](crate::Harness::address).
    Children,
    /// A server for one case alone: [`Harness::fault_target`](crate::Harness::fault_target).
    FaultTarget,
    /// A storage on the suite's clock: [`Harness::open_on`](crate::Harness::open_on).
    Clock,
    /// A client whose clock is wrong: [`Harness::open_skewed`](crate::Harness::open_skewed).
    Skew,
    /// A storage of bytes that other programs write to as well: [`Harness::plant`](crate::Harness::plant).
    Foreign,
    /// A stored form that can be damaged: [`Harness::corrupt`](crate::Harness::corrupt).
    Corruption,
}
