//! Waiting for messages, and handing them over.

use std::time::Instant;

use anyqueue::{
    Delivery, ErrorKind, Lease, Operation, PartitionId, PullRequest, Result, SettleOutcome, Settlement,
};

use crate::SqliteQueue;
use crate::claim::{Claim, Claimed};
use crate::error::{NAME, invalid, own};
use crate::inspect::decode;
use crate::settle::{check_lease, token};
use crate::wake::Waiting;
use crate::writer::{Answer, Work};

impl SqliteQueue {
    /// Settles, and pulls in the same transaction. The wait, if any, comes after the settlements are answered for.
    pub(crate) async fn settle_and_pull(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<Delivery>>) {
        let refused = |error| Err(stamp(error));
        if let Err(error) = check(&request) {
            return (self.settle_only(settlements).await, refused(error));
        }
        let inner = &self.inner;
        let started = inner.config.clock.now();
        let mut waiting = (!request.wait.is_zero()).then(|| inner.wake.join(partition));
        let before = inner.config.clock.now();
        let (outcomes, claimed) = match self.claim(settlements, partition, &request).await {
            Ok(done) => done,
            Err(error) => {
                let outcomes =
                    settlements.iter().map(|_| Err(error.clone().with_operation(Operation::Settle)));
                return (outcomes.collect(), Err(error));
            }
        };
        let pulled = match self.deliver(claimed, partition, &request, before) {
            Ok(deliveries) if !deliveries.is_empty() => Ok(self.pass_on(deliveries, &request, partition)),
            Ok(_) => match waiting.take() {
                Some(waiting) => self.wait(partition, &request, started, waiting).await,
                None => Ok(Vec::new()),
            },
            Err(error) => refused(error),
        };
        (outcomes, pulled)
    }

    /// Tries again whenever woken, until the time is over or somebody says stop.
    async fn wait(
        &self,
        partition: &PartitionId,
        request: &PullRequest,
        started: Instant,
        mut waiting: Waiting,
    ) -> Result<Vec<Delivery>> {
        let inner = &self.inner;
        let left = request.wait.saturating_sub(inner.config.clock.now().saturating_duration_since(started));
        let mut over = std::pin::pin!(inner.config.clock.sleep(left));
        loop {
            tokio::select! {
                biased;
                () = inner.closed.cancelled() => return Ok(Vec::new()),
                () = request.stop.cancelled() => return Ok(Vec::new()),
                () = waiting.woken() => {}
                () = &mut over => return Ok(Vec::new()),
            }
            let next = inner.wake.join(partition);
            let before = inner.config.clock.now();
            let (_, claimed) = self.claim(&[], partition, request).await?;
            let deliveries = self.deliver(claimed, partition, request, before).map_err(stamp)?;
            waiting.spend();
            waiting = next;
            if !deliveries.is_empty() {
                return Ok(self.pass_on(deliveries, request, partition));
            }
        }
    }

    /// Where this pull took all it wanted, more may be left for the next in line.
    fn pass_on(
        &self,
        deliveries: Vec<Delivery>,
        request: &PullRequest,
        partition: &PartitionId,
    ) -> Vec<Delivery> {
        if deliveries.len() >= request.max {
            self.inner.wake.ready(partition, 1);
        }
        deliveries
    }

    async fn claim(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: &PullRequest,
    ) -> Result<(Vec<Result<SettleOutcome>>, Claimed)> {
        let (partition, stop) = (partition.clone(), request.stop.clone());
        let claim = Claim { partition, max: request.max, lease: request.lease, stop };
        let work = Work::Settle { settlements: settlements.to_vec(), claim: Some(claim) };
        match self.ask(work, Operation::Pull).await? {
            Answer::Settle(outcomes, claimed) => Ok((outcomes.into_iter().map(stamped).collect(), claimed)),
            _ => Err(stamp(own(ErrorKind::Internal, "the writer answered another request"))),
        }
    }

    /// Reads what was claimed. A message that cannot be read stays leased, so that it is not tried again at once; it is an
    /// error only if there is nothing else to hand over.
    fn deliver(
        &self,
        claimed: Claimed,
        partition: &PartitionId,
        request: &PullRequest,
        before: Instant,
    ) -> Result<Vec<Delivery>> {
        let until = before + request.lease;
        let (all, secret) = claimed.take();
        let mut deliveries = Vec::with_capacity(all.len());
        let mut unreadable = None;
        for taken in all {
            match decode(&taken.body, taken.seq, &self.inner.config.clock) {
                Ok((message, age)) => {
                    let token = token(taken.seq, secret);
                    let lease = Lease { partition: partition.clone(), id: message.id(), token };
                    let count = u32::try_from(taken.deliveries).unwrap_or(u32::MAX);
                    let delivery = Delivery::new(lease, message).with_lease_until(until);
                    deliveries.push(delivery.with_delivery_count(count).with_age(age));
                }
                Err(error) => {
                    tracing::error!(%error, seq = taken.seq, %partition, "a stored message cannot be read");
                    unreadable = Some(error);
                }
            }
        }
        match unreadable {
            Some(error) if deliveries.is_empty() => Err(error),
            _ => Ok(deliveries),
        }
    }

    pub(crate) async fn settle_only(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let work = Work::Settle { settlements: settlements.to_vec(), claim: None };
        match self.ask(work, Operation::Settle).await {
            Ok(Answer::Settle(outcomes, _)) => outcomes.into_iter().map(stamped).collect(),
            Ok(_) => settlements.iter().map(|_| Ok(SettleOutcome::Lost)).collect(),
            Err(error) => settlements.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

fn check(request: &PullRequest) -> Result<()> {
    if request.max == 0 {
        return Err(invalid("a pull asks for at least one message"));
    }
    check_lease(request.lease)
}

fn stamp(error: anyqueue::Error) -> anyqueue::Error {
    error.with_backend(NAME).with_operation(Operation::Pull)
}

fn stamped(outcome: Result<SettleOutcome>) -> Result<SettleOutcome> {
    outcome.map_err(|error| error.with_backend(NAME).with_operation(Operation::Settle))
}
