//! Faults of pushing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyqueue::adapter::{
    Action, InspectQueueStorage as _, Lease, PullQueueStorage as _, PullRequest, PushQueueStorage as _,
    RawDelivery, async_trait,
};
use anyqueue::{MessageData, MessageId, MessageState, PartitionId, PushOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Pulled, Pushed, Quirk, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::EmptyHeaderDropped, &[Clause::ContentIntact], || Arc::new(Headers(without_empty))),
    plain(Fault::HeaderTrimmed, &[Clause::ContentIntact], || Arc::new(Headers(trimmed))),
    subtle(Fault::SecondChunkFirst, &[Clause::Order], || Arc::new(Reordered(second_chunk_first))),
    subtle(Fault::BatchSortedById, &[Clause::Order], || Arc::new(Reordered(by_id))),
    subtle(Fault::DuplicateEndsBatch, &[Clause::Stored, Clause::PushResults], || {
        Arc::new(DuplicateEndsBatch)
    }),
    subtle(Fault::DuplicateNamesItself, &[Clause::PushResults, Clause::Deduplication], || {
        Arc::new(DuplicateNamesItself)
    }),
    subtle(Fault::RepeatRevivesLeased, &[Clause::Exclusive], || Arc::new(RepeatRevivesLeased::default())),
    subtle(Fault::RepeatRestartsDelay, &[Clause::Delays], || Arc::new(RepeatRestartsDelay)),
];

type HeaderMap = std::collections::BTreeMap<String, String>;

/// Stores changed headers.
#[derive(Debug)]
struct Headers(fn(&mut HeaderMap));

fn without_empty(headers: &mut HeaderMap) {
    headers.retain(|_, value| !value.is_empty());
}

fn trimmed(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        *value = value.trim().to_owned();
    }
}

#[async_trait]
impl Quirk for Headers {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let changed = |message: &MessageData| {
            let mut headers = message.headers().clone();
            (self.0)(&mut headers);
            message.clone().with_headers(headers)
        };
        client.right.push(partition, &messages.iter().map(changed).collect::<Vec<_>>()).await
    }
}

/// Stores a batch in another order than its own.
#[derive(Debug)]
struct Reordered(fn(&mut [MessageData]));

fn second_chunk_first(batch: &mut [MessageData]) {
    const CHUNK: usize = 128;
    let second = batch.len().min(2 * CHUNK);
    if let Some(chunks) = batch.get_mut(..second).filter(|chunks| chunks.len() > CHUNK) {
        chunks.rotate_left(CHUNK);
    }
}

fn by_id(batch: &mut [MessageData]) {
    batch.sort_by_key(MessageData::id);
}

#[async_trait]
impl Quirk for Reordered {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let ids: HashSet<_> = messages.iter().map(MessageData::id).collect();
        if ids.len() < messages.len() {
            return client.right.push(partition, messages).await;
        }
        let mut reordered = messages.to_vec();
        (self.0)(&mut reordered);
        let answers = client.right.push(partition, &reordered).await;
        let mut by_id: HashMap<_, _> = reordered.iter().map(MessageData::id).zip(answers).collect();
        messages.iter().filter_map(|message| by_id.remove(&message.id())).collect()
    }
}

#[derive(Debug)]
struct DuplicateEndsBatch;

#[async_trait]
impl Quirk for DuplicateEndsBatch {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let mut answers = Vec::with_capacity(messages.len());
        let mut rest = messages.iter();
        for message in rest.by_ref() {
            let answer = client.push_one(partition, message.clone()).await;
            let duplicate = matches!(answer, Ok(PushOutcome::Duplicate(_)));
            answers.push(answer);
            if duplicate {
                break;
            }
        }
        answers.extend(rest.map(|message| Ok(PushOutcome::Stored(message.id()))));
        answers
    }
}

#[derive(Debug)]
struct DuplicateNamesItself;

#[async_trait]
impl Quirk for DuplicateNamesItself {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let answers = client.right.push(partition, messages).await;
        let own = |(answer, message): (_, &MessageData)| match answer {
            Ok(PushOutcome::Duplicate(_)) => Ok(PushOutcome::Duplicate(Some(message.id()))),
            other => other,
        };
        answers.into_iter().zip(messages).map(own).collect()
    }
}

#[derive(Debug, Default)]
struct RepeatRevivesLeased {
    leases: Kept<HashMap<MessageId, Lease>>,
}

#[async_trait]
impl Quirk for RepeatRevivesLeased {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let answers = client.right.push(partition, messages).await;
        for message in messages {
            let lease = self.leases.lock().get(&message.id()).cloned();
            if let Some(lease) = lease.filter(|lease| lease.partition == *partition) {
                let _lost_or_settled = client.settle_one(lease, Action::Retry).await;
            }
        }
        answers
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        let lease = |delivery: &RawDelivery| (delivery.lease.id, delivery.lease.clone());
        self.leases.lock().extend(deliveries.iter().map(lease));
        Ok(deliveries)
    }
}

#[derive(Debug)]
struct RepeatRestartsDelay;

#[async_trait]
impl Quirk for RepeatRestartsDelay {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let mut answers = Vec::with_capacity(messages.len());
        for message in messages {
            let answer = client.push_one(partition, message.clone()).await;
            let repeated = matches!(answer, Ok(PushOutcome::Duplicate(Some(id))) if id == message.id());
            let there = if repeated { client.find(partition, message.id()).await } else { None };
            if there
                .is_some_and(|there| there.state == MessageState::Delayed && there.delivery_count == Some(0))
            {
                client.right.delete(partition, &[message.id()]).await;
                let _stored = client.push_one(partition, message.clone()).await;
            }
            answers.push(answer);
        }
        answers
    }
}
