//! Disabled messages that are not really disabled, or that lose something by it.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    AmendQueueStorage as _, InspectQueueStorage as _, PushQueueStorage as _, async_trait,
};
use anyqueue::{
    Amend, Browsed, CancelOutcome, Counts, DeleteOutcome, MAX_PAGE, MessageData, MessageId, MessageState,
    OnDuplicate, Page, PartitionId, PushOutcome, Result,
};
use anyqueue_conformance::Fault;

use super::change::{BREAKS, Instead, amend_one};
use crate::quirk::{Amended, Client, Entry, Pushed, Quirk, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::DisabledLate, BREAKS, || Arc::new(Late)),
    subtle(Fault::DisabledComesDue, BREAKS, || Arc::new(Instead(unless_delayed))),
    plain(Fault::DisabledBlocksGroup, BREAKS, || Arc::new(Instead(put_off_in_group))),
    subtle(Fault::DisabledStoredAnew, BREAKS, || Arc::new(StoredAnew)),
    plain(Fault::DisabledCountedReady, BREAKS, || Arc::new(CountedReady)),
    plain(Fault::DisabledBrowsedReady, BREAKS, || Arc::new(BrowsedReady)),
    plain(Fault::DisabledNotDeleted, BREAKS, || Arc::new(NotDeleted)),
    plain(Fault::DisabledNotCancelled, BREAKS, || Arc::new(NotCancelled)),
    plain(Fault::DisabledFreesKey, BREAKS, || Arc::new(FreesKey)),
    plain(Fault::PurgeLeavesDisabled, BREAKS, || Arc::new(LeftByPurges)),
    subtle(Fault::ReplaceEnables, BREAKS, || Arc::new(ReplaceEnables)),
];

async fn is_disabled(client: &Client, partition: &PartitionId, id: MessageId) -> bool {
    client.find(partition, id).await.is_some_and(|found| found.state == MessageState::Disabled)
}

/// Splits the ids into those of disabled messages and the others.
async fn parted(
    client: &Client,
    partition: &PartitionId,
    ids: &[MessageId],
) -> (Vec<MessageId>, Vec<MessageId>) {
    let (mut disabled, mut others) = (Vec::new(), Vec::new());
    for id in ids {
        if is_disabled(client, partition, *id).await { &mut disabled } else { &mut others }.push(*id);
    }
    (disabled, others)
}

fn unless_delayed(mut change: Amend, found: &Browsed) -> Amend {
    if change.disabled == Some(true) && found.state == MessageState::Delayed {
        change.disabled = None;
    }
    change
}

/// Practically never.
const LONG: Duration = Duration::from_hours(1000);

fn put_off_in_group(mut change: Amend, found: &Browsed) -> Amend {
    let grouped = found.message.options().group.is_some() && found.state == MessageState::Ready;
    match change.disabled {
        Some(true) if grouped => {
            change.disabled = None;
            change.due_in(LONG)
        }
        Some(false) if found.due_in.is_some_and(|due| due > LONG / 2) => change.now(),
        _ => change,
    }
}

/// Disables the message only after the call has returned.
#[derive(Debug)]
struct Late;

#[async_trait]
impl Quirk for Late {
    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        if change.disabled != Some(true) {
            return client.right.amend(partition, ids, change).await;
        }
        let (right, place, about) = (client.right.clone(), partition.clone(), ids.to_vec());
        let late = change.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(30)).await;
            right.amend(&place, &about, &late).await;
        });
        client.right.amend(partition, ids, &Amend::new()).await
    }
}

#[derive(Debug)]
struct StoredAnew;

#[async_trait]
impl Quirk for StoredAnew {
    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let found = client.find(partition, *id).await.filter(|found| found.state == MessageState::Ready);
            if let Some(found) = found.filter(|_| change.disabled == Some(true)) {
                let deleted = client.right.delete(partition, &[*id]).await;
                if let [Ok(DeleteOutcome::Deleted)] = deleted.as_slice() {
                    let _stored = client.push_one(partition, found.message).await;
                }
            }
            answers.push(amend_one(client, partition, *id, change).await);
        }
        answers
    }
}

#[derive(Debug)]
struct CountedReady;

#[async_trait]
impl Quirk for CountedReady {
    async fn counts(&self, client: &Client, partition: &PartitionId) -> Result<Counts> {
        let mut counts = client.right.counts(partition).await?;
        let disabled = counts.disabled.replace(0).unwrap_or_default();
        counts.ready = counts.ready.map(|ready| ready + disabled);
        Ok(counts)
    }
}

#[derive(Debug)]
struct BrowsedReady;

#[async_trait]
impl Quirk for BrowsedReady {
    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let mut page = client.right.browse(partition, Page::of(limit).after(after)).await?;
        for browsed in page.iter_mut().filter(|browsed| browsed.state == MessageState::Disabled) {
            browsed.state =
                if browsed.due_in.is_some() { MessageState::Delayed } else { MessageState::Ready };
        }
        Ok(page)
    }
}

#[derive(Debug)]
struct NotDeleted;

#[async_trait]
impl Quirk for NotDeleted {
    async fn delete(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<DeleteOutcome>> {
        let (disabled, _) = parted(client, partition, ids).await;
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            if disabled.contains(id) {
                answers.push(Ok(DeleteOutcome::NotFound));
            } else {
                answers.extend(client.right.delete(partition, &[*id]).await);
            }
        }
        answers
    }
}

#[derive(Debug)]
struct NotCancelled;

#[async_trait]
impl Quirk for NotCancelled {
    async fn cancel(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<CancelOutcome>> {
        let (disabled, _) = parted(client, partition, ids).await;
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            if disabled.contains(id) {
                answers.push(Ok(CancelOutcome::Requested));
            } else {
                answers.extend(client.right.request_cancel(partition, &[*id]).await);
            }
        }
        answers
    }
}

#[derive(Debug)]
struct FreesKey;

#[async_trait]
impl Quirk for FreesKey {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let mut answers = Vec::with_capacity(messages.len());
        for message in messages {
            let mut answer = client.push_one(partition, message.clone()).await;
            if let Ok(PushOutcome::Duplicate(Some(first))) = answer
                && first != message.id()
                && is_disabled(client, partition, first).await
            {
                let mut options = message.options().clone();
                (options.dedup_key, options.on_duplicate) = (None, OnDuplicate::Keep);
                answer = client.push_one(partition, message.clone().with_options(options)).await;
            }
            answers.push(answer);
        }
        answers
    }
}

#[derive(Debug)]
struct LeftByPurges;

#[async_trait]
impl Quirk for LeftByPurges {
    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        let all = client.right.browse(partition, Page::of(MAX_PAGE)).await?;
        let all: Vec<_> = all.iter().map(|browsed| browsed.message.id()).collect();
        let (disabled, others) = parted(client, partition, &all).await;
        if disabled.is_empty() {
            return client.right.purge(partition, limit).await;
        }
        let others = others.get(..limit).unwrap_or(&others);
        let deleted = client.right.delete(partition, others).await;
        Ok(deleted.iter().filter(|answer| matches!(answer, Ok(DeleteOutcome::Deleted))).count())
    }
}

#[derive(Debug)]
struct ReplaceEnables;

#[async_trait]
impl Quirk for ReplaceEnables {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let answers = client.right.push(partition, messages).await;
        for answer in &answers {
            if let Ok(PushOutcome::Replaced(id)) = answer {
                client.right.amend(partition, &[*id], &Amend::new().enable()).await;
            }
        }
        answers
    }
}
