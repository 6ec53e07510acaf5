//! Faults of inspection.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyqueue::adapter::{
    Action, InspectQueueStorage as _, PullQueueStorage as _, PushQueueStorage as _, Settlement, async_trait,
};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, Headers, MAX_PAGE, MessageData, MessageId, MessageState,
    Page, PartitionId, Result, SettleOutcome,
};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Pushed, Quirk, Settled, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::CountsForgetBehind, &[Clause::Inspection], || Arc::new(CountsForgetBehind)),
    subtle(Fault::DeadCountForgetsLeased, &[Clause::Inspection], || Arc::new(DeadCountForgetsLeased)),
    subtle(Fault::BrowseHidesPostponed, &[Clause::Inspection], || Arc::new(BrowseHidesPostponed::default())),
    subtle(
        Fault::BrowseShowsOldHeaders,
        &[Clause::Inspection],
        || Arc::new(BrowseShowsOldHeaders::default()),
    ),
    subtle(Fault::BrowseAfterGone, &[Clause::Inspection], || Arc::new(BrowseAfterGone)),
    plain(Fault::ListOnlyReady, &[Clause::Inspection], || Arc::new(ListOnlyReady)),
    subtle(Fault::TwinDeleted, &[Clause::Deletion], || Arc::new(TwinDeleted)),
    plain(Fault::DeleteMissesDelayed, &[Clause::Deletion], || Arc::new(DeleteMissesDelayed)),
    plain(Fault::CancelLeavesDelayed, &[Clause::Deletion], || Arc::new(CancelLeavesDelayed)),
    plain(Fault::PurgeLeavesDelayed, &[Clause::Deletion], || Arc::new(PurgeLeavesDelayed)),
    subtle(Fault::PurgeTakesDead, &[Clause::PartitionsApart, Clause::Deletion], || Arc::new(PurgeTakesDead)),
];

async fn browse(client: &Client, partition: &PartitionId) -> Vec<Browsed> {
    client.right.browse(partition, Page::of(MAX_PAGE)).await.unwrap_or_default()
}

async fn is_delayed(client: &Client, partition: &PartitionId, id: MessageId) -> bool {
    client.find(partition, id).await.is_some_and(|found| found.state == MessageState::Delayed)
}

/// Only one message of each group is counted as ready, and none while one is held.
#[derive(Debug)]
struct CountsForgetBehind;

#[async_trait]
impl Quirk for CountsForgetBehind {
    async fn counts(&self, client: &Client, partition: &PartitionId) -> Result<Counts> {
        let mut counts = client.right.counts(partition).await?;
        let all = browse(client, partition).await;
        let of = |state| all.iter().filter(move |browsed| browsed.state == state);
        let group = |browsed: &Browsed| browsed.message.options().group.clone();
        let mut led: HashSet<_> = of(MessageState::Leased).filter_map(group).collect();
        let behind =
            of(MessageState::Ready).filter_map(group).filter(|group| !led.insert(Arc::clone(group))).count();
        if !partition.is_dead_letters() {
            counts.ready = counts.ready.map(|ready| ready.saturating_sub(behind as u64));
        }
        Ok(counts)
    }
}

#[derive(Debug)]
struct DeadCountForgetsLeased;

#[async_trait]
impl Quirk for DeadCountForgetsLeased {
    async fn counts(&self, client: &Client, partition: &PartitionId) -> Result<Counts> {
        let mut counts = client.right.counts(partition).await?;
        let leased = client.right.counts(&partition.dead_letters()).await?.leased.unwrap_or_default();
        counts.dead = counts.dead.map(|dead| dead.saturating_sub(leased));
        Ok(counts)
    }
}

#[derive(Debug, Default)]
struct BrowseHidesPostponed {
    postponed: Kept<HashSet<MessageId>>,
}

#[async_trait]
impl Quirk for BrowseHidesPostponed {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        for (settlement, answer) in settlements.iter().zip(&answers) {
            if matches!((&settlement.action, answer), (Action::Postpone { .. }, Ok(SettleOutcome::Settled))) {
                self.postponed.lock().insert(settlement.lease.id);
            }
        }
        answers
    }

    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { mut after, limit } = page;
        loop {
            let mut page = client.right.browse(partition, Page::of(limit).after(after)).await?;
            let last = page.last().map(|browsed| browsed.message.id());
            page.retain(|it| {
                it.state != MessageState::Delayed || !self.postponed.lock().contains(&it.message.id())
            });
            // An empty page would mean the end.
            if !page.is_empty() || last.is_none() {
                return Ok(page);
            }
            after = last;
        }
    }
}

