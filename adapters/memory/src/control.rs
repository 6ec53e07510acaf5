//! The calls for control entries.

use std::time::SystemTime;

use anyqueue::adapter::{ControlStorage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Operation, Page, Result};

use crate::ends::to_millis;
use crate::entries::Entries;
use crate::state::State;
use crate::storage::MemoryQueue;

impl MemoryQueue {
    fn control<T>(&self, command: impl FnOnce(&mut Entries, SystemTime) -> T) -> Result<Stamped<T>> {
        self.ensure_open(Operation::Control)?;
        Ok(self.store.run(|state: &mut State, _| {
            let now = to_millis(self.store.clock.wall());
            state.entries.free_expired(now);
            Stamped::new(now, command(&mut state.entries, now))
        }))
    }
}

#[async_trait]
impl ControlStorage for MemoryQueue {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.control(|entries, now| keys.iter().map(|key| entries.get(key, now).cloned()).collect())
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.control(|entries, now| entries.list(prefix, &page, now))
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        let Stamped { now, value } = self.control(|entries, now| {
            changes.iter().map(|change| entries.apply(change, now)).collect::<Result<Vec<_>>>()
        })?;
        Ok(Stamped::new(now, value?))
    }
}
