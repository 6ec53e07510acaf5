//! The running tasks, so that no task runs twice at once in one worker.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use anyqueue::MessageId;

use crate::context::TaskContext;

/// The running tasks, by message id. They are split into parts with a lock each, so that tasks seldom wait
/// for each other.
#[derive(Debug, Default)]
pub(crate) struct Running([Mutex<HashMap<MessageId, TaskContext>>; PARTS]);

const PARTS: usize = 16;

impl Running {
    /// Adds a task. Returns `false` if it runs already.
    pub(crate) fn insert_new(&self, id: MessageId, task: TaskContext) -> bool {
        self.with(id, |part| match part.entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(task);
                true
            }
        })
    }

    pub(crate) fn remove(&self, id: MessageId) {
        let _ended = self.with(id, |part| part.remove(&id));
    }

    pub(crate) fn find(&self, id: MessageId) -> Option<TaskContext> {
        self.with(id, |part| part.get(&id).cloned())
    }

    pub(crate) fn tasks(&self) -> Vec<TaskContext> {
        let lock = |part: &Mutex<HashMap<_, TaskContext>>| -> Vec<TaskContext> {
            part.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
        };
        self.0.iter().flat_map(lock).collect()
    }

    fn with<T: Default>(
        &self,
        id: MessageId,
        use_part: impl FnOnce(&mut HashMap<MessageId, TaskContext>) -> T,
    ) -> T {
        let [.., last] = id.as_bytes();
        let part = self.0.get(usize::from(*last) % PARTS);
        part.map(|part| use_part(&mut part.lock().unwrap_or_else(PoisonError::into_inner)))
            .unwrap_or_default()
    }
}
