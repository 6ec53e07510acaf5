//! Faults of settling.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyqueue::adapter::{
    Action, Lease, PullQueueStorage as _, PullRequest, PushQueueStorage as _, Settlement, async_trait,
};
use anyqueue::{Headers, MessageData, MessageId, PartitionId, SettleOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Pulled, Pushed, Quirk, Settled, by, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::ReleaseCounts, &[Clause::DeliveryCount], || Arc::new(Instead(release_counts))),
    plain(Fault::PostponeCounts, &[Clause::DeliveryCount], || Arc::new(PostponeCounts::default())),
    subtle(Fault::EmptyHeadersIgnored, &[Clause::SettleActions], || Arc::new(Instead(empty_headers_ignored))),
    subtle(Fault::PostponeMergesHeaders, &[Clause::SettleActions], || {
        Arc::new(PostponeMergesHeaders::default())
    }),
    subtle(Fault::TwinSettled, &[Clause::SettleOutcomes, Clause::SettleTwice], || Arc::new(TwinSettled)),
    subtle(Fault::OnePartitionPerBatch, &[Clause::SettleOutcomes], || Arc::new(OnePartitionPerBatch)),
    subtle(Fault::AnswersByPartition, &[Clause::SettleOutcomes], || Arc::new(AnswersByPartition)),
    subtle(Fault::LostEndsBatch, &[Clause::SettleOutcomes], || Arc::new(LostEndsBatch)),
    subtle(Fault::MoveToNewVanishes, &[Clause::KeptBeforeConsumers, Clause::SettleActions], || {
        Arc::new(MoveToNewVanishes::default())
    }),
];

/// Performs another action than the one that was requested.
#[derive(Debug)]
struct Instead(fn(&Action) -> Option<Action>);

fn release_counts(action: &Action) -> Option<Action> {
    (*action == Action::Release).then_some(Action::Retry)
}

fn empty_headers_ignored(action: &Action) -> Option<Action> {
    match action {
        Action::Postpone { delay, headers: Some(headers) } if headers.is_empty() => {
            Some(Action::Postpone { delay: *delay, headers: None })
        }
        _ => None,
    }
}

#[async_trait]
impl Quirk for Instead {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let instead = |settlement: &Settlement| {
            let action = (self.0)(&settlement.action).unwrap_or_else(|| settlement.action.clone());
            by(settlement, action)
        };
        client.right.settle(&settlements.iter().map(instead).collect::<Vec<_>>()).await
    }
}

/// Keeps in the count what a postponement should subtract.
#[derive(Debug, Default)]
struct PostponeCounts {
    postponed: Kept<HashMap<MessageId, u32>>,
}

#[async_trait]
impl Quirk for PostponeCounts {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            let more = self.postponed.lock().get(&delivery.lease.id).copied().unwrap_or_default();
            delivery.delivery_count = delivery.delivery_count.map(|count| count + more);
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        let mut postponed = self.postponed.lock();
        for (Settlement { lease, action, .. }, answer) in settlements.iter().zip(&answers) {
            match (action, answer) {
                (Action::Postpone { .. }, Ok(SettleOutcome::Settled)) => {
                    *postponed.entry(lease.id).or_default() += 1;
                }
                (Action::Move { .. } | Action::Remove, Ok(SettleOutcome::Settled)) => {
                    postponed.remove(&lease.id);
                }
                _ => {}
            }
        }
        drop(postponed);
        answers
    }
}

#[derive(Debug, Default)]
struct PostponeMergesHeaders {
    old: Kept<HashMap<Lease, Headers>>,
}

#[async_trait]
impl Quirk for PostponeMergesHeaders {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        let old = deliveries.iter().map(|it| (it.lease.clone(), it.message.headers().clone()));
        self.old.lock().extend(old);
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut merged = settlements.to_vec();
        for settlement in &mut merged {
            if let Action::Postpone { headers: Some(headers), .. } = &mut settlement.action
                && let Some(old) = self.old.lock().get(&settlement.lease)
            {
                let new = std::mem::replace(headers, old.clone());
                headers.extend(new);
            }
        }
        client.right.settle(&merged).await
    }
}

#[derive(Debug)]
struct TwinSettled;

#[async_trait]
impl Quirk for TwinSettled {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers = client.right.settle(settlements).await;
        let mut done = HashSet::new();
        for (settlement, answer) in settlements.iter().zip(&mut answers) {
            match answer {
                Ok(SettleOutcome::Settled) => {
                    done.insert(&settlement.lease);
                }
                Ok(lost) if done.contains(&settlement.lease) => *lost = SettleOutcome::Settled,
                _ => {}
            }
        }
        answers
    }
}

#[derive(Debug)]
struct OnePartitionPerBatch;

#[async_trait]
impl Quirk for OnePartitionPerBatch {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let Some(first) = settlements.first() else { return Vec::new() };
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let Settlement { lease, action, .. } = settlement;
            answers.push(if lease.partition == first.lease.partition {
                client.settle_by(settlement, action.clone()).await
            } else {
                Ok(SettleOutcome::Lost)
            });
        }
        answers
    }
}

#[derive(Debug)]
struct AnswersByPartition;

#[async_trait]
impl Quirk for AnswersByPartition {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        let partitions = settlements.iter().map(|settlement| &settlement.lease.partition);
        let mut grouped: Vec<_> = partitions.zip(answers).collect();
        grouped.sort_by_key(|(partition, _)| *partition);
        grouped.into_iter().map(|(_, answer)| answer).collect()
    }
}

#[derive(Debug)]
struct LostEndsBatch;

#[async_trait]
impl Quirk for LostEndsBatch {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let action = &settlement.action;
            let lost = matches!(answers.last(), Some(Ok(SettleOutcome::Lost)));
            answers.push(if lost {
                Ok(SettleOutcome::Lost)
            } else {
                client.settle_by(settlement, action.clone()).await
            });
        }
        answers
    }
}

/// The partitions that were pushed to are known.
#[derive(Debug, Default)]
struct MoveToNewVanishes {
    known: Kept<HashSet<PartitionId>>,
}

#[async_trait]
impl Quirk for MoveToNewVanishes {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        self.known.lock().insert(partition.clone());
        client.right.push(partition, messages).await
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut delivered = settlements.to_vec();
        for settlement in &mut delivered {
            if let Action::Move { to, .. } = &settlement.action
                && !to.is_dead_letters()
                && !self.known.lock().contains(to)
            {
                settlement.action = Action::Remove;
            }
        }
        client.right.settle(&delivered).await
    }
}
