//! Faults of deduplication keys that are freed too early or too late.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyqueue::adapter::{
    Action, Extension, InspectQueueStorage as _, Lease, PullQueueStorage as _, PullRequest,
    PushQueueStorage as _, Settlement, async_trait,
};
use anyqueue::{MAX_PAGE, MessageData, MessageId, Page, PartitionId, PushOutcome, Result, SettleOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Extended, Kept, Originals, Pulled, Pushed, Quirk, Settled, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::KeyFreeAfterRetry, &[Clause::Deduplication], || freed(Freed::Retry)),
    subtle(Fault::KeyFreeWhilePostponed, &[Clause::Deduplication], || freed(Freed::Postpone)),
    subtle(Fault::KeyFreeAtLeaseEnd, &[Clause::Deduplication], || freed(Freed::LeaseEnd)),
    subtle(Fault::DeathKeepsKey, &[Clause::Deduplication], || Arc::new(DeathKeepsKey::default())),
    subtle(Fault::PurgeKeepsKeys, &[Clause::Deduplication, Clause::Deletion], || {
        Arc::new(PurgeKeepsKeys::default())
    }),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freed {
    Retry,
    Postpone,
    LeaseEnd,
}

/// A live message loses its key to whoever asks for it next.
#[derive(Debug)]
struct KeyFreed {
    by: Freed,
    /// Messages whose keys can be taken, and from when on.
    free: Kept<HashMap<MessageId, Instant>>,
    originals: Originals,
}

fn freed(by: Freed) -> Arc<dyn Quirk> {
    Arc::new(KeyFreed { by, free: Kept::default(), originals: Originals::default() })
}

impl KeyFreed {
    fn is_free(&self, id: MessageId) -> bool {
        self.free.lock().get(&id).is_some_and(|since| *since <= Instant::now())
    }

    fn settled(&self, settlement: &Settlement) {
        let id = settlement.lease.id;
        let mut free = self.free.lock();
        match (self.by, &settlement.action) {
            (Freed::Retry, Action::Retry) | (Freed::Postpone, Action::Postpone { .. }) => {
                free.insert(id, Instant::now());
            }
            (Freed::LeaseEnd, _) => {
                free.remove(&id);
            }
            _ => {}
        }
    }
}

#[async_trait]
impl Quirk for KeyFreed {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let mut answers = client.right.push(partition, messages).await;
        for (answer, message) in answers.iter_mut().zip(messages) {
            if let Ok(PushOutcome::Duplicate(Some(first))) = *answer
                && first != message.id()
                && self.is_free(first)
            {
                self.originals.keep(message);
                let mut options = message.options().clone();
                options.dedup_key = None;
                *answer = client.push_one(partition, message.clone().with_options(options)).await;
            }
        }
        answers
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            self.originals.restore(&mut delivery.message);
            if let Some(until) = delivery.lease_until.filter(|_| self.by == Freed::LeaseEnd) {
                self.free.lock().insert(delivery.lease.id, until);
            }
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        for (settlement, answer) in settlements.iter().zip(&answers) {
            if matches!(answer, Ok(SettleOutcome::Settled)) {
                self.settled(settlement);
            }
        }
        answers
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        if self.by == Freed::LeaseEnd {
            let mut free = self.free.lock();
            for Extension { lease, duration } in extensions {
                free.entry(lease.id).and_modify(|until| *until = Instant::now() + *duration);
            }
        }
        client.right.extend(extensions).await
    }
}

/// Keys stay taken although their messages are gone.
#[derive(Debug, Default)]
struct KeyHeld {
    taken: Kept<HashMap<(PartitionId, Arc<str>), MessageId>>,
    keys: Kept<HashMap<Lease, Arc<str>>>,
}

#[derive(Debug, Default)]
struct DeathKeepsKey(KeyHeld);

#[derive(Debug, Default)]
struct PurgeKeepsKeys(KeyHeld);

impl KeyHeld {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let mut answers = Vec::with_capacity(messages.len());
        for message in messages {
            let key = message.options().dedup_key.clone();
            let holder = key.and_then(|key| self.taken.lock().get(&(partition.clone(), key)).copied());
            answers.push(match holder {
                Some(holder) => Ok(PushOutcome::Duplicate(Some(holder))),
                None => client.push_one(partition, message.clone()).await,
            });
        }
        answers
    }
}

#[async_trait]
impl Quirk for DeathKeepsKey {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        self.0.push(client, partition, messages).await
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        for delivery in &deliveries {
            if let Some(key) = &delivery.message.options().dedup_key {
                self.0.keys.lock().insert(delivery.lease.clone(), Arc::clone(key));
            }
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        for (Settlement { lease, action, .. }, answer) in settlements.iter().zip(&answers) {
            let Ok(SettleOutcome::Settled) = answer else { continue };
            let Some(key) = self.0.keys.lock().remove(lease) else { continue };
            if matches!(action, Action::Move { to, .. } if *to == lease.partition.dead_letters()) {
                self.0.taken.lock().insert((lease.partition.clone(), key), lease.id);
            }
        }
        answers
    }
}

#[async_trait]
impl Quirk for PurgeKeepsKeys {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        self.0.push(client, partition, messages).await
    }

    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        let before = client.right.browse(partition, Page::of(MAX_PAGE)).await?;
        let purged = client.right.purge(partition, limit).await?;
        let after = client.right.browse(partition, Page::of(MAX_PAGE)).await?;
        let left: HashSet<_> = after.iter().map(|browsed| browsed.message.id()).collect();
        for message in before.iter().map(|browsed| &browsed.message).filter(|it| !left.contains(&it.id())) {
            if let Some(key) = message.options().dedup_key.clone().filter(|_| !partition.is_dead_letters()) {
                self.0.taken.lock().insert((partition.clone(), key), message.id());
            }
        }
        Ok(purged)
    }
}
