//! How the suite reaches SQLite: a file per case, and other processes on the same file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyqueue::adapter::{QueueStorage, Storage};
use anyqueue::{Clock, Error, ErrorKind, MessageId, PartitionId, Result};
use anyqueue_conformance::{Harness, Need, Opening, async_trait, corrupted, least};
use anyqueue_sqlite::SqliteQueue;
use rusqlite::Connection;

/// A directory of its own, gone with the run.
pub(crate) struct Sqlite(tempfile::TempDir);

impl Sqlite {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary directory: {error}")))
    }

    fn path(&self, namespace: &str) -> PathBuf {
        self.0.path().join(format!("{namespace}.db"))
    }
}

fn body(path: &Path, id: MessageId) -> rusqlite::Result<Vec<u8>> {
    let select = "SELECT body FROM anyqueue_message WHERE id = ?";
    Connection::open(path)?.query_row(select, [id.as_bytes()], |row| row.get(0))
}

fn replace(path: &Path, id: MessageId, body: &[u8]) -> rusqlite::Result<()> {
    let update = "UPDATE anyqueue_message SET body = ? WHERE id = ?";
    Connection::open(path)?.execute(update, (body, id.as_bytes())).map(drop)
}

async fn open(path: PathBuf) -> Result<Arc<dyn Storage>> {
    let queue = SqliteQueue::open(path).await?;
    queue.init().await?;
    Ok(Arc::new(queue))
}

#[async_trait]
impl Harness for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open(self.path(namespace)).await
    }

    fn open_on(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let builder = SqliteQueue::builder(self.path(namespace)).clock(clock);
        Some(Box::pin(async move { Ok(Arc::new(builder.open().await?) as Arc<dyn Storage>) }))
    }

    fn address(&self, namespace: &str) -> Option<String> {
        self.path(namespace).to_str().map(str::to_owned)
    }

    async fn attach(address: &str) -> Result<Arc<dyn Storage>> {
        open(address.into()).await
    }

    fn least(&self) -> &'static [Need] {
        least::EVERYTHING
    }

    fn rule(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::FaultTarget => {
                Some("SQLite is a library: there is no server to kill, and no connection to cut")
            }
            Need::SkewedClient => Some("time is the host's: all who use the file read one clock"),
            _ => None,
        }
    }

    fn corrupts(&self) -> bool {
        true
    }

    async fn corrupt(&self, namespace: &str, _: &PartitionId, id: MessageId) -> Result<()> {
        let refused =
            |error| Error::new(ErrorKind::Internal, "the row could not be changed").with_source(error);
        let body = body(&self.path(namespace), id).map_err(refused)?;
        replace(&self.path(namespace), id, &corrupted(&body)?).map_err(refused)
    }

    async fn remove(&self, namespace: &str) {
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.path(namespace).into_os_string();
            path.push(suffix);
            // The directory goes with the run in any case.
            let _ = std::fs::remove_file(path);
        }
    }
}
