//! Pushing messages.

use std::collections::HashMap;

use anyqueue::adapter::{Envelope, PushQueueStorage, async_trait};
use anyqueue::{MessageData, MessageId, OnDuplicate, Operation, PartitionId, PushOutcome, Result};
use redis::Value;

use crate::RedisQueue;
use crate::config::Config;
use crate::error::{NAME, unexpected_reply};
use crate::limits::BATCH;
use crate::rows::{Row, Rows, check};
use crate::{reply, script};

/// A batch to store. It has an error for each message, or its number in the call, from 1.
struct Batch {
    verdicts: Vec<Result<usize>>,
    /// The numbers of the messages in the call. A repeated id is not sent again, unless the result could
    /// depend on what the first one did.
    ids: HashMap<MessageId, usize>,
    rows: Rows,
}

#[async_trait]
impl PushQueueStorage for RedisQueue {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        Envelope::max_encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.push_all(partition, messages).await
    }
}

impl RedisQueue {
    async fn push_all(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        // There is usually only one batch. A script could not process many more at once.
        let mut batches = messages.chunks(BATCH);
        let mut outcomes = self.push_batch(partition, batches.next().unwrap_or_default()).await;
        for batch in batches {
            outcomes.append(&mut self.push_batch(partition, batch).await);
        }
        outcomes
    }

    async fn push_batch(
        &self,
        partition: &PartitionId,
        messages: &[MessageData],
    ) -> Vec<Result<PushOutcome>> {
        let at_us = self.inner.clock.stamps_us(messages.len());
        let batch = Batch::prepare(messages, partition, &self.inner.config, at_us);
        let stored = if batch.rows.is_empty() && !self.is_closed() {
            Ok(HashMap::new())
        } else {
            self.store(partition, &batch.rows, at_us).await
        };
        // An uncertain push can be repeated, because stored messages are recognised by their ids.
        let stored =
            stored.map_err(|error| error.repeatable().with_backend(NAME).with_operation(Operation::Push));
        batch.answers(messages, &stored)
    }

    /// Stores messages that have this time. Returns the outcomes of those that were not stored, by their
    /// numbers.
    pub(crate) async fn store(
        &self,
        partition: &PartitionId,
        rows: &Rows,
        at_us: u64,
    ) -> Result<HashMap<usize, PushOutcome>> {
        self.register_partition(partition).await?;
        if rows.is_urgent() {
            self.register_amended(partition).await?;
        }
        let (args, bytes) = rows.size();
        let script = if rows.is_compacting() { &script::PUSH_OVER } else { &script::PUSH };
        let mut call = self.new_call(script, partition, args, bytes);
        rows.add_to(call.int(at_us), self.inner.caller.as_bytes());
        let answer = self.run(&call, Operation::Push).await;
        self.inner.waiters.hint(partition, rows.hint());
        let [now, present] = reply::exactly(answer?)?;
        self.inner.clock.set(reply::count(&now)?);
        read_present(present)
    }
}

/// Reads the numbers of messages that were not stored, each with the id that was in the way. The number is
/// negative if the message replaced the other one.
fn read_present(present: Value) -> Result<HashMap<usize, PushOutcome>> {
    let mut present = reply::list(present)?.into_iter();
    let mut found = HashMap::new();
    while let (Some(number), Some(id)) = (present.next(), present.next()) {
        let number = reply::int(&number)?;
        let id = reply::bytes(id)?.try_into().map_err(|_| unexpected_reply())?;
        let id = MessageId::from_bytes(id);
        let outcome = if number < 0 { PushOutcome::Replaced(id) } else { PushOutcome::Duplicate(Some(id)) };
        found.insert(usize::try_from(number.unsigned_abs()).map_err(|_| unexpected_reply())?, outcome);
    }
    Ok(found)
}

impl Batch {
    /// Encodes the messages, and checks them against the limits.
    fn prepare(messages: &[MessageData], partition: &PartitionId, config: &Config, at_us: u64) -> Self {
        let is_compacting = |message: &MessageData| message.options().on_duplicate != OnDuplicate::Keep;
        let mut batch = Self {
            verdicts: Vec::with_capacity(messages.len()),
            ids: HashMap::with_capacity(messages.len()),
            rows: Rows::new(messages.len(), messages.iter().any(is_compacting)),
        };
        for message in messages {
            let verdict = batch.add(message, partition, config, at_us);
            batch.verdicts.push(verdict);
        }
        batch
    }

    fn add(
        &mut self,
        message: &MessageData,
        partition: &PartitionId,
        config: &Config,
        at_us: u64,
    ) -> Result<usize> {
        if let Some(known) = self.ids.get(&message.id()).filter(|_| !self.rows.is_compacting()) {
            return check(message, config).map(|_| *known);
        }
        self.rows.add(Row::encode(message, partition, config, at_us + self.rows.len() as u64)?);
        self.ids.insert(message.id(), self.rows.len());
        Ok(self.rows.len())
    }

    /// Returns one result per message.
    fn answers(
        self,
        messages: &[MessageData],
        present: &Result<HashMap<usize, PushOutcome>>,
    ) -> Vec<Result<PushOutcome>> {
        let mut last = 0;
        let answer = |(message, verdict): (&MessageData, Result<usize>)| {
            let number = verdict?;
            let is_repeated = number <= last; // the same message came earlier in this batch
            last = last.max(number);
            let present = present.as_ref().map_err(Clone::clone)?;
            Ok(match present.get(&number) {
                Some(outcome) => *outcome,
                None if is_repeated => PushOutcome::Duplicate(Some(message.id())),
                None => PushOutcome::Stored(message.id()),
            })
        };
        messages.iter().zip(self.verdicts).map(answer).collect()
    }
}
