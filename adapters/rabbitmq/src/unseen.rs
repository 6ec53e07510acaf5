//! Messages that were received and requeued before any handler saw them. The server counts that as a
//! delivery, which is subtracted if this process remembers it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use anyqueue::MessageId;

/// How many messages are remembered. The oldest are forgotten first.
const REMEMBERED: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Unseen(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    known: HashMap<MessageId, Known>,
    oldest: VecDeque<MessageId>,
}

#[derive(Debug, Default)]
struct Known {
    /// How many unseen deliveries the server has counted.
    counted: u32,
    /// The server's count before the last unseen delivery. It is needed because not all versions count a
    /// requeued message.
    before: Option<u32>,
}

impl Unseen {
    /// Records that a message goes back unseen, after the server had delivered it this many times before.
    pub(crate) fn note(&self, id: MessageId, before: u32) {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !memory.known.contains_key(&id) {
            memory.oldest.push_back(id);
        }
        memory.known.entry(id).or_default().before = Some(before);
        if memory.oldest.len() > REMEMBERED
            && let Some(forgotten) = memory.oldest.pop_front()
        {
            memory.known.remove(&forgotten);
        }
    }

    /// Returns how many of the earlier deliveries that the server has counted were unseen.
    pub(crate) fn count_of(&self, id: MessageId, earlier: u32) -> u32 {
        if earlier == 0 {
            return 0;
        }
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = memory.known.get_mut(&id) else { return 0 };
        if known.before.take().is_some_and(|before| earlier > before) {
            known.counted += 1;
        }
        // Otherwise it is another copy, with a count of its own.
        if known.counted <= earlier { known.counted } else { 0 }
    }

    /// Forgets a message that is settled, or whose copy has a count of its own.
    pub(crate) fn forget(&self, id: MessageId) {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !memory.known.is_empty() && memory.known.remove(&id).is_some() {
            memory.oldest.retain(|known| *known != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_saw_is_taken_off_once_for_each_time_that_the_server_counts() {
        let (unseen, id) = (Unseen::default(), MessageId::new());
        assert_eq!(unseen.count_of(id, 3), 0);
        unseen.note(id, 3);
        assert_eq!((unseen.count_of(id, 4), unseen.count_of(id, 5)), (1, 1));
        unseen.note(id, 5);
        assert_eq!(unseen.count_of(id, 5), 1, "this server does not count requeued messages");
        unseen.note(id, 5);
        assert_eq!(unseen.count_of(id, 6), 2);
        assert_eq!(unseen.count_of(id, 1), 0, "another copy");
        unseen.forget(id);
        assert_eq!(unseen.count_of(id, 6), 0);
    }

    #[test]
    fn memory_is_bounded_and_forgets_the_oldest() {
        let (unseen, first) = (Unseen::default(), MessageId::new());
        unseen.note(first, 0);
        assert_eq!(unseen.count_of(first, 1), 1);
        (0..REMEMBERED).for_each(|_| unseen.note(MessageId::new(), 0));
        assert_eq!(unseen.count_of(first, 1), 0);
        assert_eq!(unseen.0.lock().unwrap().known.len(), REMEMBERED);
    }
}
