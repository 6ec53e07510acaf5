//! What this backend gives.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Coalesce, DEATH_BYTES, Dedup, DelayCapability, DeliveryCount, Durability,
    DurabilityLevel, InspectCapability, LeaseCapability, LeaseKind, Limits, MoveGuarantee, Order,
    PriorityDiscipline, Reach, Rejoin, Requeue, SettleConfirm, Strictness,
};

use crate::config::Config;
use crate::limits::{MAX_DELAY, MAX_LEASE, MIN_LEASE, RETENTION};
use crate::record;

/// The longest delay on a FIFO queue, where a message can only be hidden; it leaves an hour for working on it.
const MAX_FIFO_POSTPONE: Duration = Duration::from_hours(11);
/// Messages or settlements in one call: ten full requests side by side.
const BATCH: usize = 100;
/// Bytes in one call, as much as a few full requests.
const BATCH_BYTES: u64 = 8 * 1024 * 1024;
/// One request brings at most so many of a group besides its first.
const GROUP_OVERFETCH: u32 = 9;
/// Single pushes or settlements at once that are joined here, by queue.
const SINGLES: usize = 4096;
/// How late timed things may be: whole seconds, and the server's own lateness.
const SLACK: Duration = Duration::from_millis(1500);
/// From a push to the answer of a long poll.
const WAKE_LATENCY: Duration = Duration::from_secs(1);
/// How old the server's counts may be.
const STALENESS: Duration = Duration::from_mins(1);

/// What a pull may hold for a moment beyond what it was asked for: of each level below that it answers, one message; of one level, what
/// a poll brings when nobody waits any more; of a FIFO queue, those that come along with the first of their group.
fn overfetch(config: &Config) -> u32 {
    if config.fifo { GROUP_OVERFETCH } else { u32::from(config.levels.saturating_sub(1)).max(1) }
}

/// The capabilities with this configuration.
pub(crate) fn capabilities(config: &Config) -> Capabilities {
    let fifo = config.fifo;
    let delay = |max| Some(DelayCapability { max, granularity: Duration::from_secs(1) });
    let level = DurabilityLevel::MachineLoss;
    let is_one = config.levels == 1;
    let coalesce = |across_partitions| {
        let (in_flight, linger) = if config.joins() { (SINGLES, Duration::ZERO) } else { (1, config.linger) };
        Coalesce { in_flight, linger, across_partitions }
    };
    // What a message may still grow by when it dies.
    let growth = record::encoded_len(DEATH_BYTES) + record::REST_BYTES;
    let message_bytes = config.message_bytes.saturating_sub(growth);
    Capabilities {
        reach: Reach::Network,
        durability: Durability { push: level, claim: level, settle: level },
        unique_ids: false,
        settle_confirm: SettleConfirm::Confirmed,
        priority_levels: config.levels,
        priority: if is_one { PriorityDiscipline::None } else { PriorityDiscipline::Strict },
        order: if fifo { Order::PerGroup } else { Order::None },
        requeue: Requeue::Unordered,
        postponed: Rejoin::Unordered,
        exclusive: if fifo { Strictness::Strict } else { Strictness::BestEffort },
        fencing: Strictness::BestEffort,
        lease: LeaseCapability {
            kind: LeaseKind::Timed,
            min: MIN_LEASE,
            max: MAX_LEASE,
            max_hold: Some(MAX_LEASE),
        },
        push_delay: if fifo { None } else { delay(MAX_DELAY) },
        postpone_delay: delay(if fifo { MAX_FIFO_POSTPONE } else { MAX_DELAY }),
        postpone_headers: !fifo,
        groups: fifo,
        ages: AgeClock::Server,
        dedup: Dedup::None,
        delivery_count: DeliveryCount::Deliveries,
        moves: MoveGuarantee::AtLeastOnce,
        inspect: InspectCapability {
            ready: true,
            delayed: false,
            leased: false,
            dead: true,
            staleness: STALENESS,
            list: false,
            browse: false,
            delete: false,
            purge: false,
            cancel: false,
        },
        pause: false,
        limits: Limits {
            message_bytes,
            push_batch: BATCH,
            push_batch_bytes: BATCH_BYTES.max(message_bytes),
            pull_batch: BATCH,
            settle_batch: BATCH,
        },
        slack: SLACK,
        wake_latency: WAKE_LATENCY,
        overfetch: overfetch(config),
        exchange: false,
        coalesce_push: coalesce(false),
        coalesce_settle: coalesce(true),
        retention: Some(RETENTION),
    }
}
