//! Refusing deliveries that must not reach a handler.

use std::sync::Arc;
use std::time::Duration;

use super::action::{Made, dead_letter};
use super::deliveries::Judged;
use super::ending::{Ending, TaskReport, attempt};
use super::options::Expired;
use super::shared::Shared;
use crate::error::{Error, ErrorKind};
use crate::ledger::{EndState, TaskEnd};
use crate::message::{When, header};
use crate::partition::PartitionId;
use crate::storage::{Action, RawDelivery};

/// How long a message that only a newer release can read stays invisible after this release has met it.
const NEWER_PAUSE: Duration = Duration::from_secs(5);

/// The reason recorded for expired messages.
const EXPIRED: &str = "expired before it was handled";

/// What happens to a delivery.
pub(crate) enum Fate {
    Handed,
    Settled(Action),
    LeftToItsLease,
}

impl Shared {
    /// What the ledger keeps of a task that core ends because it has expired.
    pub(crate) fn end_unhandled(
        &self,
        partition: &PartitionId,
        delivery: &RawDelivery,
        action: &Action,
    ) -> Option<Arc<TaskEnd>> {
        let is_dead = matches!(action, Action::Move { to, .. } if to.is_dead_letters());
        if self.options.ledger.is_none() || (*action != Action::Remove && !is_dead) {
            return None;
        }
        let ending = Ending {
            partition,
            message: &delivery.message,
            delivery_count: delivery.delivery_count,
            waited: delivery.age,
            ran: Duration::ZERO,
            was_handled: false,
            successors: 0,
        };
        if is_dead {
            return self.died(&ending, action, None);
        }
        self.ended(&ending, EndState::TimedOut, Some(&TaskReport::new().with_reason(EXPIRED)))
    }

    pub(crate) fn refuse(&self, partition: &PartitionId, delivery: &RawDelivery) -> Fate {
        if partition.is_dead_letters() {
            return Fate::Handed;
        }
        if let Some(why) = &delivery.unreadable {
            return self.refuse_unreadable(partition, delivery, why);
        }
        let options = self.options.of(partition.name());
        let message = &delivery.message;
        if let Some(When::In(time_to_live)) = message.options().expiry
            && delivery.age >= time_to_live
            && !message.headers().contains_key(header::REDRIVEN_AT)
        {
            return Fate::Settled(match options.expired {
                Expired::Remove => Action::Remove,
                Expired::DeadLetter => self.dead(partition, delivery, EXPIRED),
            });
        }
        let (Some(count), Some(most)) = (delivery.delivery_count, options.max_deliveries) else {
            return Fate::Handed;
        };
        match self.deliveries.judge(message, count, most) {
            Judged::HandedOut => Fate::Handed,
            Judged::SecondChance(headers) if self.fits(message, &headers) => {
                Fate::Settled(Action::Postpone { delay: Duration::ZERO, headers: Some(headers) })
            }
            Judged::SecondChance(_) | Judged::Dead => {
                let reason = format!("delivered {most} times without an end");
                Fate::Settled(self.dead(partition, delivery, &reason))
            }
        }
    }

    /// A message that no release can read goes to the dead letters. One that a newer release wrote is left to
    /// newer consumers, and postponed so that this release does not take it again at once.
    fn refuse_unreadable(&self, partition: &PartitionId, delivery: &RawDelivery, why: &Error) -> Fate {
        let id = delivery.lease.id;
        if why.kind() == ErrorKind::Incompatible {
            tracing::warn!(%why, %id, %partition, "a message of a newer release is left to newer consumers");
            return self.capabilities.postpone_delay.map_or(Fate::LeftToItsLease, |declared| {
                Fate::Settled(Action::Postpone { delay: NEWER_PAUSE.min(declared.max), headers: None })
            });
        }
        tracing::error!(%why, %id, %partition, "a message that cannot be read goes to the dead letters");
        Fate::Settled(self.dead(partition, delivery, &format!("cannot be read: {}", why.message())))
    }

    fn dead(&self, partition: &PartitionId, delivery: &RawDelivery, reason: &str) -> Action {
        let now = self.caller.clock.wall();
        let made = Made {
            deliveries: delivery.delivery_count,
            attempts: attempt(&delivery.message, false, None),
            worker: None,
            ran: None,
        };
        dead_letter(partition, &delivery.message, made, reason, now)
    }
}
