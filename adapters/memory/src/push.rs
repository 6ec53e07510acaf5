//! Pushing: what is checked, what is counted, what is message.

use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{PushQueueStorage, async_trait};
use anyqueue::{ErrorKind, Headers, MessageData, Operation, PartitionId, PushOutcome, Result};

use crate::error::error;
use crate::limits::{MAX_DELAY, PRIORITY_LEVELS};
use crate::message::Message;
use crate::partition::Partition;
use crate::state::{Ledger, State, enter_or_make};
use crate::storage::MemoryQueue;

/// What a message is counted with besides its texts: about what keeping it costs.
const OVERHEAD_BYTES: u64 = 512;

/// The size of a message as the limits count it: payload, headers, names and keys, and [`OVERHEAD_BYTES`].
fn encoded_len(message: &MessageData) -> u64 {
    let options = message.options();
    let texts =
        [message.task_id(), message.session_id(), options.group.as_deref(), options.dedup_key.as_deref()];
    let texts: usize = texts.into_iter().flatten().map(str::len).sum();
    OVERHEAD_BYTES + (message.payload().len() + texts) as u64 + headers_len(message.headers())
}

/// The part of it that a settlement can change.
pub(crate) fn headers_len(headers: &Headers) -> u64 {
    headers.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
}

/// A message that passed the checks, and its delay.
pub(crate) type Admitted = Result<(Box<Message>, Duration)>;

#[async_trait]
impl PushQueueStorage for MemoryQueue {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.push_batch(partition, messages)
    }
}

impl MemoryQueue {
    fn push_batch(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        if let Err(closed) = self.ensure_open(Operation::Push) {
            return vec![Err(closed); messages.len()];
        }
        // Copies are made before the lock is taken: it is held for the bookkeeping alone.
        let (now, wall) = (self.store.clock.now(), self.store.clock.wall());
        let limit = self.max_message_bytes();
        let admitted = messages.iter().map(|message| admit(message, limit, now, wall)).collect();
        self.store.run(|state, now| state.push(now, partition, admitted))
    }
}

/// Checks a message, and makes what is stored of it.
pub(crate) fn admit(message: &MessageData, limit: u64, now: Instant, wall: SystemTime) -> Admitted {
    let bytes = encoded_len(message);
    if bytes > limit {
        let text = format!("the message counts {bytes} bytes: the limit is {limit}");
        return Err(error(Operation::Push, ErrorKind::TooLarge, text));
    }
    let priority = message.options().priority;
    if priority >= PRIORITY_LEVELS {
        let text = format!("there is no priority {priority}: the highest is {}", PRIORITY_LEVELS - 1);
        return Err(error(Operation::Push, ErrorKind::Unsupported, text));
    }
    let delay = message.delay(wall);
    if delay > MAX_DELAY {
        let text = format!("the delay of {delay:?} is too long: the longest is {MAX_DELAY:?}");
        return Err(error(Operation::Push, ErrorKind::InvalidInput, text));
    }
    Ok((Box::new(Message::new(message.clone(), bytes, now)), delay))
}

impl State {
    fn push(&mut self, now: Instant, id: &PartitionId, messages: Vec<Admitted>) -> Vec<Result<PushOutcome>> {
        let partition = enter_or_make(&mut self.partitions, now, id);
        let mut push = |(message, delay)| push_one(partition, &mut self.ledger, now, message, delay);
        let outcomes = messages.into_iter().map(|message| message.and_then(&mut push)).collect();
        self.tidy(id);
        outcomes
    }
}

/// Pushes a message that was admitted.
pub(crate) fn push_one(
    partition: &mut Partition,
    ledger: &mut Ledger,
    now: Instant,
    message: Box<Message>,
    delay: Duration,
) -> Result<PushOutcome> {
    let id = message.id();
    if let Some(key) = &message.data.options().dedup_key
        && let Some(first) = partition.key_holder(key)
    {
        // A repetition of one message is told its own id, whoever else has its key by now.
        let known = if ledger.contains(id) { id } else { first };
        return Ok(PushOutcome::Duplicate(Some(known)));
    }
    if !ledger.enter(&message)? {
        return Ok(PushOutcome::Duplicate(Some(id)));
    }
    partition.push(now, message, delay);
    Ok(PushOutcome::Stored(id))
}
