//! What this backend declares about itself.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Coalesce, Dedup, DelayCapability, DeliveryCount, Durability, DurabilityLevel,
    InspectCapability, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach, Rejoin, Requeue,
    SettleConfirm, Strictness,
};

use crate::config::{Config, Topology};
use crate::limits::{BATCH, JITTER, LEASE, MAX_DELAY, PRIORITY_LEVELS};

const BATCH_BYTES: u64 = 64 * 1024 * 1024;
/// How late anything timed may be because of timers, the network and the server's queue.
const SLACK: Duration = Duration::from_millis(100);
/// Returns the capabilities on a server with this durability.
pub(crate) fn capabilities(config: &Config, level: DurabilityLevel) -> Capabilities {
    let delay = DelayCapability { max: MAX_DELAY, granularity: Duration::from_millis(1) };
    // One call at a time, while the next one gathers. Two would carry half as much each, and a stream can
    // fetch its next deliveries only with one at a time.
    let coalesce = Coalesce { in_flight: 1, linger: Duration::ZERO, across_partitions: !config.is_cluster() };
    // A new master may lack the last claims of the previous one.
    let has_one_master = config.topology == Topology::Server;
    // In a cluster, another partition may be on another server.
    let beyond = if config.is_cluster() { MoveGuarantee::AtLeastOnce } else { MoveGuarantee::Atomic };
    Capabilities {
        reach: Reach::Network,
        durability: Durability { push: level, claim: level, settle: level },
        unique_ids: true,
        settle_confirm: SettleConfirm::Confirmed,
        priority_levels: PRIORITY_LEVELS,
        priority: PriorityDiscipline::Strict,
        order: Order::PushOrder,
        requeue: Requeue::Front,
        postponed: Rejoin::End,
        exclusive: if has_one_master { Strictness::Strict } else { Strictness::BestEffort },
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
        moves: beyond,
        successors: Some(beyond),
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
        // A hint can get lost with its connection, so the declared latency is the poll interval with its jitter.
        wake_latency: config.poll_interval.mul_f64(1.0 + JITTER) + SLACK,
        overfetch: 0,
        exchange: true,
        coalesce_push: coalesce,
        coalesce_settle: Coalesce { in_flight: 2, ..coalesce },
        retention: None,
    }
}
