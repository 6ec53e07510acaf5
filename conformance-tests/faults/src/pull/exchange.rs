//! Faults that concern only exchanges.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{PullQueueStorage as _, PullRequest, Settlement, async_trait};
use anyqueue::{PartitionId, SettleOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Pulled, Quirk, Settled, for_wait, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::ExchangeStopsAtLost, &[Clause::PullBounds, Clause::ReadyAtOnce], || {
        Arc::new(ExchangeStopsAtLost)
    }),
    subtle(Fault::ExchangePullsFirst, &[Clause::ReadyAtOnce, Clause::Groups], || {
        Arc::new(ExchangePullsFirst)
    }),
    subtle(Fault::ExchangeDoesNotWait, &[Clause::PushWakes], || Arc::new(ExchangeDoesNotWait)),
    subtle(Fault::ExchangeElsewhere, &[Clause::PartitionsApart], || Arc::new(ExchangeElsewhere)),
];

#[derive(Debug)]
struct ExchangeStopsAtLost;

#[async_trait]
impl Quirk for ExchangeStopsAtLost {
    async fn exchange(
        &self,
        client: &Client,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Settled, Pulled) {
        let settled = client.right.settle(settlements).await;
        if settled.iter().any(|answer| matches!(answer, Ok(SettleOutcome::Lost))) {
            return (settled, Ok(Vec::new()));
        }
        (settled, client.right.pull(partition, request).await)
    }
}

#[derive(Debug)]
struct ExchangePullsFirst;

#[async_trait]
impl Quirk for ExchangePullsFirst {
    async fn exchange(
        &self,
        client: &Client,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Settled, Pulled) {
        let at_once = for_wait(&request, Duration::ZERO);
        let pulled = client.right.pull(partition, at_once).await;
        let settled = client.right.settle(settlements).await;
        if request.wait.is_zero() || !matches!(&pulled, Ok(deliveries) if deliveries.is_empty()) {
            return (settled, pulled);
        }
        (settled, client.right.pull(partition, request).await)
    }
}

#[derive(Debug)]
struct ExchangeDoesNotWait;

#[async_trait]
impl Quirk for ExchangeDoesNotWait {
    async fn exchange(
        &self,
        client: &Client,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Settled, Pulled) {
        client.right.exchange(settlements, partition, for_wait(&request, Duration::ZERO)).await
    }
}

#[derive(Debug)]
struct ExchangeElsewhere;

#[async_trait]
impl Quirk for ExchangeElsewhere {
    async fn exchange(
        &self,
        client: &Client,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Settled, Pulled) {
        let elsewhere = settlements.first().map_or(partition, |settlement| &settlement.lease.partition);
        client.right.exchange(settlements, elsewhere, request).await
    }
}
