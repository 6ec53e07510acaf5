//! Faults in what a delivery shows, most of them from the second delivery on.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyqueue::adapter::{
    Action, Lease, PullQueueStorage as _, PullRequest, RawDelivery, Settlement, async_trait,
};
use anyqueue::{Headers, MessageId, PartitionId, SettleOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Pulled, Quirk, Settled, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::RedeliveryLosesHeaders, &[Clause::ContentIntact], || {
        shown(RedeliveryLosesHeaders::default())
    }),
    subtle(Fault::NewHeadersOnce, &[Clause::ContentIntact, Clause::SettleActions], || {
        shown(NewHeaders::default())
    }),
    subtle(Fault::NewHeadersLocal, &[Clause::ContentIntact, Clause::SettleActions], || {
        shown(NewHeaders { local: true, ..NewHeaders::default() })
    }),
    subtle(Fault::PostponeResetsCount, &[Clause::DeliveryCount], || shown(PostponeResetsCount::default())),
    subtle(Fault::LeaseEndNotCounted, &[Clause::DeliveryCount], || shown(LeaseEndNotCounted::default())),
    subtle(Fault::CountPerClient, &[Clause::DeliveryCount], || shown(CountPerClient::default())),
    subtle(Fault::AgeAnewAfterPostpone, &[Clause::Expiry], || shown(AgeAnewAfterPostpone::default())),
    subtle(Fault::AgeFromMaturity, &[Clause::Expiry], || shown(AgeFromMaturity)),
];

/// Changes what a delivery shows, and learns from settlements.
trait Show: fmt::Debug + Send + Sync {
    fn show(&mut self, client: usize, delivery: &mut RawDelivery);

    fn settled(&mut self, _client: usize, _lease: &Lease, _action: &Action) {}

    /// Returns a settlement's action as it is stored.
    fn stored(&self, action: &Action) -> Action {
        action.clone()
    }
}

#[derive(Debug)]
struct Shown(Kept<Box<dyn Show>>);

fn shown(show: impl Show + 'static) -> Arc<dyn Quirk> {
    Arc::new(Shown(Kept::new(Box::new(show))))
}

#[async_trait]
impl Quirk for Shown {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        let mut show = self.0.lock();
        for delivery in &mut deliveries {
            show.show(client.number, delivery);
        }
        drop(show);
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let Settlement { lease, action, .. } = settlement;
            let stored = self.0.lock().stored(action);
            let answer = client.settle_by(settlement, stored).await;
            if matches!(answer, Ok(SettleOutcome::Settled)) {
                self.0.lock().settled(client.number, lease, action);
            }
            answers.push(answer);
        }
        answers
    }
}

#[derive(Debug, Default)]
struct RedeliveryLosesHeaders {
    seen: HashSet<MessageId>,
}

impl Show for RedeliveryLosesHeaders {
    fn show(&mut self, _client: usize, delivery: &mut RawDelivery) {
        if !self.seen.insert(delivery.lease.id) {
            delivery.message = delivery.message.clone().with_headers(Headers::new());
        }
    }

    fn settled(&mut self, _client: usize, lease: &Lease, action: &Action) {
        if matches!(action, Action::Move { .. } | Action::Remove | Action::Postpone { headers: Some(_), .. })
        {
            self.seen.remove(&lease.id);
        }
    }
}

/// Shows headers given by a postponement only once, or only to the client that gave them.
#[derive(Debug, Default)]
struct NewHeaders {
    local: bool,
    given: HashMap<MessageId, (usize, Headers)>,
}

impl Show for NewHeaders {
    fn show(&mut self, client: usize, delivery: &mut RawDelivery) {
        let id = delivery.lease.id;
        let given = if self.local { self.given.get(&id).cloned() } else { self.given.remove(&id) };
        if let Some((_, headers)) = given.filter(|(giver, _)| !self.local || *giver == client) {
            delivery.message = delivery.message.clone().with_headers(headers);
        }
    }

