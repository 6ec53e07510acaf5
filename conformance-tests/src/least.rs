//! The least that anyqueue's own backends must declare, by the kind of server that they are for: declaring less fails their suite, so
//! that no promise is taken back unnoticed. A [`Harness`](crate::Harness) names its list in [`least`](crate::Harness::least).
//!
//! | list | for |
//! |---|---|
//! | [`EVERYTHING`] | a database, or memory: whatever can run a transaction or a script over all of a partition |
//! | [`BROKER`] | a message broker with replicated queues, which holds a delivery for as long as its connection lives |
//! | [`CLOUD`] | a queue service without any order |
//! | [`CLOUD_FIFO`] | a queue service with order within groups |

use std::time::Duration;

use anyqueue::adapter::{
    Capabilities, DeliveryCount, LeaseKind, MoveGuarantee, Order, PriorityDiscipline, Rejoin, Requeue,
    SettleConfirm, Strictness,
};

use crate::need::Need;

const TEN_PRIORITIES: Need = Need::capability("ten strict priority levels", |c| {
    c.priority_levels >= 10 && c.priority == PriorityDiscipline::Strict
});
const ORDER_IN_GROUPS: Need = Need::capability("push order within a group", |c| c.order != Order::None);
const LONG_LEASE: Need = Need::capability("timed leases of up to twelve hours", |c| {
    c.lease.kind == LeaseKind::Timed && c.lease.max >= Duration::from_hours(12)
});
const EXCLUSIVE: Need =
    Need::capability("one holder at a time, always", |c| c.exclusive == Strictness::Strict);
const EXACT_PUSH_DELAY: Need = Need::capability("push delays in steps of a millisecond", |c| {
    c.push_delay.is_some_and(|delay| delay.granularity <= Duration::from_millis(1))
});
const EXACT_POSTPONE_DELAY: Need = Need::capability("postpone delays in steps of a millisecond", |c| {
    c.postpone_delay.is_some_and(|delay| delay.granularity <= Duration::from_millis(1))
});
const COUNTED: Need = Need::capability("delivery counts", |c| c.delivery_count != DeliveryCount::None);
const ATOMIC_MOVES: Need = Need::capability("atomic moves", |c| c.moves == MoveGuarantee::Atomic);
const CONFIRMED: Need =
    Need::capability("confirmed settlements", |c| c.settle_confirm == SettleConfirm::Confirmed);
const READY_AND_DEAD: Need =
    Need::capability("counts of ready messages and dead letters", |c| c.inspect.ready && c.inspect.dead);
const READY: Need = Need::capability("counts of ready messages", |c| c.inspect.ready);

/// Everything there is.
pub const EVERYTHING: &[Need] = &[
    Need::SERVER_AGES,
    TEN_PRIORITIES,
    Need::PRIORITY,
    Need::STRICT_PRIORITY,
    Need::PUSH_ORDER,
    Need::REQUEUE_FRONT,
    Need::REJOIN_LAST,
    Need::TIMED_LEASE,
    LONG_LEASE,
    Need::FENCING,
    EXCLUSIVE,
    EXACT_PUSH_DELAY,
    Need::PUSH_DELAY,
    EXACT_POSTPONE_DELAY,
    Need::POSTPONE_DELAY,
    Need::GROUPS,
    Need::DEDUP,
    Need::DEDUP_WHILE_LIVE,
    Need::DELIVERY_COUNT,
    ATOMIC_MOVES,
    CONFIRMED,
    Need::COUNTS,
    Need::BROWSE,
    Need::DELETE,
    Need::PAUSE,
];

/// What a broker with replicated queues can give.
pub const BROKER: &[Need] = &[
    TEN_PRIORITIES,
    Need::PRIORITY,
    Need::STRICT_PRIORITY,
    Need::PUSH_ORDER,
    Need::REQUEUE_FRONT,
    Need::REJOIN_LAST,
    Need::FENCING,
    EXCLUSIVE,
    Need::PUSH_DELAY,
    Need::POSTPONE_DELAY,
    Need::DELIVERY_COUNT,
    READY_AND_DEAD,
];
/// What a queue service without order can give.
pub const CLOUD: &[Need] = &[
    Need::SERVER_AGES,
    TEN_PRIORITIES,
    Need::PRIORITY,
    Need::STRICT_PRIORITY,
    Need::TIMED_LEASE,
    LONG_LEASE,
    Need::PUSH_DELAY,
    Need::POSTPONE_DELAY,
    COUNTED,
    CONFIRMED,
    READY,
];
/// What a queue service with ordered groups can give. It keeps a group together within one queue, so there are no levels, which would
/// be several; a returned message is the first of its group, which is what [`Need::GROUPS`] asks for, but there is no front between
/// groups. And it drops duplicates without telling them from what it stores, so that no pusher could be told.
pub const CLOUD_FIFO: &[Need] = &[
    Need::SERVER_AGES,
    ORDER_IN_GROUPS,
    Need::TIMED_LEASE,
    LONG_LEASE,
    EXCLUSIVE,
    Need::POSTPONE_DELAY,
    Need::GROUPS,
    COUNTED,
    CONFIRMED,
    READY,
];

/// What no backend can declare, whatever it is: each with what is wrong with it.
pub(crate) fn contradictions(c: &Capabilities) -> Vec<&'static str> {
    let one_level = c.priority == PriorityDiscipline::None;
    let limits = [c.limits.push_batch, c.limits.pull_batch, c.limits.settle_batch];
    let checks = [
        (c.priority_levels == 0, "no priority level at all"),
        (one_level != (c.priority_levels <= 1), "priority levels without a discipline, or the reverse"),
        (c.lease.min.is_zero() || c.lease.min > c.lease.max, "lease bounds that no lease can keep"),
        (c.lease.max_hold.is_some_and(|hold| hold < c.lease.min), "a longest hold below the shortest lease"),
        (limits.contains(&0), "a batch limit of zero"),
        (c.limits.message_bytes == 0, "no room for any message"),
        (c.limits.push_batch_bytes < c.limits.message_bytes, "batches too small for the largest message"),
        (c.groups && c.order == Order::None, "groups without any order"),
        (c.requeue == Requeue::Front && c.order == Order::None, "a front where there is no order"),
        (
            c.postponed != Rejoin::Unordered && c.order == Order::None,
            "an end or a front where there is no order",
        ),
    ];
    checks.iter().filter(|(wrong, _)| *wrong).map(|(_, what)| *what).collect()
}
