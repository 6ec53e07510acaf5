//! Faults of clients that use their own clock, and of times at the limits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{
    Action, Extension, Lease, PullQueueStorage as _, PullRequest, PushQueueStorage as _, Settlement,
    async_trait,
};
use anyqueue::{Clock, MessageData, MessageId, PartitionId, When};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Extended, Kept, Pulled, Pushed, Quirk, Settled, by, for_wait, plain};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::DueByClientClock, &[Clause::ServerTime], || Arc::new(DueByClientClock)),
    plain(Fault::PostponedByClientClock, &[Clause::ServerTime], || Arc::new(PostponedByClientClock)),
    plain(Fault::AgeByClientClock, &[Clause::ServerTime], || Arc::new(AgeByClientClock)),
    plain(Fault::LeaseByClientClock, &[Clause::ServerTime], || Arc::new(LeaseByClientClock)),
    plain(Fault::DueByWallClock, &[Clause::ServerTime], || Arc::<DueByWallClock>::default()),
    plain(Fault::LeaseByWallClock, &[Clause::ServerTime], || Arc::<LeaseByWallClock>::default()),
    plain(Fault::WaitByWallClock, &[Clause::ServerTime], || Arc::new(WaitByWallClock)),
    plain(Fault::MovedByClientClock, &[Clause::ServerTime], || Arc::new(MovedByClientClock)),
    plain(Fault::TinyDelayForever, &[Clause::Delays], || Arc::new(TinyDelayForever)),
    plain(Fault::TinyPostponementForever, &[Clause::Delays], || Arc::new(TinyPostponementForever)),
    plain(Fault::ExpiryOf32BitMillis, &[Clause::Expiry], || Arc::new(ExpiryOf32BitMillis)),
];

const MILLI: Duration = Duration::from_millis(1);
const FOR_EVER: Duration = Duration::from_hours(24);

impl Client {
    /// Returns how far in the server's future a time is that this client's clock shows after `span`.
    fn by_its_clock(&self, span: Duration) -> Duration {
        (self.clock.wall() + span).duration_since(SystemTime::now()).unwrap_or_default()
    }

    fn is_off(&self) -> bool {
        let now = SystemTime::now();
        let off = self.clock.wall().duration_since(now).unwrap_or_else(|behind| behind.duration());
        off > Duration::from_mins(1)
    }
}

fn delayed(message: &MessageData, delay: impl Fn(Duration) -> Duration) -> MessageData {
    let asked = message.delay(SystemTime::UNIX_EPOCH);
    let delay = delay(asked);
    if delay == asked { message.clone() } else { message.clone().with_delay(delay) }
}

#[derive(Debug)]
struct DueByClientClock;

#[async_trait]
impl Quirk for DueByClientClock {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        if !client.is_off() {
            return client.right.push(partition, messages).await;
        }
        let due = |message| delayed(message, |delay| client.by_its_clock(delay));
        client.right.push(partition, &messages.iter().map(due).collect::<Vec<_>>()).await
    }
}

/// Returns the settlements, with another delay for those that postpone.
fn put_off(settlements: &[Settlement], other: impl Fn(Duration) -> Duration) -> Vec<Settlement> {
    let one = |settlement: &Settlement| match &settlement.action {
        Action::Postpone { delay, headers } => {
            let action = Action::Postpone { delay: other(*delay), headers: headers.clone() };
            by(settlement, action)
        }
        _ => settlement.clone(),
    };
    settlements.iter().map(one).collect()
}

#[derive(Debug)]
struct PostponedByClientClock;

#[async_trait]
impl Quirk for PostponedByClientClock {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        if !client.is_off() {
            return client.right.settle(settlements).await;
        }
        client.right.settle(&put_off(settlements, |delay| client.by_its_clock(delay))).await
    }
}

#[derive(Debug)]
struct AgeByClientClock;

#[async_trait]
impl Quirk for AgeByClientClock {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        if !client.is_off() {
            return Ok(deliveries);
        }
        let aged = deliveries.into_iter().map(|delivery| {
            let pushed = SystemTime::now().checked_sub(delivery.age).unwrap_or(SystemTime::UNIX_EPOCH);
            let age = client.clock.wall().duration_since(pushed).unwrap_or_default();
            delivery.with_age(age)
        });
        Ok(aged.collect())
    }
}

#[derive(Debug)]
struct LeaseByClientClock;

#[async_trait]
impl Quirk for LeaseByClientClock {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        if client.is_off() {
            request.lease = client.by_its_clock(request.lease).max(MILLI);
        }
        client.right.pull(partition, request).await
    }
}

/// How often a fault that waits looks at its clock.
const LOOK: Duration = Duration::from_millis(5);

/// Stores a postponed message at once, and hides it until the client's clock at that time, plus the delay.
#[derive(Debug, Default)]
struct DueByWallClock(Kept<HashMap<MessageId, SystemTime>>);