    fn settled(&mut self, client: usize, lease: &Lease, action: &Action) {
        match action {
            Action::Postpone { headers: Some(headers), .. } => {
                self.given.insert(lease.id, (client, headers.clone()));
            }
            Action::Move { headers: Some(_), .. } | Action::Remove => {
                self.given.remove(&lease.id);
            }
            _ => {}
        }
    }

    fn stored(&self, action: &Action) -> Action {
        match action {
            Action::Postpone { delay, .. } => Action::Postpone { delay: *delay, headers: None },
            other => other.clone(),
        }
    }
}

/// Subtracts what was delivered before the postponement.
#[derive(Debug, Default)]
struct PostponeResetsCount {
    last: HashMap<MessageId, u32>,
    off: HashMap<MessageId, u32>,
}

impl Show for PostponeResetsCount {
    fn show(&mut self, _client: usize, delivery: &mut RawDelivery) {
        let (id, count) = (delivery.lease.id, delivery.delivery_count.unwrap_or_default());
        self.last.insert(id, count);
        delivery.delivery_count = Some(count.saturating_sub(self.off.get(&id).copied().unwrap_or_default()));
    }

    fn settled(&mut self, _client: usize, lease: &Lease, action: &Action) {
        match action {
            Action::Postpone { .. } => {
                let last = self.last.get(&lease.id).copied().unwrap_or_default();
                self.off.insert(lease.id, last.saturating_sub(1));
            }
            Action::Move { .. } | Action::Remove => {
                self.off.remove(&lease.id);
            }
            Action::Release | Action::Retry => {}
        }
    }
}

/// Subtracts deliveries that nobody settled.
#[derive(Debug, Default)]
struct LeaseEndNotCounted {
    open: HashSet<MessageId>,
    off: HashMap<MessageId, u32>,
}

impl Show for LeaseEndNotCounted {
    fn show(&mut self, _client: usize, delivery: &mut RawDelivery) {
        let id = delivery.lease.id;
        if !self.open.insert(id) {
            *self.off.entry(id).or_default() += 1;
        }
        let off = self.off.get(&id).copied().unwrap_or_default();
        delivery.delivery_count = delivery.delivery_count.map(|count| count.saturating_sub(off));
    }

    fn settled(&mut self, _client: usize, lease: &Lease, action: &Action) {
        self.open.remove(&lease.id);
        if matches!(action, Action::Move { .. } | Action::Remove) {
            self.off.remove(&lease.id);
        }
    }
}

/// Each client counts from the first delivery that it sees.
#[derive(Debug, Default)]
struct CountPerClient {
    before: HashMap<(usize, MessageId), u32>,
}

impl Show for CountPerClient {
    fn show(&mut self, client: usize, delivery: &mut RawDelivery) {
        let count = delivery.delivery_count.unwrap_or_default();
        let first = count.saturating_sub(1);
        let before = *self.before.entry((client, delivery.lease.id)).or_insert(first);
        delivery.delivery_count = Some(count.saturating_sub(before));
    }

    fn settled(&mut self, _client: usize, lease: &Lease, action: &Action) {
        if matches!(action, Action::Move { .. } | Action::Remove) {
            self.before.retain(|(_, id), _| *id != lease.id);
        }
    }
}

#[derive(Debug, Default)]
struct AgeAnewAfterPostpone {
    since: HashMap<MessageId, Instant>,
}

impl Show for AgeAnewAfterPostpone {
    fn show(&mut self, _client: usize, delivery: &mut RawDelivery) {
        if let Some(since) = self.since.get(&delivery.lease.id) {
            delivery.age = since.elapsed();
        }
    }

    fn settled(&mut self, _client: usize, lease: &Lease, action: &Action) {
        match action {
            Action::Postpone { .. } => {
                self.since.insert(lease.id, Instant::now());
            }
            Action::Remove => {
                self.since.remove(&lease.id);
            }
            _ => {}
        }
    }
}

#[derive(Debug)]
struct AgeFromMaturity;

impl Show for AgeFromMaturity {
    fn show(&mut self, _client: usize, delivery: &mut RawDelivery) {
        let delay = delivery.message.delay(SystemTime::now());
        delivery.age = delivery.age.saturating_sub(delay);
    }
}
