//! What the broker gives at least, and why it cannot give more.

use anyqueue_conformance::Need;

/// Classic queues count no deliveries.
pub(crate) const CLASSIC: &[Need] = &[
    Need::Priority,
    Need::StrictPriority,
    Need::PushOrder,
    Need::RequeueFront,
    Need::Fencing,
    Need::PushDelay,
    Need::PostponeDelay,
];

/// Why the broker cannot have it.
pub(crate) const RULES: &[(Need, &str)] = &[
    (
        Need::TimedLease,
        "a delivery is its channel's: AMQP 0-9-1 knows no end by time; core's own timer gives back what nobody extends",
    ),
    (Need::PortableLease, "a delivery is its channel's: nobody else can acknowledge it"),
    (Need::DeliveryCount, "a classic queue counts no deliveries"),
    (Need::Groups, "a single active consumer is per queue: the broker orders no group within one"),
    (Need::Dedup, "the broker compares no messages"),
    (Need::OnDuplicate, "the broker neither compares nor changes messages"),
    (Need::DedupWhileLive, "the broker compares no messages"),
    (Need::UniqueIds, "the broker compares no messages"),
    (
        Need::Counts,
        "the broker counts ready messages of a queue; what is held or delayed it tells only to managers",
    ),
    (Need::List, "AMQP 0-9-1 cannot list queues"),
    (Need::Browse, "the broker shows a message only to who takes it"),
    (Need::Delete, "the broker finds no message by its id"),
    (Need::Purge, "a queue is purged as a whole: no bound, and delayed messages stay"),
    (Need::Cancel, "the broker finds no message by its id"),
    (Need::Amend, "a queue cannot be reordered, and the broker finds no message by its id"),
    (
        Need::UrgentAfter,
        "a queue cannot be reordered: a message keeps the priority with which it was published",
    ),
    (Need::WholeGroups, "the broker orders no group within a queue, so there is none to claim"),
    (Need::Ledger, "the broker keeps nothing of what is acknowledged"),
    (Need::AtomicLedger, "the broker keeps nothing of what is acknowledged"),
    (Need::Series, "the broker keeps nothing of what is acknowledged, nor counts it"),
    (
        Need::Control,
        "the broker has no entry that can be read without taking it, or changed if nobody else did",
    ),
    (Need::Pause, "consumers of a queue cannot be paused"),
    (Need::ServerAges, "AMQP 0-9-1 does not tell the broker's time: a message bears that of who pushed it"),
    (
        Need::AtomicMoves,
        "no call both publishes and acknowledges: the copy is confirmed first, then the original acknowledged",
    ),
    (
        Need::AtomicSuccessors,
        "no call both publishes and acknowledges: successors are confirmed first, then their delivery acknowledged",
    ),
    (Need::ControlledClock, "time is the server's: its clock cannot be turned"),
];
