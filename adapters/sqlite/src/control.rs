//! Control entries: changes are sent to the writer, reads bypass it.

use anyqueue::adapter::{ControlStorage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Error, ErrorKind, Operation, Page, Result};
use rusqlite::Connection;

use crate::SqliteQueue;
use crate::admin::{Admin, AdminAnswer};
use crate::entries::{self, moment};
use crate::error::{ERRORS, classify};
use crate::steps::file_ms;

#[async_trait]
impl ControlStorage for SqliteQueue {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        let keys = keys.to_vec();
        self.read_at_once(move |conn, now_ms| {
            keys.iter().map(|key| entries::get(conn, key, now_ms)).collect()
        })
        .await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        let prefix = prefix.to_owned();
        self.read_at_once(move |conn, now_ms| {
            entries::list(conn, &prefix, page.after.as_ref(), page.limit, now_ms)
        })
        .await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        match self.admin(Admin::Control(changes.to_vec()), Operation::Control).await? {
            AdminAnswer::Applied(applied) => Ok(applied),
            _ => Err(no_answer()),
        }
    }
}

impl SqliteQueue {
    /// Reads entries as they were at one moment, which is returned too.
    async fn read_at_once<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection, i64) -> Result<T> + Send + 'static,
    ) -> Result<Stamped<T>> {
        let (clock, steady) = (self.inner.config.clock.clone(), self.inner.config.steady.clone());
        let at_once = move |conn: &Connection| {
            let snapshot = conn.unchecked_transaction().map_err(classify)?;
            let now_ms = file_ms(&snapshot, &clock, steady.as_ref())?;
            let found = read(&snapshot, now_ms)?;
            snapshot.finish().map_err(classify)?;
            Ok(Stamped::new(moment(now_ms), found))
        };
        self.read(Operation::Control, at_once).await
    }
}

fn no_answer() -> Error {
    ERRORS
        .error(ErrorKind::Internal, "the writer answered another request")
        .with_operation(Operation::Control)
}
