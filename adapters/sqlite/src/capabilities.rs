//! What this backend declares about itself.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Coalesce, Dedup, DelayCapability, DeliveryCount, Durability, DurabilityLevel,
    InspectCapability, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach, Rejoin, Requeue,
    SettleConfirm, Strictness,
};

use crate::config::Config;
use crate::limits::{LEASE, MAX_DELAY, PRIORITY_LEVELS};

/// The most messages, deliveries or settlements in one call.
const BATCH: usize = 1000;
const BATCH_BYTES: u64 = 64 * 1024 * 1024;
/// How late timers and wake-ups may be on a busy machine.
const SLACK: Duration = Duration::from_millis(50);

/// Returns the capabilities. `power` says whether SQLite waits for the disk at each commit.
pub(crate) fn capabilities(config: &Config, power: bool) -> Capabilities {
    let level = if power { DurabilityLevel::PowerLoss } else { DurabilityLevel::ProcessCrash };
    let delay = DelayCapability { max: MAX_DELAY, granularity: Duration::from_millis(1) };
    // The writer joins calls anyway: while it serves one transaction, the requests for the next gather.
    let coalesce = Coalesce { in_flight: 1, linger: Duration::ZERO, across_partitions: true };
    Capabilities {
        reach: Reach::Host,
        // A power failure also ends the holders of the messages, so claims need not survive it.
        durability: Durability { push: level, claim: DurabilityLevel::ProcessCrash, settle: level },
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
            message_bytes: config.message_bytes,
            push_batch: BATCH,
            push_batch_bytes: BATCH_BYTES.max(config.message_bytes),
            pull_batch: BATCH,
            settle_batch: BATCH,
        },
        slack: SLACK,
        wake_latency: config.poll_interval * 2 + SLACK, // polled half as often where nothing happens
        overfetch: 0,
        exchange: true,
        coalesce_push: coalesce,
        coalesce_settle: coalesce,
        retention: None,
    }
}
