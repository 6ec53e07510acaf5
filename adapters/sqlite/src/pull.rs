//! Waiting for messages, and delivering them.

use std::time::Instant;

use anyqueue::adapter::{
    Extension, Lease, PullQueueStorage, PullRequest, RawDelivery, Settlement, Waiting, async_trait,
};
use anyqueue::{Error, ErrorKind, ExtendOutcome, Operation, PartitionId, Result, SettleOutcome};

use crate::SqliteQueue;
use crate::claim::CLAIM_BYTES;
use crate::ending::Ending;
use crate::error::{ERRORS, NAME};
use crate::job::{Answer, Claim, Claimed, Work};
use crate::limits::LEASE;
use crate::record::Read;
use crate::storage::Inner;
use crate::token::token;

#[async_trait]
impl PullQueueStorage for SqliteQueue {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.settle_and_pull(&[], partition, request).await.1
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.settle_only(settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Extend);
        match self.ask(Work::Extend(extensions.to_vec()), Operation::Extend).await {
            Ok(Answer::Extend(outcomes)) => {
                outcomes.into_iter().map(|outcome| outcome.map_err(stamp)).collect()
            }
            Ok(_) => extensions.iter().map(|_| Ok(ExtendOutcome::Lost)).collect(),
            Err(error) => extensions.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        self.settle_and_pull(settlements, partition, request).await
    }
}

impl SqliteQueue {
    /// Settles, and pulls in the same transaction. If the pull waits, it does so after the settlements are
    /// committed.
    async fn settle_and_pull(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        if let Err(error) = request.check(&LEASE) {
            return (self.settle_only(settlements).await, Err(stamp(error)));
        }
        let inner = &self.inner;
        let started = inner.config.clock.now();
        let mut waiting = (!request.wait.is_zero()).then(|| inner.waiters.join(partition));
        let before = inner.config.clock.now();
        let (outcomes, claimed) = match self.claim(settlements, partition, &request).await {
            Ok(done) => done,
            Err(error) => {
                let outcomes =
                    settlements.iter().map(|_| Err(error.clone().with_operation(Operation::Settle)));
                return (outcomes.collect(), Err(error));
            }
        };
        let deliveries = match claimed {
            Ok(claimed) => self.deliver(claimed, partition, &request, before),
            Err(error) => return (outcomes, Err(error)),
        };
        let pulled = match waiting.take() {
            Some(waiting) if deliveries.is_empty() => self.wait(partition, &request, started, waiting).await,
            _ => Ok(self.pass_on(deliveries, &request, partition)),
        };
        (outcomes, pulled)
    }

    /// Tries again whenever it is woken, until the wait is over or stopped.
    async fn wait(
        &self,
        partition: &PartitionId,
        request: &PullRequest,
        started: Instant,
        waiting: Waiting<i64>,
    ) -> Result<Vec<RawDelivery>> {
        let Inner { config, closed, .. } = &*self.inner;
        let left = request.wait.saturating_sub(config.clock.now().saturating_duration_since(started));
        let claim = || async {
            let before = config.clock.now();
            let (_, claimed) = self.claim(&[], partition, request).await?;
            Ok(self.deliver(claimed?, partition, request, before))
        };
        let deliveries = waiting.claim(closed, &request.stop, config.clock.sleep(left), claim).await?;
        Ok(self.pass_on(deliveries, request, partition))
    }

    /// Wakes the next waiter if this pull took as many messages as it wanted or could carry, since more may be left.
    fn pass_on(
        &self,
        deliveries: Vec<RawDelivery>,
        request: &PullRequest,
        partition: &PartitionId,
    ) -> Vec<RawDelivery> {
        let bytes: usize = deliveries.iter().map(|delivery| delivery.message.payload().len()).sum();
        // Payloads are most of what is stored, and a surplus wake-up is harmless.
        if deliveries.len() >= request.max || bytes >= CLAIM_BYTES / 2 {
            self.inner.waiters.wake(partition, 1);
        }
        deliveries
    }

    async fn claim(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: &PullRequest,
    ) -> Result<(Vec<Result<SettleOutcome>>, Result<Claimed>)> {
        let PullRequest { max, group_members, lease, .. } = *request;
        let (partition, stop) = (partition.clone(), request.stop.clone());
        let claim = Claim { partition, max, group_members, lease, stop };
        let work = Work::Settle { endings: self.prepare(settlements), claim: Some(claim) };
        match self.ask(work, Operation::Pull).await? {
            Answer::Settle(outcomes, claimed) => {
                Ok((outcomes.into_iter().map(stamped).collect(), claimed.map_err(stamp)))
            }
            _ => Err(stamp(ERRORS.error(ErrorKind::Internal, "the writer answered another request"))),
        }
    }

    /// Reads what was claimed. A message that cannot be read is delivered as it is stored; core handles it.
    fn deliver(
        &self,
        claimed: Claimed,
        partition: &PartitionId,
        request: &PullRequest,
        before: Instant,
    ) -> Vec<RawDelivery> {
        let until = before + request.lease;
        let (all, secret) = claimed.take();
        let mut deliveries = Vec::with_capacity(all.len());
        for taken in all {
            let Read { message, age, unreadable } = taken.stored.read(&self.inner.config.clock);
            let token = token(taken.stored.seq, secret);
            let lease = Lease { partition: partition.clone(), id: message.id(), token };
            let count = u32::try_from(taken.deliveries).unwrap_or(u32::MAX);
            let delivery = RawDelivery::new(lease, message).with_lease_until(until);
            deliveries.push(delivery.with_delivery_count(count).with_age(age).with_unreadable(unreadable));
        }
        deliveries
    }

    fn prepare(&self, settlements: &[Settlement]) -> Vec<Ending> {
        let config = &self.inner.config;
        settlements.iter().map(|settlement| Ending::prepare(settlement, config)).collect()
    }

    async fn settle_only(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let work = Work::Settle { endings: self.prepare(settlements), claim: None };
        match self.ask(work, Operation::Settle).await {
            Ok(Answer::Settle(outcomes, _)) => outcomes.into_iter().map(stamped).collect(),
            Ok(_) => settlements.iter().map(|_| Ok(SettleOutcome::Lost)).collect(),
            Err(error) => settlements.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

fn stamp(error: Error) -> Error {
    error.with_backend(NAME).with_operation(Operation::Pull)
}

fn stamped(outcome: Result<SettleOutcome>) -> Result<SettleOutcome> {
    outcome.map_err(|error| error.with_backend(NAME).with_operation(Operation::Settle))
}
