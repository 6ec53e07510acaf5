//! Pushing: what is checked, counted and stored.

use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{PushQueueStorage, async_trait};
use anyqueue::{
    ErrorKind, Headers, MessageData, MessageId, OnDuplicate, Operation, PartitionId, PushOutcome, Result,
};

use crate::error::error;
use crate::limits::{MAX_DELAY, PRIORITY_LEVELS};
use crate::partition::Partition;
use crate::record::{Message, after};
use crate::state::{Occupancy, Room, State, enter_or_make};
use crate::storage::MemoryQueue;

/// What each message counts in addition to its contents: roughly what storing it costs.
const OVERHEAD_BYTES: u64 = 512;

/// The size of a message as it counts towards the limits: payload, headers, names and keys, plus
/// [`OVERHEAD_BYTES`].
pub(crate) fn encoded_len(message: &MessageData) -> u64 {
    let options = message.options();
    let texts =
        [message.task_id(), message.session_id(), options.group.as_deref(), options.dedup_key.as_deref()];
    let texts: usize = texts.into_iter().flatten().map(str::len).sum();
    OVERHEAD_BYTES + (message.payload().len() + texts) as u64 + headers_len(message.headers())
}

/// The part of the size that a settlement can change.
pub(crate) fn headers_len(headers: &Headers) -> u64 {
    headers.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
}

/// A message that passed the checks, and how to push it.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) message: Box<Message>,
    delay: Duration,
    on_duplicate: OnDuplicate,
}

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
        // Messages are copied before the lock is taken, so that it is held only for the bookkeeping.
        let (now, wall) = (self.store.clock.now(), self.store.clock.wall());
        let limit = self.max_message_bytes();
        let admitted = messages.iter().map(|message| admit(message, limit, now, wall)).collect();
        self.store.run(|state, now| state.push(now, partition, admitted))
    }
}

/// Checks a message, and builds the one to store.
pub(crate) fn admit(message: &MessageData, limit: u64, now: Instant, wall: SystemTime) -> Result<Admitted> {
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
    let on_duplicate = message.options().on_duplicate;
    let urgent_at = message.urgent_after(wall).map(|wait| after(now, wait));
    let mut data = message.clone();
    if on_duplicate != OnDuplicate::Keep || urgent_at.is_some() {
        // These options concern the push and the wait, not the message itself.
        let mut options = data.options().clone();
        (options.on_duplicate, options.urgent_after) = (OnDuplicate::Keep, None);
        data = data.with_options(options);
    }
    let message = Box::new(Message { urgent_at, ..Message::new(data, bytes, now) });
    Ok(Admitted { message, delay, on_duplicate })
}

impl State {
    fn push(
        &mut self,
        now: Instant,
        id: &PartitionId,
        messages: Vec<Result<Admitted>>,
    ) -> Vec<Result<PushOutcome>> {
        let partition = enter_or_make(&mut self.partitions, now, id);
        let mut push = |admitted| push_one(partition, &mut self.occupancy, now, admitted);
        let outcomes = messages.into_iter().map(|admitted| admitted.and_then(&mut push)).collect();
        self.tidy(id);
        outcomes
    }
}

/// Pushes a message that passed the checks.
pub(crate) fn push_one(
    partition: &mut Partition,
    occupancy: &mut Occupancy,
    now: Instant,
    admitted: Admitted,
) -> Result<PushOutcome> {
    let id = admitted.message.id();
    let holder = admitted.message.data.options().dedup_key.as_ref().and_then(|key| partition.key_holder(key));
    if let Some(holder) = holder {
        // A repeated push of the same message returns its own id, whichever message has its key by now.
        let is_repeated = occupancy.contains(id);
        let is_held = partition.is_held(holder);
        match admitted.on_duplicate {
            _ if is_repeated => return Ok(PushOutcome::Duplicate(Some(id))),
            OnDuplicate::Behind if is_held => {}
            OnDuplicate::Replace | OnDuplicate::Earlier if !is_held => {
                return replace(partition, occupancy, now, holder, &admitted);
            }
            _ => return Ok(PushOutcome::Duplicate(Some(holder))),
        }
    }
    if !occupancy.enter(&admitted.message)? {
        return Ok(PushOutcome::Duplicate(Some(id)));
    }
    partition.push(now, admitted.message, admitted.delay);
    Ok(PushOutcome::Stored(id))
}

/// Replaces the content of a message that waits with that of a newer one.
fn replace(
    partition: &mut Partition,
    occupancy: &mut Occupancy,
    now: Instant,
    holder: MessageId,
    newer: &Admitted,
) -> Result<PushOutcome> {
    let only_earlier = newer.on_duplicate == OnDuplicate::Earlier;
    let Some(old) = partition.waiting(holder) else { return Ok(PushOutcome::Duplicate(Some(holder))) };
    if only_earlier && !old.is_due_after(after(now, newer.delay)) {
        return Ok(PushOutcome::Duplicate(Some(holder)));
    }
    let data = content_of(&newer.message.data, &old.data);
    let (before, bytes) = (old.bytes, encoded_len(&data));
    let (needed, freed) = (Room { messages: 1, bytes }, Room { messages: 1, bytes: before });
    occupancy.check_room(needed, freed)?;
    occupancy.resize(before, bytes);
    (old.data, old.bytes) = (data, bytes);
    if only_earlier {
        partition.bring_forward(now, holder, newer.delay);
    }
    Ok(PushOutcome::Replaced(holder))
}

/// Combines the content of one message with the id and the options of another.
fn content_of(newer: &MessageData, old: &MessageData) -> MessageData {
    let mut data = MessageData::with_id(old.id(), newer.payload_bytes())
        .with_headers(newer.headers().clone())
        .with_options(old.options().clone());
    if let Some(task) = newer.task_id() {
        data = data.with_task_id(task);
    }
    if let Some(session) = newer.session_id() {
        data = data.with_session_id(session);
    }
    data
}
