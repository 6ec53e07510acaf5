//! What this backend declares about itself.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Coalesce, Dedup, DelayCapability, DeliveryCount, Durability, DurabilityLevel,
    InspectCapability, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach, Rejoin, Requeue,
    SettleConfirm, Strictness,
};

use crate::config::Config;
use crate::limits::{BATCH_BYTES, JITTER, LEASE, MAX_DELAY, PRIORITY_LEVELS};

/// The most messages, deliveries or settlements in one call. A position has room for 1024 messages of one
/// call.
const BATCH: usize = 1000;
/// How late timers and wake-ups may be if the network or the machine is busy.
const SLACK: Duration = Duration::from_millis(50);
/// How late anything timed may be with notifications. They announce what is due before the next poll.
const SLACK_NOTIFIED: Duration = Duration::from_millis(150);

/// Returns the capabilities. `flushed` says whether the server waits for its disk at each commit.
pub(crate) fn capabilities(config: &Config, flushed: bool) -> Capabilities {
    let level = if flushed { DurabilityLevel::PowerLoss } else { DurabilityLevel::None };
    let delay = DelayCapability { max: MAX_DELAY, granularity: Duration::from_millis(1) };
    // One call at a time, while the next one gathers. Two would carry half as much each at the same cost, and
    // a stream can fetch its next deliveries only with one at a time.
    let coalesce = Coalesce { in_flight: 1, linger: Duration::ZERO, across_partitions: true };
    // A notification can get lost, so the declared latency is the poll interval with its jitter. A poll also
    // learns of what is due later, in time.
    let polled = config.poll_interval.mul_f64(1.0 + JITTER) + SLACK;
    let slack = if config.notify { polled.min(SLACK_NOTIFIED) } else { polled };
    Capabilities {
        reach: Reach::Network,
        // If a crash of the server loses a claim, the message is redelivered early, and the token fences the
        // first holder.
        durability: Durability { push: level, claim: DurabilityLevel::None, settle: level },
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
            push_batch_bytes: (BATCH_BYTES as u64).max(config.message_bytes),
            pull_batch: BATCH,
            settle_batch: BATCH,
        },
        slack,
        wake_latency: polled,
        overfetch: 0,
        exchange: true,
        coalesce_push: coalesce,
        coalesce_settle: coalesce,
        retention: None,
    }
}
