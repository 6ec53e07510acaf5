//! Faults of settling by deleting a message and inserting it again, with something forgotten.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, InspectQueueStorage as _, Lease, PullQueueStorage as _, PullRequest, PushQueueStorage as _,
    QueueStorage as _, RawDelivery, Settlement, async_trait,
};
use anyqueue::{
    Browsed, MessageData, MessageId, Page, PartitionId, Result, SettleOutcome, TaskOptions, When,
};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Originals, Pulled, Quirk, Settled, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::MoveForgetsPriority, &[Clause::Order, Clause::SettleActions], || {
        reborn(move_forgets_priority)
    }),
    subtle(Fault::MoveForgetsGroup, &[Clause::SettleActions, Clause::Groups], || reborn(move_forgets_group)),
    subtle(Fault::MoveTakesKey, &[Clause::SettleActions, Clause::Deduplication], || reborn(move_takes_key)),
    subtle(Fault::MoveRepeatsDelay, &[Clause::SettleActions], || reborn(move_repeats_delay)),
    subtle(Fault::FailedHeadToEnd, &[Clause::Groups], || reborn(failed_head_to_end)),
    subtle(Fault::PostponedHeadFreesGroup, &[Clause::Groups], || reborn(postponed_head_frees_group)),
    subtle(Fault::SecondReturnToBack, &[Clause::SettleActions], || reborn(second_return_to_back)),
];

/// The message that is inserted, and the delivery count that it gets.
struct Rebirth {
    to: PartitionId,
    options: TaskOptions,
    count: u32,
}

/// What is known of a delivery that is being settled.
struct Held {
    delivery: RawDelivery,
    /// How often the message came back before.
    returns: u32,
}

type Plan = fn(&Held, &Action) -> Option<Rebirth>;

/// Moves correctly: without delay and key.
fn moved(held: &Held, action: &Action) -> Option<Rebirth> {
    let Action::Move { to, .. } = action else { return None };
    let mut options = held.delivery.message.options().clone();
    (options.delay, options.dedup_key) = (None, None);
    Some(Rebirth { to: to.clone(), options, count: 0 })
}

fn move_forgets_priority(held: &Held, action: &Action) -> Option<Rebirth> {
    let mut rebirth = moved(held, action).filter(|rebirth| rebirth.options.priority > 0)?;
    rebirth.options.priority = 0;
    Some(rebirth)
}

fn move_forgets_group(held: &Held, action: &Action) -> Option<Rebirth> {
    let mut rebirth = moved(held, action).filter(|rebirth| !rebirth.to.is_dead_letters())?;
    rebirth.options.group.take().map(|_| rebirth)
}

fn move_takes_key(held: &Held, action: &Action) -> Option<Rebirth> {
    let mut rebirth = moved(held, action).filter(|rebirth| !rebirth.to.is_dead_letters())?;
    rebirth.options.dedup_key = Some(held.delivery.message.options().dedup_key.clone()?);
    Some(rebirth)
}

fn move_repeats_delay(held: &Held, action: &Action) -> Option<Rebirth> {
    let mut rebirth = moved(held, action)?;
    rebirth.options.delay = Some(held.delivery.message.options().delay?);
    Some(rebirth)
}

/// Puts the message back correctly, except for its place.
fn put_back(held: &Held, action: &Action) -> Option<Rebirth> {
    let delivered = held.delivery.delivery_count.unwrap_or_default();
    let count = match action {
        Action::Retry => delivered,
        Action::Release | Action::Postpone { .. } => delivered.saturating_sub(1),
        Action::Remove | Action::Move { .. } => return None,
    };
    let mut options = held.delivery.message.options().clone();
    options.delay = match action {
        Action::Postpone { delay, .. } => Some(When::In(*delay)),
        _ => None,
    };
    Some(Rebirth { to: held.delivery.lease.partition.clone(), options, count })
}

fn failed_head_to_end(held: &Held, action: &Action) -> Option<Rebirth> {
    put_back(held, action).filter(|rebirth| *action == Action::Retry && rebirth.options.group.is_some())
}