impl DueByWallClock {
    fn is_due(&self, client: &Client, id: MessageId) -> bool {
        self.0.lock().get(&id).is_none_or(|due| client.clock.wall() >= *due)
    }
}

#[async_trait]
impl Quirk for DueByWallClock {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let now = client.clock.wall();
        let at_once = |message: &MessageData| {
            let delay = message.delay(now);
            if !delay.is_zero() {
                self.0.lock().insert(message.id(), now + delay);
            }
            delayed(message, |_| Duration::ZERO)
        };
        client.right.push(partition, &messages.iter().map(at_once).collect::<Vec<_>>()).await
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        for settlement in settlements {
            if let Action::Postpone { delay, .. } = settlement.action {
                self.0.lock().insert(settlement.lease.id, client.clock.wall() + delay);
            }
        }
        client.right.settle(&put_off(settlements, |_| Duration::ZERO)).await
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let start = Instant::now();
        loop {
            let deliveries = client.right.pull(partition, for_wait(&request, Duration::ZERO)).await?;
            let (due, early): (Vec<_>, Vec<_>) =
                deliveries.into_iter().partition(|delivery| self.is_due(client, delivery.lease.id));
            for delivery in early {
                client.settle_one(delivery.lease, Action::Release).await?;
            }
            if !due.is_empty() || start.elapsed() >= request.wait || request.stop.is_cancelled() {
                return Ok(due);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Before each claim, releases messages whose lease is over by their holder's clock.
#[derive(Debug, Default)]
struct LeaseByWallClock(Kept<Vec<(Lease, SystemTime, Clock)>>);

#[async_trait]
impl Quirk for LeaseByWallClock {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let start = Instant::now();
        loop {
            let over =
                self.0.lock().extract_if(.., |(_, end, clock)| clock.wall() >= *end).collect::<Vec<_>>();
            for (lease, _, _) in over {
                client.settle_one(lease, Action::Release).await?;
            }
            let deliveries = client.right.pull(partition, for_wait(&request, Duration::ZERO)).await?;
            let end = client.clock.wall() + request.lease;
            let held = deliveries.iter().map(|delivery| (delivery.lease.clone(), end, client.clock.clone()));
            self.0.lock().extend(held);
            if !deliveries.is_empty() || start.elapsed() >= request.wait || request.stop.is_cancelled() {
                return Ok(deliveries);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        for (lease, end, clock) in self.0.lock().iter_mut() {
            let longer = extensions.iter().find(|extension| extension.lease == *lease);
            *end = longer.map_or(*end, |longer| clock.wall() + longer.duration);
        }
        client.right.extend(extensions).await
    }
}

#[derive(Debug)]
struct WaitByWallClock;

#[async_trait]
impl Quirk for WaitByWallClock {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let end = client.clock.wall() + request.wait;
        loop {
            let deliveries = client.right.pull(partition, for_wait(&request, Duration::ZERO)).await?;
            if !deliveries.is_empty() || client.clock.wall() >= end || request.stop.is_cancelled() {
                return Ok(deliveries);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Does not yet hand out a dead letter whose death, by the clock of the process where it died, lies in this
/// client's future.
#[derive(Debug)]
struct MovedByClientClock;

#[async_trait]
impl Quirk for MovedByClientClock {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        let now = client.clock.wall() + Duration::from_mins(1);
        let (early, due): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(|delivery| {
            let died = delivery.message.headers().get(anyqueue::header::DEAD_AT);
            died.and_then(|at| humantime::parse_rfc3339(at).ok()).is_some_and(|at| at > now)
        });
        for delivery in early {
            client.settle_one(delivery.lease, Action::Release).await?;
        }
        Ok(due)
    }
}

fn tiny_for_ever(delay: Duration) -> Duration {
    if delay < MILLI && !delay.is_zero() { FOR_EVER } else { delay }
}

#[derive(Debug)]
struct TinyDelayForever;

#[async_trait]
impl Quirk for TinyDelayForever {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let due: Vec<_> = messages.iter().map(|message| delayed(message, tiny_for_ever)).collect();
        client.right.push(partition, &due).await
    }
}

#[derive(Debug)]
struct TinyPostponementForever;

#[async_trait]
impl Quirk for TinyPostponementForever {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        client.right.settle(&put_off(settlements, tiny_for_ever)).await
    }
}

#[derive(Debug)]
struct ExpiryOf32BitMillis;

#[async_trait]
impl Quirk for ExpiryOf32BitMillis {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let cut = |message: &MessageData| {
            let Some(When::In(expiry)) = message.options().expiry else { return message.clone() };
            let millis = u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX) & u64::from(u32::MAX);
            message.clone().with_time_to_live(Duration::from_millis(millis))
        };
        client.right.push(partition, &messages.iter().map(cut).collect::<Vec<_>>()).await
    }
}
