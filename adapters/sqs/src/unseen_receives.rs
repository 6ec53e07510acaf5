//! How often this handle received a message and released it before any handler saw it. The server counts that
//! as a delivery.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::received::Received;

/// How many messages are remembered. The oldest are forgotten first.
const REMEMBERED: usize = 10_000;

/// Counts, by the server's message id.
#[derive(Debug, Default)]
pub(crate) struct UnseenReceives(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    counts: HashMap<Arc<str>, u32>,
    oldest: VecDeque<Arc<str>>,
}

impl UnseenReceives {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that these messages were received, and go back unseen.
    pub(crate) fn note_all(&self, unseen: &[Received]) {
        for received in unseen {
            self.note(&received.claim.message_id);
        }
    }

    fn note(&self, message_id: &Arc<str>) {
        let mut memory = self.lock();
        if let Some(count) = memory.counts.get_mut(message_id) {
            *count += 1;
            return;
        }
        memory.counts.insert(message_id.clone(), 1);
        memory.oldest.push_back(message_id.clone());
        if memory.oldest.len() > REMEMBERED
            && let Some(forgotten) = memory.oldest.pop_front()
        {
            memory.counts.remove(&forgotten);
        }
    }

    /// Returns how often this message was received and released unseen.
    pub(crate) fn count_of(&self, message_id: &str) -> u32 {
        self.lock().counts.get(message_id).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_counted_and_the_oldest_is_forgotten_first() {
        let unseen = UnseenReceives::default();
        let first: Arc<str> = "first".into();
        unseen.note(&first);
        unseen.note(&first);
        assert_eq!((unseen.count_of("first"), unseen.count_of("other")), (2, 0));
        for other in 0..REMEMBERED {
            unseen.note(&other.to_string().into());
        }
        assert_eq!((unseen.count_of("first"), unseen.count_of("0")), (0, 1));
        assert_eq!(unseen.lock().counts.len(), REMEMBERED);
    }
}
