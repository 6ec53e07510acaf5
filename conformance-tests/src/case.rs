//! What a case is, what it can end with, and what it can need.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Dedup, LeaseKind, Order, PriorityDiscipline, Reach, Rejoin, Requeue,
};
use serde::Serialize;

use crate::clause::clause_title;
use crate::context::Context;
use crate::fault::Fault;
use crate::run::Tier;

/// What a case's function answers: nothing, or why it stopped.
pub type CaseResult<T = ()> = std::result::Result<T, Stop>;

/// A case's function, under way.
pub type CaseFuture<'a> = Pin<Box<dyn Future<Output = CaseResult> + Send + 'a>>;

/// One thing that the suite proves. Built by the `case!` macro in the group's file, in a constant.
#[derive(Clone, Copy)]
pub struct Case {
    /// `group.name`; stable across releases.
    pub id: &'static str,
    /// The clauses of the contract that it proves.
    pub clauses: &'static [u8],
    /// What stands between the case and the adapter.
    pub layer: Layer,
    /// What the backend or the harness must offer.
    pub needs: &'static [Need],
    /// The faulty adapters that this case must find out.
    pub kills: &'static [Fault],
    /// The smallest tier that runs it.
    pub tier: Tier,
    /// How long it may take; nearly all of them need far less.
    pub deadline: Duration,
    /// Whether it runs on a runtime of one thread, where whatever keeps the thread to itself holds up everything.
    pub one_thread: bool,
    /// What it does.
    pub run: for<'a> fn(&'a Context) -> CaseFuture<'a>,
}

impl Case {
    /// A case without needs, in every tier, that may take 30 s.
    pub const fn new(
        id: &'static str,
        layer: Layer,
        clauses: &'static [u8],
        run: for<'a> fn(&'a Context) -> CaseFuture<'a>,
    ) -> Self {
        let deadline = Duration::from_secs(30);
        Self {
            id,
            clauses,
            layer,
            needs: &[],
            kills: &[],
            tier: Tier::Quick,
            deadline,
            one_thread: false,
            run,
        }
    }

    /// Sets what it needs.
    #[must_use]
    pub const fn needs(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    /// Names the faulty adapters that it must find out.
    #[must_use]
    pub const fn kills(mut self, kills: &'static [Fault]) -> Self {
        self.kills = kills;
        self
    }

    /// Gives it more (or less) time.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it, its clients and its queues on a runtime of one thread of its own.
    #[must_use]
    pub const fn on_one_thread(mut self) -> Self {
        self.one_thread = true;
        self
    }

    /// Leaves it to the thorough tier.
    #[must_use]
    pub const fn thorough(mut self) -> Self {
        self.tier = Tier::Thorough;
        self
    }

    /// Leaves it to the soak tier, where it goes on for as long as it is given.
    #[must_use]
    pub const fn soak(mut self) -> Self {
        self.tier = Tier::Soak;
        self
    }

    /// Whether it needs this of the harness.
    pub fn needs_offer(&self, offer: Offer) -> bool {
        self.needs.iter().any(|need| need.offer == Some(offer))
    }

    /// The part of the id before the dot.
    pub fn group(&self) -> &'static str {
        self.id.split_once('.').map_or(self.id, |(group, _)| group)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("id", &self.id).field("clauses", &self.clauses).finish_non_exhaustive()
    }
}

/// What stands between a case and the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Nothing: the clauses that the adapter keeps by itself.
    Storage,
    /// The portable `Queue`: the clauses that core keeps, over this adapter.
    Queue,
}

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

/// Why a case's function stopped before its end. `?` carries it out.
#[derive(Clone, Debug)]
pub enum Stop {
    /// The contract is broken.
    Fail(Box<Failure>),
    /// The backend rightly lacks what this is about; the words complete "needs …".
    NotApplicable(String),
    /// Nothing can be said, and why.
    Inconclusive(String),
}

/// A broken clause, told so that somebody who does not know the suite can act on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Failure {
    /// The clause of the contract.
    pub clause: u8,
    /// What the clause makes of this situation.
    pub expected: String,
    /// What happened instead.
    pub seen: String,
    /// What was done with the messages concerned, in order.
    pub history: Vec<String>,
    /// Faults that this case is known to find, as its likely causes.
    pub likely: Vec<&'static str>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "clause {} ({}) is broken", self.clause, clause_title(self.clause))?;
        writeln!(f, "  expected: {}", self.expected)?;
        write!(f, "  seen:     {}", self.seen)?;
        if !self.history.is_empty() {
            write!(f, "\n  history:")?;
        }
        self.history.iter().try_for_each(|line| write!(f, "\n    {line}"))?;
        if !self.likely.is_empty() {
            write!(f, "\n  a likely cause, as this is how such backends fail this case:")?;
        }
        self.likely.iter().try_for_each(|cause| write!(f, "\n    - {cause}"))
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The contract was kept.
    Pass,
    /// It was not.
    Fail(Failure),
    /// The case does not concern this backend.
    NotApplicable {
        /// What is missing.
        needs: String,
        /// Whether the backend itself declares to lack it (else the harness does).
        declared: bool,
        /// The server's rule that forbids it, as [`Harness::rule`](crate::Harness::rule) cites it.
        rule: Option<&'static str>,
    },
    /// Nothing was observed.
    Inconclusive {
        /// Why.
        why: String,
    },
}
