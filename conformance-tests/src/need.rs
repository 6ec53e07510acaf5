//! What a case can need beyond what every backend must give.

use std::fmt;

use anyqueue::adapter::{
    AgeClock, Capabilities, Dedup, LeaseKind, Order, PriorityDiscipline, Reach, Rejoin, Requeue,
};

/// What a case needs beyond what every backend must give.
#[derive(Clone, Copy)]
pub struct Need {
    /// What is needed, in words that complete "needs …".
    pub what: &'static str,
    /// Whether the backend declares it. A `false` is the backend's declared right.
    pub declared: fn(&Capabilities) -> bool,
    /// What the harness must offer. Where the backend declares the capability but the harness does not offer this, the
    /// certificate is partial.
    pub offer: Option<Offer>,
}

/// What only a harness can offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Child processes that reach the same storage: [`Harness::address`](crate::Harness::address).
    Children,
    /// A server of the case's own: [`Harness::victim`](crate::Harness::victim).
    Victim,
    /// A storage on the suite's clock: [`Harness::open_on`](crate::Harness::open_on).
    Clock,
    /// A client whose clock is wrong: [`Harness::open_skewed`](crate::Harness::open_skewed).
    Skew,
    /// A storage of bytes that others write to as well: [`Harness::plant`](crate::Harness::plant).
    Foreign,
    /// A stored form that can be damaged: [`Harness::corrupt`](crate::Harness::corrupt).
    Corruption,
}

impl Need {
    /// A declared capability.
    pub const fn capability(what: &'static str, declared: fn(&Capabilities) -> bool) -> Self {
        Self { what, declared, offer: None }
    }

    /// Several priority levels, the higher always first.
    pub const STRICT_PRIORITY: Self = Self::capability("strict priorities", |c| {
        c.priority_levels > 1 && c.priority == PriorityDiscipline::Strict
    });
    /// Several priority levels.
    pub const PRIORITY: Self = Self::capability("priorities", |c| c.priority_levels > 1);
    /// Push order within a priority.
    pub const PUSH_ORDER: Self = Self::capability("push order", |c| c.order == Order::PushOrder);
    /// Settlements that bring the next deliveries with them, several at once.
    pub const OVERLAPPING_EXCHANGES: Self =
        Self::capability("exchanges that overlap", |c| c.exchange && c.coalesce_settle.in_flight > 1);
    /// Returned messages go ahead of never-delivered ones.
    pub const REQUEUE_FRONT: Self = Self::capability("requeue to the front", |c| c.requeue == Requeue::Front);
    /// Postponed and matured messages go behind those that were there.
    pub const REJOIN_LAST: Self =
        Self::capability("postponed and matured messages at the end", |c| c.postponed == Rejoin::End);
    /// Leases that end by time.
    pub const TIMED_LEASE: Self = Self::capability("timed leases", |c| c.lease.kind == LeaseKind::Timed);
    /// Strict fencing.
    pub const FENCING: Self =
        Self::capability("strict fencing", |c| c.fencing == anyqueue::adapter::Strictness::Strict);
    /// Delay at push.
    pub const PUSH_DELAY: Self = Self::capability("push delay", |c| c.push_delay.is_some());
    /// Delay at postponement.
    pub const POSTPONE_DELAY: Self = Self::capability("postpone delay", |c| c.postpone_delay.is_some());
    /// New headers at postponement.
    pub const POSTPONE_HEADERS: Self =
        Self::capability("headers replaced by postponement", |c| c.postpone_headers);
    /// Groups.
    pub const GROUPS: Self = Self::capability("groups", |c| c.groups);
    /// Ages by a clock that no client has.
    pub const SERVER_AGES: Self =
        Self::capability("ages by the server's clock", |c| c.ages == AgeClock::Server);
    /// Deduplication by key.
    pub const DEDUP: Self = Self::capability("deduplication", |c| c.dedup != Dedup::None);
    /// Deduplication that ends with the message.
    pub const DEDUP_WHILE_LIVE: Self =
        Self::capability("deduplication while the first message lives", |c| c.dedup == Dedup::WhileLive);
    /// Moves that are one step: such as are several may overtake each other.
    pub const ATOMIC_MOVES: Self =
        Self::capability("atomic moves", |c| c.moves == anyqueue::adapter::MoveGuarantee::Atomic);
    /// Unique ids.
    pub const UNIQUE_IDS: Self = Self::capability("unique ids", |c| c.unique_ids);
    /// Delivery counts.
    pub const DELIVERY_COUNT: Self =
        Self::capability("delivery counts", |c| c.delivery_count != anyqueue::adapter::DeliveryCount::None);
    /// Releases can be told from other deliveries: by the server, or by a note in the headers.
    pub const RELEASES_TOLD: Self = Self::capability("releases told from other deliveries", |c| {
        let counts = c.delivery_count;
        counts == anyqueue::adapter::DeliveryCount::ExceptReleases
            || (counts == anyqueue::adapter::DeliveryCount::Deliveries
                && c.postpone_headers
                && c.postpone_delay.is_some())
    });
    /// All four counts.
    pub const COUNTS: Self = Self::capability("all four counts", |c| {
        c.inspect.ready && c.inspect.delayed && c.inspect.leased && c.inspect.dead
    });
    /// The list of partitions.
    pub const LIST: Self = Self::capability("a list of partitions", |c| c.inspect.list);
    /// Browsing.
    pub const BROWSE: Self = Self::capability("browsing", |c| c.inspect.browse);
    /// Deletion by id.
    pub const DELETE: Self = Self::capability("deletion by id", |c| c.inspect.delete);
    /// Purging.
    pub const PURGE: Self = Self::capability("purging", |c| c.inspect.purge);
    /// Cancellation by id.
    pub const CANCEL: Self = Self::capability("cancellation by id", |c| c.inspect.cancel);
    /// Pausing.
    pub const PAUSE: Self = Self::capability("pausing", |c| c.pause);
    /// Something of inspection or pausing that the backend does not offer.
    pub const UNDECLARED: Self = Self::capability("an undeclared inspection", |c| {
        let inspect = c.inspect;
        let all = [inspect.list, inspect.browse, inspect.delete, inspect.purge, inspect.cancel, c.pause];
        all.contains(&false)
    });
    /// Child processes that reach the same storage.
    pub const CHILDREN: Self = Self {
        what: "other processes on the same storage",
        declared: |c| c.reach >= Reach::Host,
        offer: Some(Offer::Children),
    };
    /// A clock that the suite turns, where no server has its own.
    pub const CONTROLLED_CLOCK: Self = Self {
        what: "a controlled clock",
        declared: |c| c.reach < Reach::Network,
        offer: Some(Offer::Clock),
    };
    /// A client whose clock is wrong. The processes of one host have one clock.
    pub const SKEWED_CLIENT: Self = Self {
        what: "a client whose clock is wrong",
        declared: |c| c.reach != Reach::Host,
        offer: Some(Offer::Skew),
    };
    /// Stored bytes that did not come from this release of the adapter.
    pub const FOREIGN: Self =
        Self { what: "stored bytes that others can write", declared: |_| true, offer: Some(Offer::Foreign) };
    /// A stored form that can be damaged.
    pub const CORRUPTIBLE: Self = Self {
        what: "a stored form that can be damaged",
        declared: |_| true,
        offer: Some(Offer::Corruption),
    };
    /// A server of the case's own, which it may harm.
    pub const VICTIM: Self = Self {
        what: "a server that can be killed and cut off",
        declared: |c| c.reach == Reach::Network,
        offer: Some(Offer::Victim),
    };
}

impl fmt::Debug for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Need({})", self.what)
    }
}
