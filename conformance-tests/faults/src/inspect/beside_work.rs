//! Faults of operators' calls that show only while producers and consumers work.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, InspectQueueStorage as _, Lease, PullQueueStorage as _, PullRequest, PushQueueStorage as _,
    Settlement, async_trait,
};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, MAX_PAGE, MessageData, MessageId, MessageState, Page,
    PartitionId, Result, SettleOutcome,
};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Pulled, Pushed, Quirk, Settled, by, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::PurgeCountsFirst, &[Clause::Deletion], || Arc::new(PurgeCountsFirst)),
    subtle(Fault::PurgesCountTogether, &[Clause::Deletion], || Arc::new(PurgesCountTogether::default())),
    plain(Fault::PurgeUntilEmpty, &[Clause::Recovery], || Arc::new(PurgeUntilEmpty)),
    subtle(Fault::MoveLostBesidePush, &[Clause::DeadLetters], || Arc::new(MoveLostBesidePush::default())),
    subtle(Fault::DeleteTakesClaimed, &[Clause::Deletion], || Arc::new(TakesClaimed::default())),
    subtle(Fault::CancelTakesClaimed, &[Clause::Deletion], || {
        Arc::new(TakesClaimed { cancels: true, ..Default::default() })
    }),
    plain(Fault::CountsStale, &[Clause::Inspection], || Arc::new(CountsStale::default())),
    subtle(Fault::BrowseByNumber, &[Clause::Inspection], || Arc::new(BrowseByNumber::default())),
    plain(Fault::BrowseLocksOut, &[Clause::Inspection], || Arc::new(BrowseLocksOut::default())),
    subtle(Fault::ListByNumber, &[Clause::Inspection], || Arc::new(ListByNumber::default())),
    subtle(Fault::PauseMissesBusy, &[Clause::Pause], || Arc::new(PauseMissesBusy::default())),
];

/// The time between looking and acting, in which others go on.
const BETWEEN: Duration = Duration::from_millis(20);

async fn waiting(client: &Client, partition: &PartitionId) -> Result<usize> {
    let page = client.right.browse(partition, Page::of(MAX_PAGE)).await?;
    Ok(page.iter().filter(|browsed| browsed.state != MessageState::Leased).count())
}

#[derive(Debug)]
struct PurgeCountsFirst;

#[async_trait]
impl Quirk for PurgeCountsFirst {
    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        let waiting = waiting(client, partition).await?.min(limit);
        if waiting > 0 {
            tokio::time::sleep(BETWEEN).await;
        }
        client.right.purge(partition, limit).await?;
        Ok(waiting)
    }
}

/// The number of messages that purges have taken from each partition so far. Each purge reports by how much
/// it grew meanwhile.
#[derive(Debug, Default)]
struct PurgesCountTogether {
    taken: Kept<HashMap<PartitionId, usize>>,
}

impl PurgesCountTogether {
    fn add(&self, partition: &PartitionId, purged: usize) -> usize {
        let mut taken = self.taken.lock();
        let taken = taken.entry(partition.clone()).or_default();
        *taken += purged;
        *taken
    }
}

#[async_trait]
impl Quirk for PurgesCountTogether {
    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        let before = self.add(partition, 0);
        let purged = client.right.purge(partition, limit).await?;
        self.add(partition, purged);
        if purged > 0 {
            tokio::time::sleep(BETWEEN).await;
        }
        Ok((self.add(partition, 0) - before).min(limit))
    }
}

#[derive(Debug)]
struct PurgeUntilEmpty;

#[async_trait]
impl Quirk for PurgeUntilEmpty {
    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        // One look that finds nothing may only mean that the pusher was held up.
        const EMPTY_LOOKS: u32 = 10;
        let (mut purged, mut empty) = (0, 0);
        while purged < limit && empty < EMPTY_LOOKS {
            let more = client.right.purge(partition, limit - purged).await?;
            purged += more;
            empty = if more == 0 { empty + 1 } else { 0 };
            tokio::time::sleep(10 * BETWEEN).await;
        }
        Ok(purged)
    }
}

