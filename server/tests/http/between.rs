//! A control store of which a test sees what is written, and in which it does something between a look at an entry and what follows it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Page, Result};
use anyqueue_memory::MemoryQueue;
use serde_json::Value;

type Step = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Between {
    pub(crate) memory: MemoryQueue,
    puts: Mutex<Vec<(String, Value)>>,
    next: Mutex<Option<(When, String, Step)>>,
}

/// After what something is done.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum When {
    Look,
    Write,
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl Between {
    pub(crate) fn new() -> Self {
        Self { memory: MemoryQueue::new(), puts: Mutex::default(), next: Mutex::default() }
    }

    /// What was written into this entry since the last call.
    pub(crate) fn written(&self, key: &str) -> Vec<Value> {
        let mut puts = self.puts.lock().unwrap_or_else(PoisonError::into_inner);
        puts.extract_if(.., |(of, _)| of == key).map(|(_, value)| value).collect()
    }

    /// Once somebody has looked at this entry, or has written it, and before they hear of it, this is done.
    pub(crate) fn after(&self, when: When, key: &str, step: impl Future<Output = ()> + Send + 'static) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((when, key.to_owned(), Box::pin(step)));
    }

    async fn done(&self, when: When, keys: &[&Key]) {
        let step = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            next.take_if(|(at, of, _)| *at == when && keys.iter().any(|key| key.as_str() == of))
        };
        if let Some((.., step)) = step {
            step.await;
        }
    }

    /// Whether that has come about.
    pub(crate) fn is_done(&self) -> bool {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).is_none()
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
        let seen = self.memory.get(keys).await;
        self.done(When::Look, &keys.iter().collect::<Vec<_>>()).await;
        seen
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
        let applied = self.memory.apply(changes).await;
        self.done(When::Write, &changes.iter().map(Change::key).collect::<Vec<_>>()).await;
        applied
    }
}
