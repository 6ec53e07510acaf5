//! The storage: one handle on a queue file.

use std::path::Path;
use std::sync::Arc;

use anyqueue::adapter::{
    AmendQueueStorage, Capabilities, ControlStorage, InspectQueueStorage, LedgerQueueStorage,
    PauseQueueStorage, QueueStorage, Storage, Waiters, async_trait,
};
use anyqueue::{Error, Health, Operation, Result};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::capabilities::capabilities;
use crate::config::{Config, SqliteBuilder, Synchronous};
use crate::error::{ERRORS, NAME};
use crate::job::{Answer, Job, QUEUED, Work};
use crate::now::Now;
use crate::readers::{Readers, blocking};
use crate::tx::Parts;
use crate::writer::Writer;
use crate::{connect, schema};

/// A durable queue in one SQLite file. Several processes may use the file at once. Clones share the handle.
#[derive(Clone)]
pub struct SqliteQueue {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: Config,
    capabilities: Capabilities,
    jobs: mpsc::Sender<Job>,
    pub(crate) waiters: Arc<Waiters<i64>>,
    readers: Readers,
    pub(crate) closed: CancellationToken,
    closing: watch::Receiver<Option<Result<()>>>,
}

/// The tasks end with the last handle.
impl Drop for Inner {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl std::fmt::Debug for SqliteQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteQueue").field("path", &self.inner.config.path).finish_non_exhaustive()
    }
}

impl SqliteBuilder {
    /// Opens the file and, with [`create`](Self::create), prepares it. Must be called within a tokio runtime
    /// with time enabled. The handle ends with that runtime.
    ///
    /// # Errors
    /// - `InvalidInput` for an option out of bounds or a missing directory.
    /// - `AccessDenied` if the file cannot be opened or written.
    /// - `Corrupt` for a file that is not a database.
    /// - `Incompatible` for a file of a newer release or, without `create`, one without the queue's tables.
    pub async fn open(self) -> Result<SqliteQueue> {
        let config = self.0.checked().map_err(|error| error.with_operation(Operation::Open))?;
        SqliteQueue::from_config(config).await
    }
}

impl SqliteQueue {
    /// Opens a queue file with default options, creating it if it is missing.
    ///
    /// # Errors
    /// Those of [`SqliteBuilder::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open().await
    }

    /// Options for opening a queue file.
    pub fn builder(path: impl AsRef<Path>) -> SqliteBuilder {
        SqliteBuilder::new(path.as_ref())
    }

    pub(crate) async fn from_config(config: Config) -> Result<Self> {
        let opening = |error: Error| error.with_operation(Operation::Open);
        let prepared = config.clone();
        let opened = blocking(move || prepare(&prepared)).await.map_err(opening)?;
        config.identity.learn_logs(&config.path);
        let power = connect::survives_power_loss(&opened).map_err(opening)?;
        let (jobs, queue) = mpsc::channel(QUEUED);
        let (closing_sender, closing) = watch::channel(None);
        let (waiters, stop) = (Arc::new(Waiters::new()), CancellationToken::new());
        let writer = Writer {
            config: config.clone(),
            conn: Some(opened),
            flushes: config.synchronous == Synchronous::Full,
            waiters: Arc::clone(&waiters),
            parts: Parts::default(),
            jobs: jobs.downgrade(),
        };
        writer.start(queue, stop.clone(), closing_sender).map_err(opening)?;
        let capabilities = capabilities(&config, power);
        let readers = Readers::new(&config);
        let inner = Inner { config, capabilities, jobs, waiters, readers, closed: stop, closing };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Sends a request to the writer, which answers after the commit.
    pub(crate) async fn ask(&self, work: Work, operation: Operation) -> Result<Answer> {
        if self.inner.closed.is_cancelled() {
            return Err(ERRORS.closed(operation));
        }
        let (reply, answer) = oneshot::channel();
        self.inner.jobs.send(Job { work, reply }).await.map_err(|_| ERRORS.closed(operation))?;
        let outcome = answer.await.map_err(|_| ERRORS.closed(operation))?;
        outcome.map_err(|error| error.with_backend(NAME).with_operation(operation))
    }

    /// Reads on another connection than the writer's.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        operation: Operation,
        read: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.inner.closed.is_cancelled() {
            return Err(ERRORS.closed(operation));
        }
        let answer = self.inner.readers.read(read).await;
        answer.map_err(|error| error.with_backend(NAME).with_operation(operation))
    }
}

/// Opens the file and makes sure that the tables exist.
fn prepare(config: &Config) -> Result<Connection> {
    let conn = connect::writer(config)?;
    if config.create {
        schema::migrate(&conn, Now::of(&config.clock).ms)?;
    } else {
        schema::check(&conn)?;
    }
    Ok(conn)
}

#[async_trait]
impl QueueStorage for SqliteQueue {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    async fn init(&self) -> Result<()> {
        if self.inner.closed.is_cancelled() {
            return Err(ERRORS.closed(Operation::Init));
        }
        let config = self.inner.config.clone();
        let prepared = blocking(move || prepare(&config).map(drop)).await;
        prepared.map_err(|error| error.with_backend(NAME).with_operation(Operation::Init))
    }

    async fn check(&self) -> Result<Health> {
        if self.inner.closed.is_cancelled() {
            return Err(ERRORS.closed(Operation::Check));
        }
        let look = |conn: &Connection| schema::check(conn).and_then(|()| connect::check_writable(conn));
        self.read(Operation::Check, look).await?;
        // A transaction that writes nothing. It still needs the write lock, within the busy timeout.
        self.ask(Work::Settle { endings: Vec::new(), claim: None }, Operation::Check).await?;
        let mut health = Health::of_version(rusqlite::version());
        health.warnings = self.file_report().await?.warnings();
        Ok(health)
    }

    async fn close(&self) -> Result<()> {
        self.inner.closed.cancel();
        let mut closing = self.inner.closing.clone();
        let end = closing.wait_for(Option::is_some).await.map(|end| (*end).clone());
        self.inner.readers.close().await;
        match end {
            Ok(Some(Err(error))) => Err(error.with_backend(NAME).with_operation(Operation::Close)),
            _ => Ok(()), // an error here says that the runtime ended and the writer with it
        }
    }
}

impl Storage for SqliteQueue {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        Some(self)
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Some(self)
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}
