//! Faults of pushes that change the waiting message with their key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage as _, PushQueueStorage as _, async_trait};
use anyqueue::{
    DeleteOutcome, Headers, MessageData, MessageId, OnDuplicate, PartitionId, PushOutcome, Result,
};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Pushed, Quirk, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::ReplaceIgnored, BREAKS, || Arc::new(Instead(ignored))),
    plain(Fault::ReplaceKeepsHeaders, BREAKS, || Arc::new(Instead(without_headers))),
    subtle(Fault::ReplaceTakesOptions, BREAKS, || Arc::new(Anew::with_own_options())),
    plain(Fault::ReplaceToTheEnd, BREAKS, || Arc::new(Anew::with_old_options())),
    plain(Fault::ReplaceBesideHeld, BREAKS, || Arc::new(Instead(beside_held))),
    subtle(Fault::ReplaceOfItself, BREAKS, || Arc::new(OfItself)),
    subtle(Fault::ReplaceLate, BREAKS, || Arc::<Late>::default()),
    plain(Fault::EarlierIgnored, BREAKS, || Arc::new(Instead(earlier_ignored))),
    subtle(Fault::EarlierKeepsDue, BREAKS, || Arc::new(Instead(earlier_keeps_due))),
    plain(Fault::EarlierAlways, BREAKS, || Arc::new(Instead(earlier_always))),
    plain(Fault::BehindIgnored, BREAKS, || Arc::new(Instead(behind_ignored))),
    plain(Fault::BehindWithoutKey, BREAKS, || Arc::new(Instead(behind_without_key))),
];

/// Empty: these faults were written together with the cases that find them, not from the contract alone.
const BREAKS: &[Clause] = &[];

/// Makes another push than the one that was requested.
#[derive(Debug)]
struct Instead(fn(&MessageData) -> MessageData);

fn asked(message: &MessageData) -> OnDuplicate {
    message.options().on_duplicate
}

fn as_if(message: &MessageData, from: OnDuplicate, to: OnDuplicate) -> MessageData {
    if asked(message) == from { message.clone().with_on_duplicate(to) } else { message.clone() }
}

fn ignored(message: &MessageData) -> MessageData {
    as_if(message, OnDuplicate::Replace, OnDuplicate::Keep)
}

fn without_headers(message: &MessageData) -> MessageData {
    match asked(message) {
        OnDuplicate::Replace => message.clone().with_headers(Headers::new()),
        _ => message.clone(),
    }
}

fn beside_held(message: &MessageData) -> MessageData {
    as_if(message, OnDuplicate::Replace, OnDuplicate::Behind)
}

fn earlier_ignored(message: &MessageData) -> MessageData {
    as_if(message, OnDuplicate::Earlier, OnDuplicate::Keep)
}

fn earlier_keeps_due(message: &MessageData) -> MessageData {
    as_if(message, OnDuplicate::Earlier, OnDuplicate::Replace)
}

fn earlier_always(message: &MessageData) -> MessageData {
    as_if(message, OnDuplicate::Earlier, OnDuplicate::Replace)
}

fn behind_ignored(message: &MessageData) -> MessageData {
    as_if(message, OnDuplicate::Behind, OnDuplicate::Keep)
}

fn behind_without_key(message: &MessageData) -> MessageData {
    if asked(message) != OnDuplicate::Behind {
        return message.clone();
    }
    let mut options = message.options().clone();
    (options.dedup_key, options.on_duplicate) = (None, OnDuplicate::Keep);
    message.clone().with_options(options)
}

#[async_trait]
impl Quirk for Instead {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        client.right.push(partition, &messages.iter().map(self.0).collect::<Vec<_>>()).await
    }
}

/// Deletes the waiting message and pushes it anew under its id.
#[derive(Debug)]
struct Anew {
    own_options: bool,
    known: Kept<HashMap<(PartitionId, Arc<str>), MessageData>>,
}

impl Anew {
    fn with_own_options() -> Self {
        Self { own_options: true, known: Kept::default() }
    }

    fn with_old_options() -> Self {
        Self { own_options: false, known: Kept::default() }
    }

    async fn push_next(
        &self,
        client: &Client,
        partition: &PartitionId,
        message: &MessageData,
    ) -> Result<PushOutcome> {
        let Some(key) = message.options().dedup_key.clone() else {
            return client.push_one(partition, message.clone()).await;
        };
        let place = (partition.clone(), key);
        let first = self.known.lock().get(&place).cloned();
        if let Some(first) = first.filter(|_| asked(message) == OnDuplicate::Replace) {
            let deleted = client.right.delete(partition, &[first.id()]).await;
            if matches!(deleted.as_slice(), [Ok(DeleteOutcome::Deleted)]) {
                client.push_one(partition, self.under(first.id(), message, &first)).await?;
                return Ok(PushOutcome::Replaced(first.id()));
            }
        }
        let answer = client.push_one(partition, message.clone()).await;
        if matches!(answer, Ok(PushOutcome::Stored(_))) {
            self.known.lock().insert(place, message.clone());
        }
        answer
    }

    fn under(&self, id: MessageId, message: &MessageData, first: &MessageData) -> MessageData {
        let options = if self.own_options { message.options() } else { first.options() };
        let mut options = options.clone();
        (options.delay, options.on_duplicate) = (None, OnDuplicate::Keep);
        let mut made = MessageData::with_id(id, message.payload_bytes())
            .with_headers(message.headers().clone())
            .with_options(options);
        if let Some(task) = message.task_id() {
            made = made.with_task_id(task);
        }
        if let Some(session) = message.session_id() {
            made = made.with_session_id(session);
        }
        made
    }
}

#[async_trait]
impl Quirk for Anew {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let mut answers = Vec::new();
        for message in messages {
            answers.push(self.push_next(client, partition, message).await);
        }
        answers
    }
}

#[derive(Debug)]
struct OfItself;

#[async_trait]
impl Quirk for OfItself {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let answers = client.right.push(partition, messages).await;
        let told = |(answer, message): (Result<PushOutcome>, &MessageData)| match answer {
            Ok(PushOutcome::Duplicate(Some(id)))
                if id == message.id() && asked(message) != OnDuplicate::Keep =>
            {
                Ok(PushOutcome::Replaced(id))
            }
            other => other,
        };
        answers.into_iter().zip(messages).map(told).collect()
    }
}

/// Replaces a moment later, when a later push may already have replaced the content.
#[derive(Debug, Default)]
struct Late(Kept<u64>);

impl Late {
    /// Returns a pause that is shorter than the one before, ten times in a row.
    fn pause(&self) -> Duration {
        let mut count = self.0.lock();
        *count += 1;
        Duration::from_millis(20 - 2 * (*count % 10))
    }
}

#[async_trait]
impl Quirk for Late {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let mut answers = Vec::new();
        for message in messages {
            let kept = as_if(message, OnDuplicate::Replace, OnDuplicate::Keep);
            let answer = client.push_one(partition, kept).await;
            let Ok(PushOutcome::Duplicate(Some(first))) = answer else {
                answers.push(answer);
                continue;
            };
            if asked(message) != OnDuplicate::Replace || first == message.id() {
                answers.push(answer);
                continue;
            }
            answers.push(Ok(PushOutcome::Replaced(first)));
            let (right, partition, message) = (client.right.clone(), partition.clone(), message.clone());
            let pause = self.pause();
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                right.push(&partition, &[message]).await;
            });
        }
        answers
    }
}
