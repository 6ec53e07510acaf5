//! What this backend declares about itself.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Coalesce, DEATH_BYTES, Dedup, DelayCapability, DeliveryCount, Durability,
    DurabilityLevel, InspectCapability, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach, Rejoin,
    Requeue, SettleConfirm, Strictness,
};

use crate::config::Config;
use crate::limits::{LEASE, MAX_DELAY, RETENTION};
use crate::record;

/// The longest delay on a FIFO queue, where a message can only be made invisible. It leaves an hour for
/// processing the message.
const MAX_FIFO_POSTPONE: Duration = Duration::from_hours(11);
/// The most messages or settlements in one call: ten full requests at once.
const BATCH: usize = 100;
/// The most bytes in one call: as much as a few full requests.
const BATCH_BYTES: u64 = 8 * 1024 * 1024;
/// How many messages of a group one request brings besides the first, at most.
const GROUP_OVERFETCH: u32 = 9;
/// The most concurrent single pushes or settlements, which this crate joins by queue.
const SINGLES: usize = 4096;
/// How late anything timed may be because of whole seconds and the server's own delays.
const SLACK: Duration = Duration::from_millis(1500);
/// The time from a push to the answer of a long poll.
const WAKE_LATENCY: Duration = Duration::from_secs(1);
/// How old the server's counts may be.
const STALENESS: Duration = Duration::from_mins(1);

/// How long a FIFO queue remembers deduplication ids, which is a rule of the service.
const DEDUP_WINDOW: Duration = Duration::from_mins(5);

/// How many messages a pull may hold for a moment beyond its limit: one of each level below those that it
/// returns; with one level, what a long poll brings too late; and on a FIFO queue, the followers in a group.
fn overfetch(config: &Config) -> u32 {
    if config.fifo { GROUP_OVERFETCH } else { u32::from(config.levels.saturating_sub(1)).max(1) }
}

/// Returns the capabilities with this configuration.
pub(crate) fn capabilities(config: &Config) -> Capabilities {
    let fifo = config.fifo;
    let delay = |max| Some(DelayCapability { max, granularity: Duration::from_secs(1) });
    let level = DurabilityLevel::MachineLoss;
    let is_one = config.levels == 1;
    let coalesce = |across_partitions| {
        let (in_flight, linger) = if config.joins() { (SINGLES, Duration::ZERO) } else { (1, config.linger) };
        Coalesce { in_flight, linger, across_partitions }
    };
    // How much a message may grow when it becomes a dead letter.
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
        lease: LEASE,
        push_delay: if fifo { None } else { delay(MAX_DELAY) },
        postpone_delay: delay(if fifo { MAX_FIFO_POSTPONE } else { MAX_DELAY }),
        postpone_headers: !fifo,
        groups: fifo,
        ages: AgeClock::Server,
        dedup: if fifo { Dedup::Window(DEDUP_WINDOW) } else { Dedup::None },
        on_duplicate: false,
        delivery_count: DeliveryCount::Deliveries,
        moves: MoveGuarantee::AtLeastOnce,
        successors: Some(MoveGuarantee::AtLeastOnce),
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
        amend: false,
        urgent_after: false,
        whole_groups: false,
        ledger: None,
        series: false,
        control: false,
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