#[derive(Debug, Default)]
struct MoveLostBesidePush {
    pushing: Kept<HashMap<String, usize>>,
}

#[async_trait]
impl Quirk for MoveLostBesidePush {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        *self.pushing.lock().entry(partition.name().to_owned()).or_default() += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
        let answers = client.right.push(partition, messages).await;
        *self.pushing.lock().entry(partition.name().to_owned()).or_default() -= 1;
        answers
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let lost = |settlement: &Settlement| match &settlement.action {
            Action::Move { to, .. } if self.pushing.lock().get(to.name()).is_some_and(|count| *count > 0) => {
                by(settlement, Action::Remove)
            }
            _ => settlement.clone(),
        };
        client.right.settle(&settlements.iter().map(lost).collect::<Vec<_>>()).await
    }
}

/// A deletion (or cancellation) in two steps: look who holds the message, then delete it.
#[derive(Debug, Default)]
struct TakesClaimed {
    cancels: bool,
    owners: Kept<HashMap<MessageId, Lease>>,
}

impl TakesClaimed {
    /// Takes the messages that nobody held at first, and that somebody claimed meanwhile.
    async fn take(&self, client: &Client, partition: &PartitionId, ids: &[MessageId]) -> HashSet<MessageId> {
        let mut free = Vec::new();
        for id in ids {
            let found = client.find(partition, *id).await;
            free.extend(found.filter(|found| found.state != MessageState::Leased).map(|_| *id));
        }
        if !free.is_empty() {
            tokio::time::sleep(Duration::from_millis(6)).await;
        }
        let mut taken = HashSet::new();
        for id in free {
            let lease = self.owners.lock().get(&id).cloned();
            if let Some(lease) = lease.filter(|lease| lease.partition == *partition)
                && client.settle_one(lease, Action::Remove).await.is_ok_and(|it| it == SettleOutcome::Settled)
            {
                taken.insert(id);
            }
        }
        taken
    }
}

#[async_trait]
impl Quirk for TakesClaimed {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        let leases = deliveries.iter().map(|delivery| (delivery.lease.id, delivery.lease.clone()));
        self.owners.lock().extend(leases);
        Ok(deliveries)
    }

    async fn delete(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<DeleteOutcome>> {
        if self.cancels {
            return client.right.delete(partition, ids).await;
        }
        let taken = self.take(client, partition, ids).await;
        let rest = client.right.delete(partition, ids).await;
        let answer = |(id, rest)| if taken.contains(id) { Ok(DeleteOutcome::Deleted) } else { rest };
        ids.iter().zip(rest).map(answer).collect()
    }

    async fn cancel(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<CancelOutcome>> {
        if !self.cancels {
            return client.right.request_cancel(partition, ids).await;
        }
        let taken = self.take(client, partition, ids).await;
        let rest = client.right.request_cancel(partition, ids).await;
        let answer = |(id, rest)| if taken.contains(id) { Ok(CancelOutcome::Removed) } else { rest };
        ids.iter().zip(rest).map(answer).collect()
    }
}

#[derive(Debug, Default)]
struct CountsStale {
    counted: Kept<HashMap<PartitionId, (Instant, Counts)>>,
}

#[async_trait]
impl Quirk for CountsStale {
    async fn counts(&self, client: &Client, partition: &PartitionId) -> Result<Counts> {
        let known = self.counted.lock().get(partition).copied();
        let known = known
            .filter(|(at, counts)| at.elapsed() < 100 * BETWEEN && counts.ready.unwrap_or_default() > BUSY);
        if let Some((_, counts)) = known {
            return Ok(counts);
        }
        let counts = client.right.counts(partition).await?;
        self.counted.lock().insert(partition.clone(), (Instant::now(), counts));
        Ok(counts)
    }
}

/// From this many messages on, counting takes a short cut.
const BUSY: u64 = 20;

/// Continues a page after a message by the number of messages shown up to it.
#[derive(Debug, Default)]
struct BrowseByNumber {
    shown: Kept<HashMap<MessageId, usize>>,
}

#[async_trait]
impl Quirk for BrowseByNumber {
    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let before = after.and_then(|after| self.shown.lock().get(&after).copied());
        if after.is_some() && before.is_none() {
            return client.right.browse(partition, Page::of(limit).after(after)).await;
        }
        let before = before.unwrap_or_default();
        let all = client.right.browse(partition, Page::of(MAX_PAGE)).await?;
        let page: Vec<_> = all.into_iter().skip(before).take(limit).collect();
        if let Some(last) = page.last() {
            self.shown.lock().insert(last.message.id(), before + page.len());
        }
        Ok(page)
    }
}

