//! How often this process gave a message back, where the server counts that as a delivery.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::capabilities::DeliveryCount;
use crate::message::MessageId;

/// Messages whose releases are remembered; the oldest is forgotten first.
const REMEMBERED: usize = 10_000;

/// Releases must never lead to dead letters, so core takes off what it knows of.
#[derive(Debug)]
pub(crate) struct Releases(Option<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    counts: HashMap<MessageId, u32>,
    oldest: VecDeque<MessageId>,
}

impl Releases {
    pub(crate) fn new(counting: DeliveryCount) -> Self {
        Self((counting == DeliveryCount::Deliveries).then(Mutex::default))
    }

    /// One more release.
    pub(crate) fn note(&self, id: MessageId) {
        let Some(memory) = &self.0 else { return };
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let count = memory.counts.entry(id).or_insert(0);
        *count += 1;
        if *count == 1 {
            memory.oldest.push_back(id);
        }
        if memory.oldest.len() > REMEMBERED
            && let Some(forgotten) = memory.oldest.pop_front()
        {
            memory.counts.remove(&forgotten);
        }
    }

    /// The message moved: its count starts anew.
    pub(crate) fn forget(&self, id: MessageId) {
        let Some(memory) = &self.0 else { return };
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.counts.remove(&id).is_some() {
            memory.oldest.retain(|known| *known != id);
        }
    }

    /// Releases known of this message.
    pub(crate) fn of(&self, id: MessageId) -> u32 {
        let Some(memory) = &self.0 else { return 0 };
        memory.lock().unwrap_or_else(PoisonError::into_inner).counts.get(&id).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_forgets_the_oldest() {
        let releases = Releases::new(DeliveryCount::Deliveries);
        let first = MessageId::new();
        releases.note(first);
        releases.note(first);
        assert_eq!(releases.of(first), 2);
        for _ in 0..REMEMBERED {
            releases.note(MessageId::new());
        }
        assert_eq!(releases.of(first), 0);
    }

    #[test]
    fn nothing_is_taken_off_where_the_server_does_not_count_releases() {
        let releases = Releases::new(DeliveryCount::ExceptReleases);
        let id = MessageId::new();
        releases.note(id);
        assert_eq!(releases.of(id), 0);
    }
}