fn postponed_head_frees_group(held: &Held, action: &Action) -> Option<Rebirth> {
    let postponed = matches!(action, Action::Postpone { .. });
    put_back(held, action).filter(|rebirth| postponed && rebirth.options.group.is_some())
}

fn second_return_to_back(held: &Held, action: &Action) -> Option<Rebirth> {
    let returned = matches!(action, Action::Release | Action::Retry);
    put_back(held, action).filter(|rebirth| returned && rebirth.options.group.is_none() && held.returns == 1)
}

#[derive(Debug)]
struct Reborn {
    plan: Plan,
    originals: Originals,
    /// When each message that was inserted again had been pushed, and how often it had been delivered.
    births: Kept<HashMap<MessageId, (Instant, u32)>>,
    returns: Kept<HashMap<MessageId, u32>>,
    held: Kept<HashMap<Lease, RawDelivery>>,
}

fn reborn(plan: Plan) -> Arc<dyn Quirk> {
    Arc::new(Reborn {
        plan,
        originals: Originals::default(),
        births: Kept::default(),
        returns: Kept::default(),
        held: Kept::default(),
    })
}

impl Reborn {
    fn restore(&self, message: &mut MessageData, count: &mut Option<u32>, age: &mut Duration) {
        self.originals.restore(message);
        if let Some((pushed, before)) = self.births.lock().get(&message.id()) {
            *age = pushed.elapsed();
            *count = count.map(|count| count + before);
        }
    }

    async fn settle_next(&self, client: &Client, settlement: &Settlement) -> Result<SettleOutcome> {
        let Settlement { lease, action, .. } = settlement;
        let held = self.held.lock().get(lease).cloned();
        let returns = self.returns.lock().get(&lease.id).copied().unwrap_or_default();
        let held = held.map(|delivery| Held { delivery, returns });
        let planned = held.as_ref().and_then(|held| (self.plan)(held, action));
        let done = match (held, planned) {
            (Some(held), Some(rebirth)) => self.bear(client, held.delivery, action, rebirth).await?,
            _ => client.settle_by(settlement, action.clone()).await?,
        };
        if done == SettleOutcome::Settled {
            self.note(lease, action);
        }
        Ok(done)
    }

    fn note(&self, lease: &Lease, action: &Action) {
        self.held.lock().remove(lease);
        match action {
            Action::Release | Action::Retry => *self.returns.lock().entry(lease.id).or_default() += 1,
            Action::Move { .. } => {
                self.births.lock().entry(lease.id).and_modify(|(_, count)| *count = 0);
            }
            Action::Remove => {
                self.births.lock().remove(&lease.id);
                self.returns.lock().remove(&lease.id);
            }
            Action::Postpone { .. } => {}
        }
    }

    async fn bear(
        &self,
        client: &Client,
        delivery: RawDelivery,
        action: &Action,
        rebirth: Rebirth,
    ) -> Result<SettleOutcome> {
        let pushed = Instant::now().checked_sub(delivery.age).unwrap_or_else(Instant::now);
        let mut message = delivery.message.with_options(rebirth.options);
        if let Action::Move { headers: Some(headers), .. } | Action::Postpone { headers: Some(headers), .. } =
            action
        {
            message = message.with_headers(headers.clone());
        }
        if client.right.encoded_len(&message) > client.right.capabilities().limits.message_bytes {
            return client.settle_one(delivery.lease, action.clone()).await;
        }
        let done = client.settle_one(delivery.lease, Action::Remove).await?;
        if done == SettleOutcome::Settled {
            self.births.lock().insert(message.id(), (pushed, rebirth.count));
            let _stored = client.push_one(&rebirth.to, message).await;
        }
        Ok(done)
    }
}

#[async_trait]
impl Quirk for Reborn {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            self.restore(&mut delivery.message, &mut delivery.delivery_count, &mut delivery.age);
            self.originals.keep(&delivery.message);
            self.held.lock().insert(delivery.lease.clone(), delivery.clone());
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            answers.push(self.settle_next(client, settlement).await);
        }
        answers
    }

    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let mut page = client.right.browse(partition, Page::of(limit).after(after)).await?;
        for browsed in &mut page {
            self.restore(&mut browsed.message, &mut browsed.delivery_count, &mut browsed.age);
        }
        Ok(page)
    }
}