/// The partitions that somebody is browsing.
#[derive(Debug, Default)]
struct BrowseLocksOut {
    locked: Kept<HashSet<PartitionId>>,
}

#[async_trait]
impl Quirk for BrowseLocksOut {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        if self.locked.lock().contains(partition) {
            tokio::select! {
                () = tokio::time::sleep(request.wait) => {}
                () = request.stop.cancelled() => {}
                () = client.closed.cancelled() => {}
            }
            return Ok(Vec::new());
        }
        client.right.pull(partition, request).await
    }

    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let page = client.right.browse(partition, Page::of(limit).after(after)).await?;
        let goes_on = page.len() == limit && limit > 1;
        let mut locked = self.locked.lock();
        if goes_on {
            locked.insert(partition.clone());
        } else {
            locked.remove(partition);
        }
        Ok(page)
    }
}

#[derive(Debug, Default)]
struct ListByNumber {
    shown: Kept<HashMap<PartitionId, usize>>,
}

#[async_trait]
impl Quirk for ListByNumber {
    async fn partitions(&self, client: &Client, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        let before = after.and_then(|after| self.shown.lock().get(after).copied());
        if after.is_some() && before.is_none() {
            return client.right.partitions(Page::of(limit).after(after.cloned())).await;
        }
        let before = before.unwrap_or_default();
        let all = client.right.partitions(Page::of(MAX_PAGE)).await?;
        let page: Vec<_> = all.into_iter().skip(before).take(limit).collect();
        if let Some(last) = page.last() {
            self.shown.lock().insert(last.clone(), before + page.len());
        }
        Ok(page)
    }
}

/// The backend beneath is never paused; this fault itself holds clients back.
#[derive(Debug, Default)]
struct PauseMissesBusy {
    paused: Kept<HashSet<PartitionId>>,
    /// Clients that found something at their last pull; they are served until they find nothing.
    busy: Kept<HashSet<(usize, PartitionId)>>,
}

#[async_trait]
impl Quirk for PauseMissesBusy {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let key = (client.number, partition.clone());
        let is_busy = self.busy.lock().contains(&key);
        let deadline = Instant::now() + request.wait;
        while !is_busy && self.paused.lock().contains(partition) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || request.stop.is_cancelled() || client.closed.is_cancelled() {
                return Ok(Vec::new());
            }
            tokio::time::sleep(left.min(Duration::from_millis(5))).await;
        }
        let mut rest = request;
        rest.wait = deadline.saturating_duration_since(Instant::now());
        let deliveries = client.right.pull(partition, rest).await?;
        let mut busy = self.busy.lock();
        if deliveries.is_empty() {
            busy.remove(&key);
        } else {
            busy.insert(key);
        }
        Ok(deliveries)
    }

    async fn set_paused(&self, _client: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
        let mut all = self.paused.lock();
        if paused {
            all.insert(partition.clone());
        } else {
            all.remove(partition);
        }
        Ok(())
    }

    async fn is_paused(&self, _client: &Client, partition: &PartitionId) -> Result<bool> {
        Ok(self.paused.lock().contains(partition))
    }
}
