//! The storage: one handle on a queue in a database.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use anyqueue::adapter::{
    AmendQueueStorage, Capabilities, ControlStorage, EndWatches, Hint, InspectQueueStorage,
    LedgerQueueStorage, PauseQueueStorage, QueueStorage, Storage, StorageUrl, Waiters, async_trait,
};
use anyqueue::{Error, Health, Operation, PartitionId, Result};
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::capabilities::capabilities;
use crate::config::{Config, PostgresBuilder};
use crate::error::{ERRORS, NAME, wrong_isolation};
use crate::hint_sender::HintSender;
use crate::notifier::Notifier;
use crate::poller::{Listener, LockedPauses, Poller};
use crate::pool::Pool;
use crate::scan_starts::ScanStarts;
use crate::sql::{Statements, get};
use crate::{permissions, schema};

/// A durable queue in a schema of a `PostgreSQL` database. Any number of processes may use it at once. Clones share the handle.
#[derive(Clone)]
pub struct PostgresQueue {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: Config,
    capabilities: Capabilities,
    pub(crate) pool: Arc<Pool>,
    pub(crate) statements: Arc<Statements>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) scan_starts: ScanStarts,
    /// Partitions that are known to exist, for pushes in the application's transactions.
    pub(crate) known_partitions: Mutex<HashSet<PartitionId>>,
    pub(crate) hint_sender: HintSender,
    pub(crate) end_watches: Arc<EndWatches>,
    /// Cancelled when a pull waits for the first time.
    pub(crate) listen: CancellationToken,
    pub(crate) closed: CancellationToken,
    tasks: TaskTracker,
}

/// The tasks end with the last handle.
impl Drop for Inner {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl std::fmt::Debug for PostgresQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresQueue").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl PostgresBuilder {
    /// Connects and, with [`create`](Self::create), prepares the schema. Must be called within a tokio runtime with time and I/O
    /// enabled. The handle ends with that runtime.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of bounds or an unknown database, `Unavailable` if the server cannot be reached,
    /// `AccessDenied` for a wrong password or a missing permission, `Incompatible` for a server that is too old, a schema of a
    /// newer release or, without `create`, a missing schema.
    pub async fn open(self) -> Result<PostgresQueue> {
        let config = self.checked().map_err(|error| error.with_operation(Operation::Open))?;
        PostgresQueue::from_config(config).await
    }
}

impl PostgresQueue {
    /// Connects by URL, as in `postgres://user:password@host:5432/database?schema=jobs`, with the options of
    /// [`backend`](crate::backend), and prepares the schema.
    ///
    /// # Errors
    /// Those of [`PostgresBuilder::open`].
    pub async fn open(url: &str) -> Result<Self> {
        Self::builder(url)?.open().await
    }

    /// Options for connecting by URL.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid URL, or one of another backend. The error does not show it, since it may
    /// contain a password.
    pub fn builder(url: &str) -> Result<PostgresBuilder> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Open);
        PostgresBuilder::from_url(&StorageUrl::parse(url).map_err(stamp)?).map_err(stamp)
    }

    pub(crate) async fn from_config(config: Config) -> Result<Self> {
        let opening = |error: Error| error.with_backend(NAME).with_operation(Operation::Open);
        let pool = Arc::new(Pool::new(&config));
        schema::server_version(&pool).await.map_err(opening)?;
        prepare(&config, &pool).await.map_err(opening)?;
        let flushed = read_settings(&pool).await.map_err(opening)?;
        let waiters = Arc::default();
        let inner = Inner {
            capabilities: capabilities(&config, flushed),
            statements: Arc::new(Statements::new(&config.schema)),
            hint_sender: HintSender {
                waiters: Arc::clone(&waiters),
                outbox: config.notify.then(Arc::default),
            },
            waiters,
            end_watches: Arc::default(),
            scan_starts: ScanStarts::default(),
            known_partitions: Mutex::default(),
            listen: CancellationToken::new(),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            pool,
            config,
        };
        inner.start();
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    /// Runs one statement in a transaction of its own.
    pub(crate) async fn fetch(
        &self,
        query: Query<'_, Postgres, PgArguments>,
        operation: Operation,
    ) -> Result<Vec<PgRow>> {
        if self.is_closed() {
            return Err(ERRORS.closed(operation));
        }
        let rows = self.inner.pool.fetch(query).await;
        rows.map_err(|error| error.with_backend(NAME).with_operation(operation))
    }

    /// Runs one statement and returns its rows; `None` if it is stopped before a connection is free for it.
    pub(crate) async fn fetch_unless(
        &self,
        stop: &CancellationToken,
        query: Query<'_, Postgres, PgArguments>,
        operation: Operation,
    ) -> Result<Option<Vec<PgRow>>> {
        if self.is_closed() {
            return Err(ERRORS.closed(operation));
        }
        let fetched = async {
            let Some(mut connection) = self.inner.pool.acquire_unless(stop).await? else { return Ok(None) };
            connection.fetch(query).await.map(Some)
        };
        fetched.await.map_err(|error: Error| error.with_backend(NAME).with_operation(operation))
    }

    /// Wakes waiting pulls, here and in other processes.
    pub(crate) fn send_hint(&self, partition: &PartitionId, hint: Hint) {
        self.inner.hint_sender.send(partition, hint);
    }
}

