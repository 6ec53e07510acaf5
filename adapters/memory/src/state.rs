//! All partitions of a store behind one lock, and the state they share: unique ids, capacity, waiters.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyqueue::adapter::EndWatches;
use anyqueue::{Clock, Error, ErrorKind, MessageId, Operation, PartitionId, Result};
use tokio::sync::Notify;

use crate::config::MemoryConfig;
use crate::ends::Ends;
use crate::entries::Entries;
use crate::error::error;
use crate::partition::Partition;
use crate::record::Message;
use crate::series::Series;
use crate::waiters::Line;

/// What the clients of one store share.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) clock: Clock,
    /// The waiters for ends of tasks.
    pub(crate) end_watches: Arc<EndWatches>,
    /// A `std` mutex rather than one of tokio: no command awaits, and each holds the lock for microseconds.
    state: Mutex<State>,
}

impl Store {
    pub(crate) fn new(config: MemoryConfig) -> Self {
        let state = Mutex::new(State::new(&config));
        Self { clock: config.clock, end_watches: Arc::new(EndWatches::within_process()), state }
    }

    /// Runs a command under the lock. The time is read under the lock too, so it never runs backwards between
    /// commands. Waiters are woken after the lock is released: they need it themselves, and waking one may
    /// even drop another.
    pub(crate) fn run<T>(&self, command: impl FnOnce(&mut State, Instant) -> T) -> T {
        // No command is known to panic half-way, so a poisoned lock is no reason to stop all other tasks.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let answer = command(&mut state, now);
        let bells = std::mem::take(&mut state.bells);
        drop(state);
        for bell in bells {
            bell.notify_one(); // kept for its waiter if that is not listening yet
        }
        answer
    }
}

/// The state of a store. Its commands are next to the calls that use them, in `push`, `pull`, `settle` and
/// `inspect`. Each ends with [`tidy`](Self::tidy) for every partition that it touched.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) partitions: Partitions,
    pub(crate) occupancy: Occupancy,
    pub(crate) ends: Ends,
    pub(crate) series: Series,
    pub(crate) entries: Entries,
    /// The lines of waiters, by partition, whether the partition exists or not.
    pub(crate) lines: HashMap<PartitionId, Line>,
    /// The last number given to a waiter. Numbers are never reused: a waiter keeps its own while lines come
    /// and go.
    last_ticket: u64,
    /// The bells of the waiters that this command calls.
    bells: Vec<Arc<Notify>>,
}

/// The partitions that have messages or are paused. All others are forgotten.
pub(crate) type Partitions = BTreeMap<PartitionId, Partition>;

/// Returns the partition, brought up to date, if it exists.
pub(crate) fn enter<'a>(
    partitions: &'a mut Partitions,
    now: Instant,
    id: &PartitionId,
) -> Option<&'a mut Partition> {
    let partition = partitions.get_mut(id)?;
    partition.advance(now);
    Some(partition)
}

/// Returns the partition, brought up to date. Creates it if it does not exist.
pub(crate) fn enter_or_make<'a>(
    partitions: &'a mut Partitions,
    now: Instant,
    id: &PartitionId,
) -> &'a mut Partition {
    let partition = partitions.entry(id.clone()).or_insert_with_key(|id| Partition::new(id.clone()));
    partition.advance(now);
    partition
}

impl State {
    pub(crate) fn new(config: &MemoryConfig) -> Self {
        let &MemoryConfig { max_messages, max_bytes, max_ended, .. } = config;
        let occupancy = Occupancy { max_messages, max_bytes, living: HashSet::new(), bytes: 0 };
        let ends = Ends::new(max_ended, max_bytes);
        Self {
            partitions: BTreeMap::new(),
            occupancy,
            ends,
            series: Series::default(),
            entries: Entries::default(),
            lines: HashMap::new(),
            last_ticket: 0,
            bells: Vec::new(),
        }
    }

    pub(crate) fn take_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Forgets the partition if nothing is left of it, and wakes the waiters that its change concerns.
    pub(crate) fn tidy(&mut self, id: &PartitionId) {
        let (mut on_offer, mut alarm) = (0, None);
        if let Some(partition) = self.partitions.get(id) {
            (on_offer, alarm) = (partition.on_offer(), partition.next_alarm());
            if partition.is_vacant() {
                self.partitions.remove(id);
            }
        }
        if let Some(line) = self.lines.get_mut(id) {
            line.muster(on_offer, alarm, &mut self.bells);
            if line.is_empty() {
                self.lines.remove(id);
            }
        }
    }
}

