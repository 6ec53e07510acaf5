//! What this backend gives.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Coalesce, Dedup, DelayCapability, DeliveryCount, Durability, DurabilityLevel,
    InspectCapability, LeaseCapability, LeaseKind, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach,
    Rejoin, Requeue, SettleConfirm, Strictness,
};

use crate::config::{Config, QueueType};
use crate::delay_queues;
use crate::limits::PRIORITY_LEVELS;

/// Messages, deliveries or settlements in one call.
const BATCH: usize = 1000;
const BATCH_BYTES: u64 = 64 * 1024 * 1024;
/// Pushing calls at once. The server writes to disk for all that has come meanwhile, so one call that carries what many tasks push
/// is answered as fast as each of several that would carry parts of it, and costs the server less.
const PUSH_CALLS: usize = 1;
/// Settling calls at once: one can wait for copies to be confirmed.
const SETTLE_CALLS: usize = 2;
/// How late timed things may be: timers, network, and the server's queues.
const SLACK: Duration = Duration::from_millis(300);
/// From a confirmed push to its delivery to a consumer that waits.
const WAKE_LATENCY: Duration = Duration::from_millis(100);
/// A delivery that is held for as long as the server allows ends a little before: the server looks once a minute.
const HOLD_MARGIN: Duration = Duration::from_secs(30);

pub(crate) fn capabilities(config: &Config) -> Capabilities {
    let is_quorum = config.queue_type == QueueType::Quorum;
    let delay = DelayCapability { max: delay_queues::MAX_DELAY, granularity: delay_queues::STEP };
    let coalesce = |in_flight| Coalesce { in_flight, linger: Duration::ZERO, across_partitions: true };
    let hold = config.consumer_timeout.saturating_sub(HOLD_MARGIN).max(config.consumer_timeout / 2);
    // A quorum queue writes to disk before it confirms. A classic one may confirm a little earlier: it flushes in batches.
    let push = if is_quorum { DurabilityLevel::PowerLoss } else { DurabilityLevel::ProcessCrash };
    let overfetch = if config.prefetch > 0 { config.prefetch } else { 1 };
    Capabilities {
        reach: Reach::Network,
        // A claim lives as long as its channel.
        durability: Durability { push, claim: DurabilityLevel::None, settle: push },
        unique_ids: false,
        // With the next pull, or a moment after the last one: see the crate's documentation.
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
        },
        push_delay: Some(delay),
        postpone_delay: Some(delay),
        postpone_headers: true,
        groups: false,
        ages: AgeClock::Clients,
        dedup: Dedup::None,
        delivery_count: if is_quorum { DeliveryCount::Deliveries } else { DeliveryCount::None },
        moves: MoveGuarantee::AtLeastOnce,
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
        limits: Limits {
            message_bytes: config.message_bytes,
            push_batch: BATCH,
            push_batch_bytes: BATCH_BYTES.max(config.message_bytes),
            pull_batch: BATCH,
            settle_batch: BATCH,
        },
        slack: SLACK,
        wake_latency: WAKE_LATENCY,
        // Where several levels are in use, one message of each can come while a pull waits for one.
        overfetch: overfetch * u32::from(PRIORITY_LEVELS) - u32::from(config.prefetch == 0),
        // Settlements are told to nobody but the partition's task, and a strict pull takes the server a moment: they must not wait.
        exchange: config.prefetch > 0,
        coalesce_push: coalesce(PUSH_CALLS),
        coalesce_settle: coalesce(SETTLE_CALLS),
        retention: None,
    }
}