#[derive(Debug, Default)]
struct BrowseShowsOldHeaders {
    pushed: Kept<HashMap<MessageId, Headers>>,
}

#[async_trait]
impl Quirk for BrowseShowsOldHeaders {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        self.pushed.lock().extend(messages.iter().map(|it| (it.id(), it.headers().clone())));
        client.right.push(partition, messages).await
    }

    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let mut page = client.right.browse(partition, Page::of(limit).after(after)).await?;
        for browsed in page.iter_mut().filter(|_| !partition.is_dead_letters()) {
            if let Some(headers) = self.pushed.lock().get(&browsed.message.id()) {
                browsed.message = browsed.message.clone().with_headers(headers.clone());
            }
        }
        Ok(page)
    }
}

#[derive(Debug)]
struct BrowseAfterGone;

#[async_trait]
impl Quirk for BrowseAfterGone {
    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        match after {
            Some(after) if client.find(partition, after).await.is_none() => Ok(Vec::new()),
            _ => client.right.browse(partition, Page::of(limit).after(after)).await,
        }
    }
}

#[derive(Debug)]
struct ListOnlyReady;

#[async_trait]
impl Quirk for ListOnlyReady {
    async fn partitions(&self, client: &Client, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        let mut ready = Vec::new();
        for partition in client.right.partitions(Page::of(MAX_PAGE).after(after.cloned())).await? {
            if ready.len() < limit && client.right.counts(&partition).await?.ready > Some(0) {
                ready.push(partition);
            }
        }
        Ok(ready)
    }
}

#[derive(Debug)]
struct TwinDeleted;

#[async_trait]
impl Quirk for TwinDeleted {
    async fn delete(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<DeleteOutcome>> {
        let mut answers = client.right.delete(partition, ids).await;
        let mut deleted = HashSet::new();
        for (id, answer) in ids.iter().zip(&mut answers) {
            match answer {
                Ok(DeleteOutcome::Deleted) => {
                    deleted.insert(id);
                }
                Ok(outcome) if deleted.contains(id) => *outcome = DeleteOutcome::Deleted,
                _ => {}
            }
        }
        answers
    }
}

#[derive(Debug)]
struct DeleteMissesDelayed;

#[async_trait]
impl Quirk for DeleteMissesDelayed {
    async fn delete(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<DeleteOutcome>> {
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            if is_delayed(client, partition, *id).await {
                answers.push(Ok(DeleteOutcome::NotFound));
            } else {
                answers.extend(client.right.delete(partition, &[*id]).await);
            }
        }
        answers
    }
}

#[derive(Debug)]
struct CancelLeavesDelayed;

#[async_trait]
impl Quirk for CancelLeavesDelayed {
    async fn cancel(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<CancelOutcome>> {
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            if is_delayed(client, partition, *id).await {
                answers.push(Ok(CancelOutcome::Requested));
            } else {
                answers.extend(client.right.request_cancel(partition, &[*id]).await);
            }
        }
        answers
    }
}

#[derive(Debug)]
struct PurgeLeavesDelayed;

#[async_trait]
impl Quirk for PurgeLeavesDelayed {
    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        let mut after = None;
        let mut purged = 0;
        while purged < limit {
            let page = client.right.browse(partition, Page::of(limit - purged).after(after)).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.message.id());
            let ready = page.iter().filter(|browsed| browsed.state == MessageState::Ready);
            let ids: Vec<_> = ready.map(|browsed| browsed.message.id()).collect();
            let answers = client.right.delete(partition, &ids).await;
            purged += answers.iter().filter(|it| matches!(it, Ok(DeleteOutcome::Deleted))).count();
        }
        Ok(purged)
    }
}

#[derive(Debug)]
struct PurgeTakesDead;

#[async_trait]
impl Quirk for PurgeTakesDead {
    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        if !partition.is_dead_letters() {
            client.right.purge(&partition.dead_letters(), limit).await?;
        }
        client.right.purge(partition, limit).await
    }
}
