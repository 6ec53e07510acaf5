//! What the store declares about itself.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Coalesce, Dedup, DelayCapability, DeliveryCount, Durability, DurabilityLevel,
    InspectCapability, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach, Rejoin, Requeue,
    SettleConfirm, Strictness,
};

use crate::limits::{LEASE, MAX_BATCH, MAX_DELAY, PRIORITY_LEVELS};

/// The state changes exactly on time, but a waiter is woken by a timer with a resolution of milliseconds.
const SLACK: Duration = Duration::from_millis(5);

pub(crate) fn capabilities(max_message_bytes: u64) -> Capabilities {
    let none = DurabilityLevel::None;
    let delay = DelayCapability { max: MAX_DELAY, granularity: Duration::from_millis(1) };
    let coalesce = Coalesce { in_flight: 1, linger: Duration::ZERO, across_partitions: true };
    Capabilities {
        reach: Reach::Process,
        durability: Durability { push: none, claim: none, settle: none },
        unique_ids: true,
        settle_confirm: SettleConfirm::Confirmed,
        priority_levels: PRIORITY_LEVELS,
        priority: PriorityDiscipline::Strict,
        order: Order::PushOrder,
        requeue: Requeue::Front,
        postponed: Rejoin::End,
        exclusive: Strictness::Strict,
        fencing: Strictness::Strict,
        lease: LEASE,
        push_delay: Some(delay),
        postpone_delay: Some(delay),
        postpone_headers: true,
        groups: true,
        ages: AgeClock::Server,
        dedup: Dedup::WhileLive,
        on_duplicate: true,
        delivery_count: DeliveryCount::ExceptReleases,
        moves: MoveGuarantee::Atomic,
        successors: Some(MoveGuarantee::Atomic),
        inspect: InspectCapability {
            ready: true,
            delayed: true,
            leased: true,
            dead: true,
            staleness: Duration::ZERO,
            list: true,
            browse: true,
            delete: true,
            purge: true,
            cancel: true,
        },
        pause: true,
        amend: true,
        urgent_after: true,
        whole_groups: true,
        ledger: Some(MoveGuarantee::Atomic),
        series: true,
        control: true,
        limits: Limits {
            message_bytes: max_message_bytes,
            push_batch: MAX_BATCH,
            push_batch_bytes: 64 << 20,
            pull_batch: MAX_BATCH,
            settle_batch: MAX_BATCH,
        },
        slack: SLACK,
        wake_latency: SLACK,
        overfetch: 0,
        exchange: true,
        coalesce_push: coalesce,
        coalesce_settle: coalesce,
        retention: None,
    }
}