/// The messages that live in the store, in all partitions, and the space they take.
#[derive(Debug)]
pub(crate) struct Occupancy {
    max_messages: usize,
    max_bytes: u64,
    living: HashSet<MessageId>,
    bytes: u64,
}

/// Space that messages take or need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) messages: usize,
    pub(crate) bytes: u64,
}

impl Room {
    /// Adds messages of these sizes.
    pub(crate) fn with(self, sizes: impl IntoIterator<Item = u64>) -> Self {
        let add = |room: Self, bytes| Self { messages: room.messages + 1, bytes: room.bytes + bytes };
        sizes.into_iter().fold(self, add)
    }
}

impl Occupancy {
    /// Capacity for this many ids is never given back.
    const KEPT_CAPACITY: usize = 1 << 16;

    pub(crate) fn contains(&self, id: MessageId) -> bool {
        self.living.contains(&id)
    }

    /// Registers a new message, if there is room. Returns `false` if a message with its id exists.
    pub(crate) fn enter(&mut self, message: &Message) -> Result<bool> {
        if !self.living.insert(message.id()) {
            return Ok(false);
        }
        if self.living.len() > self.max_messages || self.bytes.saturating_add(message.bytes) > self.max_bytes
        {
            self.living.remove(&message.id());
            return Err(self.full(Operation::Push));
        }
        self.bytes += message.bytes;
        Ok(true)
    }

    /// Checks that there is room for new messages, once what is `freed` is free.
    pub(crate) fn check_room(&self, needed: Room, freed: Room) -> Result<()> {
        let messages = (self.living.len() + needed.messages).saturating_sub(freed.messages);
        let bytes = self.bytes.saturating_add(needed.bytes).saturating_sub(freed.bytes);
        let fits = messages <= self.max_messages && bytes <= self.max_bytes;
        if fits { Ok(()) } else { Err(self.full(Operation::Settle)) }
    }

    fn full(&self, operation: Operation) -> Error {
        let text = format!(
            "the store is full: it holds {} of {} messages and {} of {} bytes",
            self.living.len(),
            self.max_messages,
            self.bytes,
            self.max_bytes
        );
        error(operation, ErrorKind::Full, text)
    }

    /// Records a new size of a message. This is never refused, since a message must be able to become a dead
    /// letter even in a full store.
    pub(crate) fn resize(&mut self, old: u64, new: u64) {
        self.bytes = self.bytes - old + new;
    }

    /// Removes a message that has left the store from the books.
    pub(crate) fn leave(&mut self, message: &Message) {
        self.living.remove(&message.id());
        self.bytes -= message.bytes;
        // A set does not shrink by itself. Halving it once it is an eighth full adds almost nothing to the
        // cost of a removal.
        let capacity = self.living.capacity();
        if capacity > Self::KEPT_CAPACITY && self.living.len() < capacity / 8 {
            self.living.shrink_to(capacity / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use anyqueue::adapter::{InspectQueueStorage, PushQueueStorage};
    use anyqueue::{MessageData, PartitionId};

    use super::*;
    use crate::MemoryQueue;

    #[tokio::test]
    async fn memory_is_given_back_when_the_backlog_is_gone() {
        let queue = MemoryQueue::new();
        let jobs = PartitionId::new("jobs").unwrap();
        for _ in 0..200 {
            let messages: Vec<_> = (0..1000).map(|_| MessageData::new("x")).collect();
            queue.push(&jobs, &messages).await;
        }
        let capacity = || queue.store.run(|state, _| state.occupancy.living.capacity());
        assert!(capacity() >= 200_000);
        while queue.purge(&jobs, 1000).await.unwrap() > 0 {}
        assert!(capacity() <= 2 * Occupancy::KEPT_CAPACITY, "{}", capacity());
        assert!(queue.store.run(|state, _| state.partitions.is_empty() && state.occupancy.bytes == 0));
    }
}
