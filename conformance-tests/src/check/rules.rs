//! What a history is held to: the part of the capabilities that decides what is right.

use std::time::Duration;

use anyqueue::adapter::{
    Capabilities, DurabilityLevel, LeaseKind, MoveGuarantee, Order, PriorityDiscipline, Requeue,
    SettleConfirm, Strictness,
};
use serde::{Deserialize, Serialize};

use crate::context::{CLOCK_GRAIN, scheduling};
use crate::history::units::ms;

/// The default is the strictest, on a controlled clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent promise of the backend")]
pub(crate) struct Rules {
    pub(crate) exclusive: bool,
    pub(crate) fencing: bool,
    pub(crate) confirmed: bool,
    /// What the server confirmed it still knows after its death: pushes, claims, settlements.
    pub(crate) pushes_last: bool,
    pub(crate) claims_last: bool,
    pub(crate) settlements_last: bool,
    pub(crate) timed_leases: bool,
    /// A pull may hold for a moment what it does not return.
    pub(crate) overfetch: bool,
    pub(crate) priority: bool,
    pub(crate) push_order: bool,
    pub(crate) requeue_front: bool,
    pub(crate) rejoin: Rejoin,
    pub(crate) groups: bool,
    pub(crate) unique_ids: bool,
    /// A move, or a postponement by a copy, leaves one message whatever happens meanwhile.
    pub(crate) moves_once: bool,
    pub(crate) successors_once: bool,
    pub(crate) dedup: Dedup,
    pub(crate) counting: Counting,
    /// Counts and pages show the very moment.
    pub(crate) inspect_now: bool,
    /// How late a timed promise may be kept, a busy machine's share included.
    #[serde(rename = "slack_ms", with = "ms")]
    pub(crate) slack: Duration,
    /// How long a waiting pull may overlook a push.
    #[serde(rename = "wake_ms", with = "ms")]
    pub(crate) wake: Duration,
    /// How much earlier than promised a timed thing may be seen.
    #[serde(rename = "grain_ms", with = "ms")]
    pub(crate) grain: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dedup {
    None,
    WhileLive,
    /// For a time: what it answers then is judged by cases of its own.
    Window,
}

/// Where what was postponed or has matured stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rejoin {
    End,
    Front,
    Unordered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Counting {
    None,
    Deliveries,
    ExceptReleases,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            exclusive: true,
            fencing: true,
            confirmed: true,
            pushes_last: true,
            claims_last: true,
            settlements_last: true,
            timed_leases: true,
            overfetch: false,
            priority: true,
            push_order: true,
            requeue_front: true,
            rejoin: Rejoin::End,
            groups: true,
            unique_ids: true,
            moves_once: true,
            successors_once: true,
            dedup: Dedup::WhileLive,
            counting: Counting::ExceptReleases,
            inspect_now: true,
            slack: Duration::from_millis(5),
            wake: Duration::from_millis(5),
            grain: CLOCK_GRAIN,
        }
    }
}

impl Rules {
    /// What this backend declares, on the machine's own clock.
    pub(crate) fn of(capabilities: &Capabilities) -> Self {
        let declared = Self::on_controlled_time(capabilities);
        Self { slack: declared.slack + scheduling(), wake: declared.wake + scheduling(), ..declared }
    }

    /// The same where no time passes but what the suite lets pass.
    pub(crate) fn on_controlled_time(capabilities: &Capabilities) -> Self {
        Self {
            exclusive: capabilities.exclusive == Strictness::Strict,
            fencing: capabilities.fencing == Strictness::Strict,
            confirmed: capabilities.settle_confirm == SettleConfirm::Confirmed,
            pushes_last: capabilities.durability.push >= DurabilityLevel::ProcessCrash,
            claims_last: capabilities.durability.claim >= DurabilityLevel::ProcessCrash,
            settlements_last: capabilities.durability.settle >= DurabilityLevel::ProcessCrash,
            timed_leases: capabilities.lease.kind == LeaseKind::Timed,
            overfetch: capabilities.overfetch > 0,
            priority: capabilities.priority == PriorityDiscipline::Strict,
            push_order: capabilities.order == Order::PushOrder,
            requeue_front: capabilities.requeue == Requeue::Front,
            rejoin: match capabilities.postponed {
                anyqueue::adapter::Rejoin::End => Rejoin::End,
                anyqueue::adapter::Rejoin::Front => Rejoin::Front,
                anyqueue::adapter::Rejoin::Unordered => Rejoin::Unordered,
            },
            groups: capabilities.groups,
            unique_ids: capabilities.unique_ids,
            moves_once: capabilities.moves == MoveGuarantee::Atomic,
            successors_once: capabilities.successors == Some(MoveGuarantee::Atomic),
            dedup: match capabilities.dedup {
                anyqueue::adapter::Dedup::None => Dedup::None,
                anyqueue::adapter::Dedup::WhileLive => Dedup::WhileLive,
                anyqueue::adapter::Dedup::Window(_) => Dedup::Window,
            },
            counting: match capabilities.delivery_count {
                anyqueue::adapter::DeliveryCount::None => Counting::None,
                anyqueue::adapter::DeliveryCount::Deliveries => Counting::Deliveries,
                anyqueue::adapter::DeliveryCount::ExceptReleases => Counting::ExceptReleases,
            },
            inspect_now: capabilities.inspect.staleness.is_zero(),
            slack: capabilities.slack,
            wake: capabilities.wake_latency,
            grain: CLOCK_GRAIN,
        }
    }
}
