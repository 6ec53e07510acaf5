//! Faults of time: something is reported or done later than declared, but not so late that a generous bound
//! would notice.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{
    Action, PauseQueueStorage as _, PullQueueStorage as _, PullRequest, PushQueueStorage as _, RawDelivery,
    Settlement, async_trait,
};
use anyqueue::{MessageData, MessageId, PartitionId, Result};
use anyqueue_conformance::{Clause, Fault};
use tokio_util::sync::CancellationToken;

use crate::quirk::{Client, Entry, Kept, Pulled, Pushed, Quirk, Settled, for_wait, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::PollsEachSecond, &[Clause::PushWakes], || Arc::new(PollsEachSecond)),
    subtle(Fault::LeaseUntilFromAnswer, &[Clause::LeaseEnd], || Arc::new(LeaseUntilFromAnswer)),
    subtle(Fault::DelayEndsLate, &[Clause::Delays], || Arc::new(DelayEndsLate)),
    subtle(Fault::LeaseEndsLate, &[Clause::LeaseEnd], || Arc::new(LeaseEndsLate)),
    subtle(Fault::ResumedDeafToDelays, &[Clause::Delays, Clause::Pause], || {
        Arc::new(ResumedDeafToDelays::default())
    }),
    subtle(Fault::PostponedGoesVeryLast, &[Clause::Order, Clause::SettleActions], || {
        Arc::new(PostponedGoesVeryLast::default())
    }),
    subtle(Fault::ExchangeIgnoresStop, &[Clause::DroppedPull], || Arc::new(ExchangeIgnoresStop)),
];

/// Late, but not later than a busy machine may be.
const LATE: Duration = Duration::from_millis(700);

#[derive(Debug)]
struct PollsEachSecond;

#[async_trait]
impl Quirk for PollsEachSecond {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deadline = Instant::now() + request.wait;
        loop {
            let deliveries = client.right.pull(partition, for_wait(&request, Duration::ZERO)).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !deliveries.is_empty() || left.is_zero() {
                return Ok(deliveries);
            }
            tokio::select! {
                () = tokio::time::sleep(left.min(Duration::from_secs(1))) => {}
                () = request.stop.cancelled() => return Ok(Vec::new()),
                () = client.closed.cancelled() => return Ok(Vec::new()),
            }
        }
    }
}

/// The answer takes some time, and the lease is counted from its arrival.
#[derive(Debug)]
struct LeaseUntilFromAnswer;

#[async_trait]
impl Quirk for LeaseUntilFromAnswer {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let lease = request.lease;
        let deliveries = client.right.pull(partition, request).await?;
        if !deliveries.is_empty() {
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        let until = Instant::now() + lease;
        Ok(deliveries.into_iter().map(|delivery: RawDelivery| delivery.with_lease_until(until)).collect())
    }
}

#[derive(Debug)]
struct DelayEndsLate;

#[async_trait]
impl Quirk for DelayEndsLate {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let later = |message: &MessageData| {
            let delay = message.delay(SystemTime::UNIX_EPOCH);
            if delay.is_zero() { message.clone() } else { message.clone().with_delay(delay + LATE) }
        };
        client.right.push(partition, &messages.iter().map(later).collect::<Vec<_>>()).await
    }
}

/// The holder is refused in time, but the others get the message late.
#[derive(Debug)]
struct LeaseEndsLate;

#[async_trait]
impl Quirk for LeaseEndsLate {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        request.lease += LATE;
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            let until = delivery.lease_until.map(|until| until.checked_sub(LATE).unwrap_or(until));
            delivery.lease_until = until;
        }
        Ok(deliveries)
    }
}

/// A pull that waits when its partition is resumed notices nothing until its wait ends, when it looks once
/// more.
#[derive(Debug, Default)]
struct ResumedDeafToDelays {
    waiting: Kept<Vec<(PartitionId, CancellationToken)>>,
}

impl ResumedDeafToDelays {
    fn awake(&self, partition: &PartitionId) -> Vec<CancellationToken> {
        let waiting = self.waiting.lock();
        waiting.iter().filter(|(place, _)| place == partition).map(|(_, deaf)| deaf.clone()).collect()
    }
}

#[async_trait]
impl Quirk for ResumedDeafToDelays {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let (deadline, deaf) = (Instant::now() + request.wait, CancellationToken::new());
        self.waiting.lock().push((partition.clone(), deaf.clone()));
        let answer = tokio::select! {
            answer = client.right.pull(partition, request.clone()) => Some(answer),
            () = deaf.cancelled() => None,
        };
        if let Some(answer) = answer {
            return answer;
        }
        tokio::select! {
            () = tokio::time::sleep_until(deadline.into()) => {}
            () = request.stop.cancelled() => {}
            () = client.closed.cancelled() => {}
        }
        client.right.pull(partition, for_wait(&request, Duration::ZERO)).await
    }

    async fn set_paused(&self, client: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
        client.right.set_paused(partition, paused).await?;
        if !paused {
            // A pull that finds something now is woken.
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.awake(partition).iter().for_each(CancellationToken::cancel);
        }
        Ok(())
    }
}

/// Postponed messages come last within one result, which is where that can be seen.
#[derive(Debug, Default)]
struct PostponedGoesVeryLast {
    postponed: Kept<HashSet<MessageId>>,
}

#[async_trait]
impl Quirk for PostponedGoesVeryLast {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        let postponed = self.postponed.lock();
        deliveries.sort_by_key(|delivery| {
            (Reverse(delivery.message.options().priority), postponed.contains(&delivery.lease.id))
        });
        drop(postponed);
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let postponed = settlements.iter().filter(|it| matches!(it.action, Action::Postpone { .. }));
        self.postponed.lock().extend(postponed.map(|it| it.lease.id));
        client.right.settle(settlements).await
    }
}

#[derive(Debug)]
struct ExchangeIgnoresStop;

#[async_trait]
impl Quirk for ExchangeIgnoresStop {
    async fn exchange(
        &self,
        client: &Client,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Settled, Pulled) {
        client.right.exchange(settlements, partition, request.with_stop(CancellationToken::new())).await
    }
}
