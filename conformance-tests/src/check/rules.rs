//! The rules that a history must obey: the part of the capabilities that decides what is correct.

use std::time::Duration;

use anyqueue::adapter::{
    Capabilities, DurabilityLevel, LeaseKind, MoveGuarantee, Order, PriorityDiscipline, Requeue,
    SettleConfirm, Strictness,
};
use serde::{Deserialize, Serialize};

use crate::context::{CLOCK_GRAIN, scheduling};
use crate::history::units::ms;

/// The default is the strictest set of rules, on a controlled clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent promise of the backend")]
pub(crate) struct Rules {
    pub(crate) exclusive: bool,
    pub(crate) fencing: bool,
    pub(crate) confirmed: bool,
    /// What the server confirmed and still knows after it was killed: pushes, claims, settlements.
    pub(crate) pushes_last: bool,
    pub(crate) claims_last: bool,
    pub(crate) settlements_last: bool,
    pub(crate) timed_leases: bool,
    /// Whether a pull may briefly hold messages that it does not return.
    pub(crate) overfetch: bool,
    pub(crate) priority: bool,
    pub(crate) push_order: bool,
    pub(crate) requeue_front: bool,
    pub(crate) rejoin: Rejoin,
    pub(crate) groups: bool,
    pub(crate) unique_ids: bool,
    /// Whether a move, or a postponement by a copy, leaves one message whatever happens meanwhile.
    pub(crate) moves_once: bool,
    pub(crate) successors_once: bool,
    pub(crate) dedup: Dedup,
    pub(crate) counting: Counting,
    /// Whether counts and pages show the exact moment.
    pub(crate) inspect_now: bool,
    /// How late a timed promise may be kept, including the share of a busy machine.
    #[serde(rename = "slack_ms", with = "ms")]
    pub(crate) slack: Duration,
    /// How long a waiting pull may miss a push.
    #[serde(rename = "wake_ms", with = "ms")]
    pub(crate) wake: Duration,
    /// How much earlier than promised a timed event may be seen.
    #[serde(rename = "grain_ms", with = "ms")]
    pub(crate) grain: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dedup {
    None,
    WhileLive,
    /// For a time; the answers during that time are judged by cases of their own.
    Window,
}

/// Where a postponed or matured message stands.
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
    /// Returns the rules for what this backend declares, on the machine's own clock.
    pub(crate) fn of(capabilities: &Capabilities) -> Self {
        let declared = Self::on_controlled_time(capabilities);
        Self { slack: declared.slack + scheduling(), wake: declared.wake + scheduling(), ..declared }
    }

    /// Returns the same for a clock that only the suite moves.
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