impl Inner {
    fn start(&self) {
        let (waiters, pool, statements) = (&self.waiters, &self.pool, &self.statements);
        let sender = fastrand::u64(..);
        let poller = Poller {
            waiters: Arc::clone(waiters),
            pool: Arc::clone(pool),
            statements: Arc::clone(statements),
            poll_interval: self.config.poll_interval,
            locked: LockedPauses::default(),
        };
        self.tasks.spawn(poller.serve(self.closed.clone()));
        if let Some(outbox) = &self.hint_sender.outbox {
            let notifier = Notifier {
                outbox: Arc::clone(outbox),
                end_watches: Arc::clone(&self.end_watches),
                pool: Arc::clone(pool),
                statements: Arc::clone(statements),
                channel: self.config.schema.channel(),
                sender,
            };
            self.tasks.spawn(notifier.serve(self.closed.clone()));
            let (config, begin) = (self.config.clone(), self.listen.clone());
            let end_watches = Arc::clone(&self.end_watches);
            let listener = Listener { waiters: Arc::clone(waiters), end_watches, config, sender, begin };
            self.tasks.spawn(listener.serve(self.closed.clone()));
        }
        self.tasks.close();
    }
}

/// Whether the server waits for its disk at each commit.
async fn read_settings(pool: &Pool) -> Result<bool> {
    let text = "SELECT current_setting('synchronous_commit') <> 'off' AND current_setting('fsync') = 'on',
        current_setting('transaction_isolation')";
    let rows = pool.fetch(sqlx::query(text)).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let isolation: String = get(row, 1)?;
    if isolation != "read committed" {
        return Err(wrong_isolation(&isolation));
    }
    get(row, 0)
}

async fn prepare(config: &Config, pool: &Pool) -> Result<()> {
    if config.create {
        schema::migrate(pool, &config.schema).await
    } else {
        schema::check(pool, &config.schema).await
    }
}

#[async_trait]
impl QueueStorage for PostgresQueue {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    async fn init(&self) -> Result<()> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Init));
        }
        let prepared = prepare(&self.inner.config, &self.inner.pool).await;
        prepared.map_err(|error| error.repeatable().with_backend(NAME).with_operation(Operation::Init))
    }

    async fn check(&self) -> Result<Health> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Check));
        }
        let stamp = |error: Error| error.repeatable().with_backend(NAME).with_operation(Operation::Check);
        schema::check(&self.inner.pool, &self.inner.config.schema).await.map_err(stamp)?;
        permissions::check(&self.inner.pool, &self.inner.config.schema).await.map_err(stamp)?;
        let mut health = Health::of_version(schema::server_version(&self.inner.pool).await.map_err(stamp)?);
        health.server_time = schema::server_time(&self.inner.pool).await.map_err(stamp)?;
        health.warnings = self.bloat().await.map_err(stamp)?.warnings();
        Ok(health)
    }

    async fn close(&self) -> Result<()> {
        self.inner.closed.cancel();
        self.inner.tasks.wait().await; // each task ends within a second or the time of a call
        self.inner.pool.close().await;
        Ok(())
    }
}

impl Storage for PostgresQueue {
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
