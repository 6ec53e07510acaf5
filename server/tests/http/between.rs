//! A control store of which a test sees what is written.

use std::sync::{Mutex, PoisonError};

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Page, Result};
use anyqueue_memory::MemoryQueue;
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Between {
    memory: MemoryQueue,
    puts: Mutex<Vec<(String, Value)>>,
}

impl Between {
    pub(crate) fn new() -> Self {
        Self { memory: MemoryQueue::new(), puts: Mutex::default() }
    }

    /// What was written into this entry since the last call.
    pub(crate) fn written(&self, key: &str) -> Vec<Value> {
        let mut puts = self.puts.lock().unwrap_or_else(PoisonError::into_inner);
        puts.extract_if(.., |(of, _)| of == key).map(|(_, value)| value).collect()
    }
}

impl Forward for Between {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Between {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.memory.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.memory.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        for change in changes {
            if let Change::Put { key, value, .. } = change {
                let mut puts = self.puts.lock().unwrap_or_else(PoisonError::into_inner);
                puts.push((key.to_string(), serde_json::from_slice(value).unwrap_or_default()));
            }
        }
        self.memory.apply(changes).await
    }
}
