//! Queues whose control store can be away, or keeps changes waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Error, ErrorKind, Page, Queue, Result};
use anyqueue_memory::MemoryQueue;
use tokio::sync::{Semaphore, watch};

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

/// Keeps changes of some entries waiting.
#[derive(Debug)]
pub(crate) struct Hold {
    /// What the keys of these entries begin with.
    pub(crate) prefix: watch::Sender<Option<&'static str>>,
    /// A permit for each call that had to wait.
    pub(crate) waiting: Semaphore,
}

#[derive(Debug)]
struct Holding {
    memory: MemoryQueue,
    hold: Arc<Hold>,
}

impl Forward for Holding {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Holding {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.memory.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.memory.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        let mut held = self.hold.prefix.subscribe();
        let begins = |prefix: &str| changes.iter().any(|change| change.key().as_str().starts_with(prefix));
        let may_go = |prefix: Option<&'static str>| !prefix.is_some_and(begins);
        if !may_go(*held.borrow()) {
            self.hold.waiting.add_permits(1);
        }
        let _ = held.wait_for(|prefix| may_go(*prefix)).await;
        self.memory.apply(changes).await
    }
}

/// A queue, and what keeps changes of its control store waiting.
pub(crate) fn holding() -> (Queue, Arc<Hold>) {
    let hold = Arc::new(Hold { prefix: watch::Sender::new(None), waiting: Semaphore::new(0) });
    (over(Arc::new(Holding { memory: MemoryQueue::new(), hold: hold.clone() })), hold)
}
