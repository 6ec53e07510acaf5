//! Faults of batch calls: what is right for one item is wrong for a batch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyqueue::adapter::{
    Action, Extension, Lease, PullQueueStorage as _, PullRequest, PushQueueStorage as _, Settlement, Token,
    async_trait,
};
use anyqueue::{ErrorKind, ExtendOutcome, MessageData, MessageId, PartitionId, RetryClass, SettleOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Extended, Kept, Pulled, Pushed, Quirk, Settled, of, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::TokenByItsStart, &[Clause::Fencing], || Arc::new(TokenByItsStart::default())),
    subtle(Fault::TokensInterchange, &[Clause::Fencing], || Arc::new(TokensInterchange::default())),
    subtle(Fault::RefusedFailsBatch, &[Clause::SettleOutcomes], || Arc::new(RefusedFailsBatch::default())),
    subtle(Fault::ExtendsFirstHundred, &[Clause::Extend], || Arc::new(ExtendsSome(Some(100)))),
    subtle(Fault::ExtendsOnePartition, &[Clause::Extend], || Arc::new(ExtendsSome(None))),
    subtle(Fault::NineMovesReversed, &[Clause::Order, Clause::SettleActions], || Arc::new(NineMovesReversed)),
    subtle(Fault::TooLargeIsSafe, &[Clause::PushErrors], || Arc::new(TooLargeIsSafe)),
];

/// Accepts a token that begins with the right one, or that is the beginning of it.
#[derive(Debug, Default)]
struct TokenByItsStart(Kept<HashMap<MessageId, Lease>>);

#[async_trait]
impl Quirk for TokenByItsStart {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        let leases = deliveries.iter().map(|delivery| (delivery.lease.id, delivery.lease.clone()));
        self.0.lock().extend(leases);
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let meant = |it: &Settlement| {
            let known = self.0.lock();
            let alike = known.get(&it.lease.id).filter(|right| {
                let (one, other) = (right.token.as_bytes(), it.lease.token.as_bytes());
                one.starts_with(other) || other.starts_with(one)
            });
            of(it, alike.unwrap_or(&it.lease).clone())
        };
        let meant: Vec<_> = settlements.iter().map(meant).collect();
        client.right.settle(&meant).await
    }
}

/// Each delivery has its own token, but any such token is accepted for any held message.
#[derive(Debug, Default)]
struct TokensInterchange {
    leases: Kept<HashMap<Token, Lease>>,
    latest: Kept<HashMap<MessageId, Lease>>,
}

impl TokensInterchange {
    /// Returns the right lease of the message that is meant, if the token is known.
    fn meant(&self, lease: &Lease) -> Lease {
        match self.leases.lock().get(&lease.token) {
            Some(own) if own.id == lease.id => own.clone(),
            Some(_) => self.latest.lock().get(&lease.id).unwrap_or(lease).clone(),
            None => lease.clone(),
        }
    }
}

#[async_trait]
impl Quirk for TokensInterchange {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            let token = Token::random();
            self.latest.lock().insert(delivery.lease.id, delivery.lease.clone());
            self.leases.lock().insert(token.clone(), delivery.lease.clone());
            delivery.lease.token = token;
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let meant = |it: &Settlement| of(it, self.meant(&it.lease));
        client.right.settle(&settlements.iter().map(meant).collect::<Vec<_>>()).await
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let meant = |it: &Extension| Extension { lease: self.meant(&it.lease), duration: it.duration };
        client.right.extend(&extensions.iter().map(meant).collect::<Vec<_>>()).await
    }
}

/// The leases that are held, as far as the fault knows.
#[derive(Debug, Default)]
struct RefusedFailsBatch {
    held: Kept<HashSet<Lease>>,
}

#[async_trait]
impl Quirk for RefusedFailsBatch {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        self.held.lock().extend(deliveries.iter().map(|delivery| delivery.lease.clone()));
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let refused = {
            let held = self.held.lock();
            settlements.iter().any(|settlement| !held.contains(&settlement.lease))
        };
        if refused {
            return vec![Ok(SettleOutcome::Lost); settlements.len()];
        }
        client.right.settle(settlements).await
    }
}

/// Extends only the first few of a batch, or those of the first one's partition, but acknowledges all of
/// them.
#[derive(Debug)]
struct ExtendsSome(Option<usize>);

#[async_trait]
impl Quirk for ExtendsSome {
    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let first = extensions.first().map(|extension| &extension.lease.partition);
        let reached = extensions.iter().enumerate().filter(|(at, extension)| match self.0 {
            Some(most) => *at < most,
            None => Some(&extension.lease.partition) == first,
        });
        let reached: Vec<_> = reached.map(|(_, extension)| extension.clone()).collect();
        let mut answers = client.right.extend(&reached).await.into_iter();
        let answer = |extension: &Extension| {
            let done = reached.contains(extension).then(|| answers.next()).flatten();
            done.unwrap_or(Ok(ExtendOutcome::Extended))
        };
        extensions.iter().map(answer).collect()
    }
}

#[derive(Debug)]
struct NineMovesReversed;

#[async_trait]
impl Quirk for NineMovesReversed {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let moves = settlements.iter().filter(|it| matches!(it.action, Action::Move { .. })).count();
        if moves <= 8 {
            return client.right.settle(settlements).await;
        }
        let reversed: Vec<_> = settlements.iter().rev().cloned().collect();
        let mut answers = client.right.settle(&reversed).await;
        answers.reverse();
        answers
    }
}

#[derive(Debug)]
struct TooLargeIsSafe;

#[async_trait]
impl Quirk for TooLargeIsSafe {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let answers = client.right.push(partition, messages).await.into_iter();
        let safe = |error: anyqueue::Error| {
            if error.kind() == ErrorKind::TooLarge { error.with_retry(RetryClass::Safe) } else { error }
        };
        answers.map(|answer| answer.map_err(safe)).collect()
    }
}
