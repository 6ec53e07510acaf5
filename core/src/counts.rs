//! Counts by message id, for a bounded number of messages.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::message::MessageId;

/// A count for each of the most recently counted messages; those first counted longest ago are forgotten
/// first.
///
/// For what a process has to remember about messages that it no longer holds: for instance, how often it
/// released them. Nothing outlives the process.
///
/// ```
/// use anyqueue::adapter::MessageCounts;
/// use anyqueue::MessageId;
/// let (counts, id) = (MessageCounts::new(1000), MessageId::new());
/// assert_eq!((counts.add(id), counts.add(id), counts.of(id)), (1, 2, 2));
/// counts.forget(id);
/// assert_eq!(counts.of(id), 0);
/// ```
pub struct MessageCounts {
    capacity: usize,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// The count, and which entry of `order` is the message's.
    counts: HashMap<MessageId, (u32, u64)>,
    /// In the order in which they were first counted; also some that were forgotten since.
    order: VecDeque<(MessageId, u64)>,
    next: u64,
}

impl MessageCounts {
    /// Creates counts for up to this many messages, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), memory: Mutex::default() }
    }

    /// Adds one to the count of this message and returns the new count.
    pub fn add(&self, id: MessageId) -> u32 {
        let mut memory = self.lock();
        let memory = &mut *memory;
        let next = memory.next;
        let entry = memory.counts.entry(id).or_insert((0, next));
        entry.0 = entry.0.saturating_add(1);
        let count = entry.0;
        if entry.1 == next {
            memory.next += 1;
            memory.order.push_back((id, next));
            memory.shrink_to(self.capacity);
        }
        count
    }

    /// Returns the count of this message; 0 if none is remembered.
    pub fn of(&self, id: MessageId) -> u32 {
        self.lock().counts.get(&id).map_or(0, |(count, _)| *count)
    }

    /// Resets the count of this message to 0.
    pub fn forget(&self, id: MessageId) {
        self.lock().counts.remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn shrink_to(&mut self, capacity: usize) {
        while self.counts.len() > capacity {
            let Some((id, place)) = self.order.pop_front() else { return };
            if self.counts.get(&id).is_some_and(|(_, own)| *own == place) {
                self.counts.remove(&id);
            }
        }
        // A message forgotten by name leaves its entry behind; sweeping now and then costs a constant for
        // each.
        if self.order.len() > capacity.saturating_mul(2) {
            let counts = &self.counts;
            self.order.retain(|(id, place)| counts.get(id).is_some_and(|(_, own)| own == place));
        }
    }
}

impl fmt::Debug for MessageCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remembered = self.lock().counts.len();
        f.debug_struct("MessageCounts")
            .field("capacity", &self.capacity)
            .field("remembered", &remembered)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let counts = MessageCounts::new(3);
        let ids: Vec<_> = (0..4).map(|_| MessageId::new()).collect();
        for id in &ids {
            counts.add(*id);
            counts.add(*id);
        }
        let known: Vec<_> = ids.iter().map(|id| counts.of(*id)).collect();
        assert_eq!(known, [0, 2, 2, 2]);
    }

    #[test]
    fn what_is_forgotten_by_name_and_counted_again_is_as_young_as_it_looks() {
        let counts = MessageCounts::new(2);
        let (first, second, third) = (MessageId::new(), MessageId::new(), MessageId::new());
        counts.add(first);
        counts.add(second);
        counts.forget(first);
        counts.add(first);
        counts.add(third); // one too many: the second is the oldest
        assert_eq!([counts.of(first), counts.of(second), counts.of(third)], [1, 0, 1]);
    }

    #[test]
    fn memory_is_bounded_however_much_comes_and_goes() {
        let counts = MessageCounts::new(10);
        for _ in 0..10_000 {
            let id = MessageId::new();
            counts.add(id);
            counts.forget(id);
        }
        let memory = counts.lock();
        assert!(memory.counts.is_empty() && memory.order.len() <= 21, "{} entries", memory.order.len());
    }
}
