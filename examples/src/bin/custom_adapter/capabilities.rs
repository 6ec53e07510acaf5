//! The capabilities of the list, field by field.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Coalesce, Dedup, DeliveryCount, Durability, DurabilityLevel, InspectCapability,
    LeaseCapability, LeaseKind, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach, Rejoin, Requeue,
    SettleConfirm, Strictness,
};

/// The most messages in the list, since nothing should be unlimited.
pub(crate) const MAX_MESSAGES: usize = 1_000_000;

/// Longer waits are shortened to this, because adding them to a time could overflow.
pub(crate) const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_hours(24 * 365);

pub(crate) fn capabilities() -> Capabilities {
    // A lock is fast, so one call at a time takes everything that has gathered meanwhile.
    let coalesce = Coalesce { in_flight: 1, linger: Duration::ZERO, across_partitions: true };
    Capabilities {
        reach: Reach::Process,
        durability: Durability {
            push: DurabilityLevel::None,
            claim: DurabilityLevel::None,
            settle: DurabilityLevel::None,
        },
        unique_ids: false,
        settle_confirm: SettleConfirm::Confirmed,
        priority_levels: 1,
        priority: PriorityDiscipline::None,
        order: Order::PushOrder,
        requeue: Requeue::Front,
        postponed: Rejoin::End,
        exclusive: Strictness::Strict,
        fencing: Strictness::Strict,
        lease: LeaseCapability {
            kind: LeaseKind::Timed,
            min: Duration::from_millis(1),
            max: Duration::from_hours(24),
            max_hold: None,
            portable: true,
        },
        push_delay: None,
        postpone_delay: None,
        postpone_headers: false,
        groups: false,
        ages: AgeClock::Server,
        dedup: Dedup::None,
        on_duplicate: false,
        delivery_count: DeliveryCount::Deliveries,
        moves: MoveGuarantee::Atomic,
        successors: None,
        inspect: InspectCapability {
            ready: false,
            delayed: false,
            leased: false,
            dead: false,
            staleness: Duration::ZERO,
            list: false,
            browse: false,
            delete: false,
            purge: false,
            cancel: false,
        },
        pause: false,
        amend: false,
        urgent_after: false,
        whole_groups: false,
        ledger: None,
        series: false,
        control: false,
        limits: Limits {
            message_bytes: 1 << 20,
            push_batch: 1000,
            push_batch_bytes: 64 << 20,
            pull_batch: 1000,
            settle_batch: 1000,
        },
        // The runtime's timer has a resolution of milliseconds.
        slack: Duration::from_millis(10),
        wake_latency: Duration::from_millis(10),
        overfetch: 0,
        exchange: false,
        coalesce_push: coalesce,
        coalesce_settle: coalesce,
        retention: None,
    }
}
