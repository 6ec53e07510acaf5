//! How often this handle gave a message back that nobody was handed, which the server counts as a delivery all the same.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::taken::Taken;

/// Messages that are remembered; the oldest is forgotten first.
const REMEMBERED: usize = 10_000;

/// Counts by what the server calls a message.
#[derive(Debug, Default)]
pub(crate) struct GiveBacks(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    counts: HashMap<Arc<str>, u32>,
    oldest: VecDeque<Arc<str>>,
}

impl GiveBacks {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These were received, and go back unseen.
    pub(crate) fn note_all(&self, unseen: &[Taken]) {
        for taken in unseen {
            self.note(&taken.claim.source);
        }
    }

    fn note(&self, source: &Arc<str>) {
        let mut memory = self.lock();
        if let Some(count) = memory.counts.get_mut(source) {
            *count += 1;
            return;
        }
        memory.counts.insert(source.clone(), 1);
        memory.oldest.push_back(source.clone());
        if memory.oldest.len() > REMEMBERED
            && let Some(forgotten) = memory.oldest.pop_front()
        {
            memory.counts.remove(&forgotten);
        }
    }

    /// How many of its receptions were such.
    pub(crate) fn of(&self, source: &str) -> u32 {
        self.lock().counts.get(source).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_counted_and_the_oldest_is_forgotten_first() {
        let given = GiveBacks::default();
        let first: Arc<str> = "first".into();
        given.note(&first);
        given.note(&first);
        assert_eq!((given.of("first"), given.of("other")), (2, 0));
        for other in 0..REMEMBERED {
            given.note(&other.to_string().into());
        }
        assert_eq!((given.of("first"), given.of("0")), (0, 1));
        assert_eq!(given.lock().counts.len(), REMEMBERED);
    }
}
