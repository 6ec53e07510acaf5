//! Not a fault: a server that now and then gives a message to two consumers at once, as it declares.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, Capabilities, Extension, Lease, Order, PullQueueStorage as _, PullRequest, RawDelivery, Rejoin,
    Requeue, Settlement, Strictness, Token, async_trait,
};
use anyqueue::{ExtendOutcome, PartitionId, Result, SettleOutcome};

use crate::quirk::{Client, Extended, Kept, Pulled, Quirk, Settled, for_wait, of};

/// One in this many deliveries comes twice.
const ONE_IN: usize = 3;

/// Every third delivery comes a second time, under its own lease, with a later pull that has room. Each of
/// the two holders can remove the message, and it is free again when both have released it.
#[derive(Debug, Default)]
pub(crate) struct Repeating(Kept<Memory>);

#[derive(Debug, Default)]
struct Memory {
    delivered: usize,
    /// Deliveries that are to come again.
    again: Vec<RawDelivery>,
    /// Maps each of two leases to the other.
    twins: HashMap<Lease, Lease>,
    /// Maps the lease of each second delivery to that of the first, which the correct backend knows.
    firsts: HashMap<Lease, Lease>,
    /// Messages that were removed, by their first leases.
    removed: HashSet<Lease>,
    /// Leases that were settled, or whose delivery never came.
    ended: HashSet<Lease>,
}

impl Memory {
    fn note(&mut self, delivered: &[RawDelivery]) {
        for delivery in delivered {
            self.delivered += 1;
            if self.delivered.is_multiple_of(ONE_IN) {
                self.again.push(delivery.clone());
            }
        }
    }

    /// Returns the second deliveries for a pull of up to `max`.
    fn seconds(&mut self, partition: &PartitionId, max: usize) -> Vec<RawDelivery> {
        let here = |delivery: &mut RawDelivery| delivery.lease.partition == *partition;
        let mut seconds: Vec<_> = self.again.extract_if(.., here).take(max).collect();
        for delivery in &mut seconds {
            let first = delivery.lease.clone();
            delivery.lease.token = Token::random();
            self.twins.insert(first.clone(), delivery.lease.clone());
            self.twins.insert(delivery.lease.clone(), first.clone());
            self.firsts.insert(delivery.lease.clone(), first);
        }
        seconds
    }

    fn first(&self, lease: &Lease) -> Lease {
        self.firsts.get(lease).unwrap_or(lease).clone()
    }

    /// Returns whether this settlement ends one lease while the other goes on; the correct backend then
    /// learns nothing of it.
    fn leave_to_the_other(&mut self, settlement: &Settlement) -> bool {
        let own = &settlement.lease;
        let other_holds = self.twins.get(own).is_some_and(|other| !self.ended.contains(other));
        let leaves = settlement.action == Action::Release && other_holds && !self.ended.contains(own);
        leaves && self.ended.insert(own.clone())
    }

    /// A holder that removes what the other one has already removed gets `Settled` too.
    fn judge(&mut self, own: &Settlement, right: SettleOutcome) -> SettleOutcome {
        let first = self.first(&own.lease);
        let is_removed = own.action == Action::Remove && self.removed.contains(&first);
        let settled = right == SettleOutcome::Settled || (is_removed && !self.ended.contains(&own.lease));
        if !settled {
            return SettleOutcome::Lost;
        }
        self.ended.insert(own.lease.clone());
        if own.action == Action::Remove {
            self.removed.insert(first);
        }
        SettleOutcome::Settled
    }
}

#[async_trait]
impl Quirk for Repeating {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let seconds = self.0.lock().seconds(partition, request.max);
        let mut held = Vec::with_capacity(seconds.len());
        for mut delivery in seconds {
            // Both hold the message for as long as the later one may.
            delivery.lease_until = Some(Instant::now() + request.lease);
            let lease = self.0.lock().first(&delivery.lease);
            let extended = client.right.extend(&[Extension { lease, duration: request.lease }]).await;
            if let [Ok(ExtendOutcome::Extended)] = extended[..] {
                held.push(delivery);
            } else {
                self.0.lock().ended.insert(delivery.lease);
            }
        }
        if held.len() == request.max {
            return Ok(held);
        }
        let mut rest = if held.is_empty() { request } else { for_wait(&request, Duration::ZERO) };
        rest.max -= held.len();
        let first = client.right.pull(partition, rest).await?;
        self.0.lock().note(&first);
        held.extend(first);
        Ok(held)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let left: Vec<bool> = {
            let mut memory = self.0.lock();
            // A delivery that ends does not come again.
            memory.again.retain(|delivery| settlements.iter().all(|ended| ended.lease != delivery.lease));
            settlements.iter().map(|settlement| memory.leave_to_the_other(settlement)).collect()
        };
        let mut answers = Vec::with_capacity(settlements.len());
        for (own, left) in settlements.iter().zip(left) {
            answers.push(if left { Ok(SettleOutcome::Settled) } else { self.settle_one(client, own).await });
        }
        answers
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let firsts: Vec<_> = {
            let memory = self.0.lock();
            let first = |extension: &Extension| Extension {
                lease: memory.first(&extension.lease),
                duration: extension.duration,
            };
            extensions.iter().map(first).collect()
        };
        client.right.extend(&firsts).await
    }

    fn declare(&self, capabilities: &mut Capabilities) {
        capabilities.exclusive = Strictness::BestEffort;
        // Neither holder is kept from removing the message.
        capabilities.fencing = Strictness::BestEffort;
        // The other holder keeps what one releases, and other messages go ahead of it.
        capabilities.order = Order::None;
        capabilities.requeue = Requeue::Unordered;
        capabilities.postponed = Rejoin::Unordered;
    }
}

impl Repeating {
    async fn settle_one(&self, client: &Client, own: &Settlement) -> Result<SettleOutcome> {
        let right = of(own, self.0.lock().first(&own.lease));
        let outcome = client.settle_by(&right, own.action.clone()).await?;
        Ok(self.0.lock().judge(own, outcome))
    }
}
