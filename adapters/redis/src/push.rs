//! Pushing messages.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::{Envelope, Hint, PushQueueStorage, async_trait};
use anyqueue::{ErrorKind, MessageData, MessageId, Operation, PartitionId, PushOutcome, Result};
use redis::Value;

use crate::RedisQueue;
use crate::clock::millis;
use crate::config::Config;
use crate::error::{ERRORS, NAME, unexpected_reply};
use crate::limits::{BATCH, MAX_DELAY, PRIORITY_LEVELS};
use crate::record::{self, GROUPED, Record};
use crate::window::runs;
use crate::{reply, script};

/// Scripts treat larger records as large; a call with one has no common level.
const LARGE_BYTES: usize = 256 * 1024;
/// Scripts keep larger records apart; they are told whether a call has any.
const BULKY_BYTES: usize = 16 * 1024;
/// Added to a common level if there are any.
const BULKY_BIT: u8 = 16;
/// How much larger than its first form a copy of a message can become at most, because its numbers grow.
const GROWTH: u64 = 64;

/// A batch to store: for each message an error, or its number in the call, from 1.
struct Batch {
    verdicts: Vec<Result<usize>>,
    /// The numbers of the messages in the call.
    ids: HashMap<MessageId, usize>,
    rows: Vec<Row>,
}

struct Row {
    id: MessageId,
    record: Record,
    delay_us: u64,
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
        // Usually one batch. A script could not take many more at once.
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
        let at_us = self.inner.clock.now_us();
        let batch = Batch::prepare(messages, partition, &self.inner.config, at_us);
        let stored = if batch.rows.is_empty() && !self.is_closed() {
            Ok(HashMap::new())
        } else {
            self.store(partition, &batch, at_us).await
        };
        self.inner.waiters.hint(partition, batch.hint());
        // An uncertain push can be repeated: what was stored is recognised by its id.
        let stored =
            stored.map_err(|error| error.repeatable().with_backend(NAME).with_operation(Operation::Push));
        batch.answers(messages, &stored)
    }

    /// Returns the ids that kept messages from being stored, by the messages' numbers.
    async fn store(
        &self,
        partition: &PartitionId,
        batch: &Batch,
        at_us: u64,
    ) -> Result<HashMap<usize, MessageId>> {
        self.register_partition(partition).await?;
        let bytes = batch.rows.iter().map(|row| row.record.bytes.len() + 32).sum();
        let mut call = self.new_call(&script::PUSH, partition, 3 * batch.rows.len() + 4, bytes);
        let level = batch.common_level();
        call.int(at_us);
        match level {
            Some(level) => call.int(level.into()),
            None => call.arg(b"-1"),
        };
        call.arg(self.inner.caller.as_bytes()).arg(&runs(batch.rows.iter().map(|row| row.id)));
        for row in &batch.rows {
            call.arg(row.id.as_bytes()).arg(&row.record.bytes);
            if level.is_none() {
                call.int(row.delay_us);
            }
        }
        let [now, present] = reply::exactly(self.run(&call, Operation::Push).await?)?;
        self.inner.clock.set(reply::count(&now)?);
        read_present(present)
    }
}

fn read_present(present: Value) -> Result<HashMap<usize, MessageId>> {
    let mut present = reply::list(present)?.into_iter();
    let mut found = HashMap::new();
    while let (Some(number), Some(id)) = (present.next(), present.next()) {
        let number = usize::try_from(reply::count(&number)?).map_err(|_| unexpected_reply())?;
        let id = reply::bytes(id)?.try_into().map_err(|_| unexpected_reply())?;
        found.insert(number, MessageId::from_bytes(id));
    }
    Ok(found)
}

impl Batch {
    /// Encodes the messages that are within the limits.
    fn prepare(messages: &[MessageData], partition: &PartitionId, config: &Config, at_us: u64) -> Self {
        let mut batch = Self {
            verdicts: Vec::with_capacity(messages.len()),
            ids: HashMap::with_capacity(messages.len()),
            rows: Vec::with_capacity(messages.len()),
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
        let delay = check(message, config.clock.wall())?;
        let number = self.rows.len() + 1;
        let known = self.ids.get(&message.id()).copied().unwrap_or(number);
        if known == number {
            let record = record::encode(message, partition, at_us)?;
            if record.bytes.len() as u64 + GROWTH > config.message_bytes {
                check_size(message, config.message_bytes)?;
            }
            self.ids.insert(message.id(), number);
            self.rows.push(Row { id: message.id(), record, delay_us: 1000 * millis(delay) });
        }
        Ok(known)
    }

    /// The hint for this handle's waiting pulls, whether or not the server answered. Other handles get theirs from the server.
    fn hint(&self) -> Hint {
        let mut hint = Hint::default();
        for row in &self.rows {
            hint.add(if row.delay_us == 0 {
                Hint::ready(1)
            } else {
                Hint::due(Duration::from_micros(row.delay_us))
            });
        }
        hint
    }

    /// The level of all messages, if nothing else needs to be told about them, and whether some are bulky.
    fn common_level(&self) -> Option<u8> {
        let level = self.rows.first()?.record.flag;
        let is_plain = |row: &Row| {
            row.record.flag == level && row.delay_us == 0 && row.record.bytes.len() <= LARGE_BYTES
        };
        let is_bulky = |row: &Row| row.record.bytes.len() > BULKY_BYTES;
        let bulky_bit = if self.rows.iter().any(is_bulky) { BULKY_BIT } else { 0 };
        (level < GROUPED && self.rows.iter().all(is_plain)).then_some(level + bulky_bit)
    }

    /// One answer per message.
    fn answers(
        self,
        messages: &[MessageData],
        present: &Result<HashMap<usize, MessageId>>,
    ) -> Vec<Result<PushOutcome>> {
        let mut last = 0;
        let answer = |(message, verdict): (&MessageData, Result<usize>)| {
            let number = verdict?;
            let is_repeated = number <= last; // the same message came earlier in this batch
            last = last.max(number);
            let present = present.as_ref().map_err(Clone::clone)?;
            Ok(match present.get(&number) {
                Some(first) => PushOutcome::Duplicate(Some(*first)),
                None if is_repeated => PushOutcome::Duplicate(Some(message.id())),
                None => PushOutcome::Stored(message.id()),
            })
        };
        messages.iter().zip(self.verdicts).map(answer).collect()
    }
}

/// Checks a message's options against the limits, and returns its delay.
fn check(message: &MessageData, now: SystemTime) -> Result<Duration> {
    let priority = message.options().priority;
    if priority >= PRIORITY_LEVELS {
        return Err(
            ERRORS.invalid(format!("priority {priority} is out of range: 0 to {}", PRIORITY_LEVELS - 1))
        );
    }
    let delay = message.delay(now);
    if delay > MAX_DELAY {
        return Err(ERRORS.invalid("the delay is longer than the capabilities allow"));
    }
    Ok(delay)
}

fn check_size(message: &MessageData, message_bytes: u64) -> Result<()> {
    let encoded_bytes = Envelope::max_encoded_len(message);
    if encoded_bytes <= message_bytes {
        return Ok(());
    }
    let text = format!("the encoded message has {encoded_bytes} bytes: at most {message_bytes} are allowed");
    Err(ERRORS.error(ErrorKind::TooLarge, text))
}
