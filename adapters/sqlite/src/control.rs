//! Control entries: asking the writer for changes, and reading beside it.

use anyqueue::adapter::{ControlStorage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Error, ErrorKind, Operation, Page, Result};
use rusqlite::Connection;

use crate::SqliteQueue;
use crate::admin::{Admin, AdminAnswer};
use crate::entries::{self, moment};
use crate::error::ERRORS;
use crate::now::Now;

#[async_trait]
impl ControlStorage for SqliteQueue {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        let (keys, clock) = (keys.to_vec(), self.inner.config.clock.clone());
        let read = move |conn: &Connection| {
            let now_ms = Now::of(&clock).ms;
            let found: Result<Vec<_>> = keys.iter().map(|key| entries::get(conn, key, now_ms)).collect();
            Ok(Stamped::new(moment(now_ms), found?))
        };
        self.read(Operation::Control, read).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        let (prefix, clock) = (prefix.to_owned(), self.inner.config.clock.clone());
        let read = move |conn: &Connection| {
            let now_ms = Now::of(&clock).ms;
            let found = entries::list(conn, &prefix, page.after.as_ref(), page.limit, now_ms)?;
            Ok(Stamped::new(moment(now_ms), found))
        };
        self.read(Operation::Control, read).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        match self.admin(Admin::Control(changes.to_vec()), Operation::Control).await? {
            AdminAnswer::Applied(applied) => Ok(applied),
            _ => Err(no_answer()),
        }
    }
}

fn no_answer() -> Error {
    ERRORS
        .error(ErrorKind::Internal, "the writer answered another request")
        .with_operation(Operation::Control)
}
