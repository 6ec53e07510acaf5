//! Faults that show when several clients do the same at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, InspectQueueStorage as _, Lease, PauseQueueStorage as _, PullQueueStorage as _, PullRequest,
    PushQueueStorage as _, Settlement, async_trait,
};
use anyqueue::{MAX_PAGE, MessageData, Page, PartitionId, PushOutcome, Result, SettleOutcome};
use anyqueue_conformance::{Clause, Fault};
use tokio::sync::Notify;

use crate::quirk::{Client, Entry, Kept, Pulled, Pushed, Quirk, Settled, for_wait, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::SettleRace, &[Clause::SettleOutcomes, Clause::SettleTwice], || {
        Arc::new(SettleRace::default())
    }),
    subtle(Fault::IdRace, &[Clause::Deduplication], || Arc::new(IdRace)),
    subtle(Fault::ClosesBlockEachOther, &[Clause::Close], || Arc::new(ClosesBlockEachOther::default())),
    subtle(Fault::OneWatchesTheTime, &[Clause::LeaseEnd, Clause::Delays], || {
        Arc::new(OneWatchesTheTime::default())
    }),
    subtle(Fault::InitStartsOver, &[Clause::Init], || Arc::new(InitStartsOver::default())),
];

/// The time between looking and writing, in which others can interfere.
const BETWEEN: Duration = Duration::from_millis(3);

#[derive(Debug, Default)]
struct SettleRace {
    settled: Kept<HashSet<Lease>>,
}

#[async_trait]
impl Quirk for SettleRace {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let is_settled = |settlement: &Settlement| self.settled.lock().contains(&settlement.lease);
        let were: Vec<bool> = settlements.iter().map(is_settled).collect();
        tokio::time::sleep(BETWEEN).await;
        let mut answers = client.right.settle(settlements).await;
        for ((settlement, was), answer) in settlements.iter().zip(were).zip(&mut answers) {
            match answer {
                Ok(SettleOutcome::Settled) => drop(self.settled.lock().insert(settlement.lease.clone())),
                Ok(SettleOutcome::Lost) if !was && is_settled(settlement) => {
                    *answer = Ok(SettleOutcome::Settled);
                }
                _ => {}
            }
        }
        answers
    }
}

#[derive(Debug)]
struct IdRace;

#[async_trait]
impl Quirk for IdRace {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let dead = partition.dead_letters();
        let mut known = Vec::with_capacity(messages.len());
        for message in messages {
            let (live, dead) =
                tokio::join!(client.find(partition, message.id()), client.find(&dead, message.id()));
            known.push(live.or(dead).is_some());
        }
        tokio::time::sleep(BETWEEN).await;
        let mut answers = client.right.push(partition, messages).await;
        for ((message, known), answer) in messages.iter().zip(known).zip(&mut answers) {
            if !known && matches!(answer, Ok(PushOutcome::Duplicate(Some(id))) if *id == message.id()) {
                *answer = Ok(PushOutcome::Stored(message.id()));
            }
        }
        answers
    }
}

/// The clients that are closing.
#[derive(Debug, Default)]
struct ClosesBlockEachOther(Kept<HashSet<usize>>);

#[async_trait]
impl Quirk for ClosesBlockEachOther {
    async fn before_close(&self, client: &Client) {
        if !self.0.lock().insert(client.number) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(BETWEEN).await;
        self.0.lock().remove(&client.number);
    }
}

/// The waiting pulls, in order of arrival.
#[derive(Debug, Default)]
struct OneWatchesTheTime(Kept<Vec<(PartitionId, Arc<Notify>)>>);

/// A waiting pull, for as long as it waits.
struct Waiting<'a> {
    all: &'a OneWatchesTheTime,
    bell: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.all.0.lock().retain(|(_, bell)| !Arc::ptr_eq(bell, &self.bell));
    }
}

impl OneWatchesTheTime {
    /// Joins the line, and returns whether this pull is the first.
    fn join(&self, partition: &PartitionId) -> (Waiting<'_>, bool) {
        let bell = Arc::new(Notify::new());
        let mut known = self.0.lock();
        let first = known.iter().all(|(other, _)| other != partition);
        known.push((partition.clone(), Arc::clone(&bell)));
        (Waiting { all: self, bell }, first)
    }

    /// Called when something other than time has changed the partition.
    fn ring(&self, partition: &PartitionId) {
        self.0.lock().iter().filter(|(other, _)| other == partition).for_each(|(_, bell)| bell.notify_one());
    }
}

#[async_trait]
impl Quirk for OneWatchesTheTime {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deadline = Instant::now() + request.wait;
        let (waiting, watches) = self.join(partition);
        if watches {
            return client.right.pull(partition, request).await;
        }
        loop {
            let got = client.right.pull(partition, for_wait(&request, Duration::ZERO)).await?;
            if !got.is_empty() {
                return Ok(got);
            }
            tokio::select! {
                biased;
                () = waiting.bell.notified() => {}
                () = tokio::time::sleep_until(deadline.into()) => return Ok(got),
                () = request.stop.cancelled() => return Ok(got),
                () = client.closed.cancelled() => return Ok(got),
            }
        }
    }

    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let answers = client.right.push(partition, messages).await;
        self.ring(partition);
        answers
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        for Settlement { lease, action, .. } in settlements {
            self.ring(if let Action::Move { to, .. } = action { to } else { &lease.partition });
        }
        answers
    }

    async fn set_paused(&self, client: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
        client.right.set_paused(partition, paused).await?;
        self.ring(partition);
        Ok(())
    }
}

/// The number of calls under way.
#[derive(Debug, Default)]
struct InitStartsOver(Kept<usize>);

#[async_trait]
impl Quirk for InitStartsOver {
    async fn before_init(&self, client: &Client) {
        *self.0.lock() += 1;
        tokio::time::sleep(BETWEEN).await;
        let beside_another = {
            let mut under_way = self.0.lock();
            *under_way -= 1;
            *under_way > 0
        };
        if !beside_another {
            return;
        }
        // Some time later, when the other client is already at work.
        tokio::time::sleep(BETWEEN * 10).await;
        for partition in client.right.partitions(Page::of(MAX_PAGE)).await.unwrap_or_default() {
            // A partition that does not exist need not be emptied.
            let _ = client.right.purge(&partition, MAX_PAGE).await;
        }
    }
}
