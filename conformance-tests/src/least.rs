//! The least that anyqueue's own backends must declare, by the kind of server that they are for. A backend
//! that declares less fails its suite, so that no promise is withdrawn unnoticed. A
//! [`Harness`](crate::Harness) names its list in [`least`](crate::Harness::least).
//!
//! | list | for |
//! |---|---|
//! | [`EVERYTHING`] | a database, or memory: whatever can run a transaction or a script over all of a partition |
//! | [`BROKER`] | a message broker with replicated queues, which holds a delivery for as long as its connection lives |
//! | [`CLOUD`] | a queue service without any order |
//! | [`CLOUD_FIFO`] | a queue service with order within groups |

use anyqueue::adapter::{Capabilities, LeaseKind, Order, PriorityDiscipline, Rejoin, Requeue};

use crate::need::Need;

/// Everything that can be declared.
pub const EVERYTHING: &[Need] = &[
    Need::ServerAges,
    Need::TenPriorities,
    Need::Priority,
    Need::StrictPriority,
    Need::PushOrder,
    Need::RequeueFront,
    Need::RejoinLast,
    Need::TimedLease,
    Need::TwelveHourLease,
    Need::PortableLease,
    Need::Fencing,
    Need::Exclusive,
    Need::ExactPushDelay,
    Need::PushDelay,
    Need::ExactPostponeDelay,
    Need::PostponeDelay,
    Need::Groups,
    Need::Dedup,
    Need::DedupWhileLive,
    Need::OnDuplicate,
    Need::Successors,
    Need::Amend,
    Need::UrgentAfter,
    Need::WholeGroups,
    Need::Ledger,
    Need::AtomicLedger,
    Need::Series,
    Need::DeliveryCount,
    Need::AtomicMoves,
    Need::ConfirmedSettlements,
    Need::Counts,
    Need::Browse,
    Need::Delete,
    Need::Pause,
];

/// What a broker with replicated queues can offer.
pub const BROKER: &[Need] = &[
    Need::TenPriorities,
    Need::Priority,
    Need::StrictPriority,
    Need::PushOrder,
    Need::RequeueFront,
    Need::RejoinLast,
    Need::Fencing,
    Need::Exclusive,
    Need::PushDelay,
    Need::PostponeDelay,
    Need::DeliveryCount,
    Need::ReadyAndDeadCounts,
];
/// What a queue service without order can offer.
pub const CLOUD: &[Need] = &[
    Need::ServerAges,
    Need::TenPriorities,
    Need::Priority,
    Need::StrictPriority,
    Need::TimedLease,
    Need::TwelveHourLease,
    Need::PushDelay,
    Need::PostponeDelay,
    Need::DeliveryCount,
    Need::ConfirmedSettlements,
    Need::ReadyCounts,
];
/// What a queue service with ordered groups can offer. It keeps a group together within one queue, so there
/// are no priority levels, which would be several queues. A returned message is the first of its group, which
/// is what [`Need::Groups`] asks for, but there is no front across groups. It remembers deduplication keys
/// for a time, whatever became of their messages.
pub const CLOUD_FIFO: &[Need] = &[
    Need::ServerAges,
    Need::GroupOrder,
    Need::TimedLease,
    Need::TwelveHourLease,
    Need::Exclusive,
    Need::PostponeDelay,
    Need::Groups,
    Need::Dedup,
    Need::DedupWindow,
    Need::DeliveryCount,
    Need::ConfirmedSettlements,
    Need::ReadyCounts,
];

/// Returns what is wrong with a declaration: combinations that no backend can offer, whatever it is.
pub(crate) fn contradictions(c: &Capabilities) -> Vec<&'static str> {
    let one_level = c.priority == PriorityDiscipline::None;
    let limits = [c.limits.push_batch, c.limits.pull_batch, c.limits.settle_batch];
    let checks = [
        (c.priority_levels == 0, "no priority level at all"),
        (one_level != (c.priority_levels <= 1), "priority levels without a discipline, or the reverse"),
        (c.lease.min.is_zero() || c.lease.min > c.lease.max, "lease bounds that no lease can keep"),
        (c.lease.max_hold.is_some_and(|hold| hold < c.lease.min), "a longest hold below the shortest lease"),
        (
            c.lease.portable && c.lease.kind == LeaseKind::Connection,
            "leases that are connections, and that others can settle",
        ),
        (limits.contains(&0), "a batch limit of zero"),
        (c.limits.message_bytes == 0, "no room for any message"),
        (c.limits.push_batch_bytes < c.limits.message_bytes, "batches too small for the largest message"),
        (c.groups && c.order == Order::None, "groups without any order"),
        (c.whole_groups && !c.groups, "whole groups where there are no groups"),
        (c.requeue == Requeue::Front && c.order == Order::None, "a front where there is no order"),
        (
            c.postponed != Rejoin::Unordered && c.order == Order::None,
            "an end or a front where there is no order",
        ),
    ];
    checks.iter().filter(|(wrong, _)| *wrong).map(|(_, what)| *what).collect()
}
