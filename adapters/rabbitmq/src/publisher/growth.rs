//! Queues that are growing old, and those who wait for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// What is known about a queue that may have to be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// It is running.
    Made,
    /// It survives a crash of its node.
    Old,
    /// It existed once.
    Removed,
}

/// Becomes true when a queue is old. If it closes before that, nobody knows what became of the queue.
pub(super) type Growth = watch::Receiver<bool>;

/// The queues of a session that are not known to be old.
#[derive(Debug, Default)]
pub(super) struct Growing(Mutex<HashMap<String, Growth>>);

impl Growing {
    fn queues(&self) -> MutexGuard<'_, HashMap<String, Growth>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues().is_empty()
    }

    /// Records that a queue was declared, or declared again.
    pub(super) fn begin(&self, queue: &str, growth: Growth) {
        self.queues().insert(queue.to_owned(), growth);
    }

    /// Returns the growth of this queue, if it is not known to be old.
    pub(super) fn of(&self, queue: &str) -> Option<Growth> {
        self.queues().get(queue).cloned()
    }

    /// Records that a queue is old, unless it was declared again in the meantime, which started another growth.
    pub(super) fn end(&self, queue: &str, growth: &Growth) {
        if self.is_current(queue, growth) {
            self.queues().remove(queue);
        }
    }

    /// Records that a queue is old, as another client has found.
    pub(super) fn forget(&self, queue: &str) {
        self.queues().remove(queue);
    }

    /// Returns whether this is still the queue's growth.
    pub(super) fn is_current(&self, queue: &str, growth: &Growth) -> bool {
        self.queues().get(queue).is_some_and(|current| current.same_channel(growth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_was_declared_anew_does_not_end_with_the_growth_of_the_first() {
        let growing = Growing::default();
        let (_first, of_first) = watch::channel(false);
        let (_second, of_second) = watch::channel(false);
        growing.begin("q", of_first.clone());
        growing.begin("q", of_second.clone());
        growing.end("q", &of_first);
        assert!(!growing.is_current("q", &of_first) && growing.is_current("q", &of_second));
        assert!(growing.of("q").is_some());
        growing.end("q", &of_second);
        assert!(growing.is_empty());
    }
}
