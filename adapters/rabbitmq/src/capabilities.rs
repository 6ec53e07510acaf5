//! What this backend declares about itself.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Coalesce, Dedup, DelayCapability, DeliveryCount, Durability, DurabilityLevel,
    InspectCapability, LeaseCapability, LeaseKind, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach,
    Rejoin, Requeue, SettleConfirm, Strictness,
};

use crate::config::{Config, QueueType};
use crate::delay_queues;
use crate::limits::PRIORITY_LEVELS;

/// The most messages, deliveries or settlements in one call.
const BATCH: usize = 1000;
const BATCH_BYTES: u64 = 64 * 1024 * 1024;
/// The number of concurrent push calls. The server flushes everything to disk that has arrived meanwhile. So
/// one call with the messages of many tasks is answered as fast as several calls with a part each, and costs
/// the server less.
const PUSH_CALLS: usize = 1;
/// The number of concurrent settle calls, since one of them can be waiting until copies are confirmed.
const SETTLE_CALLS: usize = 2;
/// How late anything timed may be because of timers, the network and the server's queues.
const SLACK: Duration = Duration::from_millis(300);
/// The time from a confirmed push to the delivery to a waiting consumer.
const WAKE_LATENCY: Duration = Duration::from_millis(100);
/// A delivery ends this long before the server's limit, which the server checks once a minute.
const HOLD_MARGIN: Duration = Duration::from_secs(30);

pub(crate) fn capabilities(config: &Config) -> Capabilities {
    let is_quorum = config.queue_type == QueueType::Quorum;
    let delay = DelayCapability { max: delay_queues::MAX_DELAY, granularity: delay_queues::STEP };
    let coalesce = |in_flight| Coalesce { in_flight, linger: Duration::ZERO, across_partitions: true };
    let hold = config.consumer_timeout.saturating_sub(HOLD_MARGIN).max(config.consumer_timeout / 2);
    // A quorum queue writes to disk before it confirms. A classic one flushes in batches, so it may confirm a
    // little earlier.
    let push = if is_quorum { DurabilityLevel::PowerLoss } else { DurabilityLevel::ProcessCrash };
    let overfetch = if config.prefetch > 0 { config.prefetch } else { 1 };
    Capabilities {
        reach: Reach::Network,
        // A claim lives as long as its channel.
        durability: Durability { push, claim: DurabilityLevel::None, settle: push },
        unique_ids: false,
        // They are sent with the next pull, or a moment after the last one; see the crate's documentation.
        settle_confirm: SettleConfirm::Sent,
        priority_levels: PRIORITY_LEVELS,
        priority: PriorityDiscipline::Strict,
        order: Order::PushOrder,
        requeue: Requeue::Front,
        postponed: Rejoin::End,
        exclusive: Strictness::Strict,
        fencing: Strictness::Strict,
        lease: LeaseCapability {
            kind: LeaseKind::Connection,
            min: Duration::from_millis(1),
            max: hold,
            max_hold: Some(hold),
            portable: false,
        },
        push_delay: Some(delay),
        postpone_delay: Some(delay),
        postpone_headers: true,
        groups: false,
        ages: AgeClock::Clients,
        dedup: Dedup::None,
        on_duplicate: false,
        delivery_count: if is_quorum { DeliveryCount::Deliveries } else { DeliveryCount::None },
        moves: MoveGuarantee::AtLeastOnce,
        successors: Some(MoveGuarantee::AtLeastOnce),
        inspect: InspectCapability {
            ready: true,
            delayed: false,
            leased: false,
            dead: true,
            staleness: Duration::from_secs(1),
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
            message_bytes: config.message_bytes,
            push_batch: BATCH,
            push_batch_bytes: BATCH_BYTES.max(config.message_bytes),
            pull_batch: BATCH,
            settle_batch: BATCH,
        },
        slack: SLACK,
        wake_latency: WAKE_LATENCY,
        // If several levels are in use, one message of each can arrive while a pull waits for one.
        overfetch: overfetch * u32::from(PRIORITY_LEVELS) - u32::from(config.prefetch == 0),
        // Settlements go only to the partition's task, and must not wait for a strict pull, which takes the
        // server a moment.
        exchange: config.prefetch > 0,
        coalesce_push: coalesce(PUSH_CALLS),
        coalesce_settle: coalesce(SETTLE_CALLS),
        retention: None,
    }
}
