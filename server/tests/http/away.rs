//! A queue whose control store can be away, and one that has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Error, ErrorKind, Page, Queue, Result};
use anyqueue_memory::MemoryQueue;

use crate::bed::over;

/// Says whether the control store is away; all else goes on.
#[derive(Debug)]
struct Leaving {
    memory: MemoryQueue,
    away: Arc<AtomicBool>,
}

impl Forward for Leaving {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

impl Leaving {
    fn there(&self) -> Result<&dyn ControlStorage> {
        if self.away.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the store is away"));
        }
        Ok(&self.memory)
    }
}

#[async_trait]
impl ControlStorage for Leaving {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.there()?.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.there()?.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.there()?.apply(changes).await
    }
}

/// A queue, and what takes its control store away.
pub(crate) fn leaving() -> (Queue, Arc<AtomicBool>) {
    let away = Arc::new(AtomicBool::new(false));
    (over(Arc::new(Leaving { memory: MemoryQueue::new(), away: away.clone() })), away)
}
