//! A few connections, which are opened when needed and kept while they are usable.
//!
//! This replaces sqlx's pool, which sends a request each time a connection is released and so would double
//! the number of round trips.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::{ErrorKind, Result, RetryClass};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::abandoned::Abandoned;
use crate::config::Config;
use crate::error::{ERRORS, classify, classify_connect, keeps_connection};
use crate::session::{Process, Session};

/// The connections of one handle.
pub(crate) struct Pool {
    options: PgConnectOptions,
    session: Session,
    target: String,
    prepared: bool,
    connect_timeout: Duration,
    call_timeout: Duration,
    connections: u32,
    permits: Arc<Semaphore>,
    abandoned: Arc<Abandoned>,
    // A std mutex, because it is held for a few instructions and never across an await.
    idle: Mutex<Vec<PoolEntry>>,
    /// Incremented when a connection breaks. Connections that were opened earlier are then no longer trusted.
    generation: AtomicU64,
}

struct PoolEntry {
    conn: PgConnection,
    process: Option<Process>,
    generation: u64,
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Self {
        let permits = Arc::new(Semaphore::new(usize::try_from(config.max_connections).unwrap_or(1)));
        Self {
            options: config.connect.clone(),
            session: Session::new(config),
            target: config.target(),
            prepared: config.prepared,
            connect_timeout: config.connect_timeout,
            call_timeout: config.call_timeout,
            connections: config.max_connections,
            abandoned: Arc::new(Abandoned::new(config.connect.clone(), Arc::clone(&permits))),
            permits,
            idle: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PoolEntry>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a connection for one call.
    pub(crate) async fn acquire(&self) -> Result<PooledConnection<'_>> {
        let permit = self.permit().await?;
        self.open(permit).await
    }

    /// Returns a connection for one call; `None` if the call is stopped before one is free. Without this, a
    /// caller that goes away again and again would leave more and more calls that wait here.
    pub(crate) async fn acquire_unless(
        &self,
        stop: &CancellationToken,
    ) -> Result<Option<PooledConnection<'_>>> {
        let permit = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(None),
            permit = self.permit() => permit?,
        };
        // From here on it is not stopped: who takes the permit next would only begin to connect anew.
        self.open(permit).await.map(Some)
    }

    async fn permit(&self) -> Result<SemaphorePermit<'_>> {
        let busy = || {
            ERRORS
                .error(ErrorKind::TimedOut, "all connections of this handle are busy: raise max_connections")
        };
        let permit =
            tokio::time::timeout(self.call_timeout, self.permits.acquire()).await.map_err(|_| busy())?;
        permit.map_err(|_| anyqueue::Error::closed())
    }

    async fn open<'p>(&'p self, permit: SemaphorePermit<'p>) -> Result<PooledConnection<'p>> {
        let generation = self.generation.load(Ordering::Acquire);
        let entry = self.idle().pop();
        let entry = if let Some(entry) = entry {
            entry
        } else {
            let (conn, process) = self.connect().await?;
            PoolEntry { conn, process, generation }
        };
        Ok(PooledConnection { pool: self, entry: Some(entry), is_mid_call: false, permit: Some(permit) })
    }

    async fn connect(&self) -> Result<(PgConnection, Option<Process>)> {
        let connect = async {
            let mut conn = self.options.connect().await?;
            let process = self.session.begin(&mut conn).await?;
            Ok((conn, process))
        };
        match tokio::time::timeout(self.connect_timeout, connect).await {
            Ok(connected) => connected.map_err(|error| classify_connect(error, &self.target)),
            Err(_) => {
                Err(ERRORS.error(ErrorKind::Unavailable, format!("{} did not answer in time", self.target)))
            }
        }
    }

    /// Runs one statement in a transaction of its own.
    pub(crate) async fn fetch(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>> {
        self.acquire().await?.fetch(query).await
    }

    /// Runs one statement that stores rows, in a transaction of its own. Returns how many rows it stored:
    /// none if one of them exists already.
    pub(crate) async fn store(&self, query: Query<'_, Postgres, PgArguments>) -> Result<u64> {
        let insert = async |conn: &mut PgConnection| match query.execute(conn).await {
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(0),
            done => done.map(|done| done.rows_affected()),
        };
        self.acquire().await?.run(insert).await
    }

    /// Runs several statements in one transaction.
    pub(crate) async fn transact<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T> {
        let within = async |conn: &mut PgConnection| {
            let mut tx = conn.begin_with(self.session.transaction()).await?;
            let done = work(&mut tx).await?;
            tx.commit().await?;
            Ok(done)
        };
        self.acquire().await?.run(within).await
    }

    /// No longer trusts connections that were opened before.
    fn distrust_all(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.idle().clear();
    }

    /// Waits for connections in use, and closes all connections.
    pub(crate) async fn close(&self) {
        let all = tokio::time::timeout(self.call_timeout, self.permits.acquire_many(self.connections)).await;
        drop(all); // whether or not they were returned in time
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle());
        for entry in idle {
            // Whether the server answers no longer matters.
            let _ = tokio::time::timeout(Duration::from_secs(1), entry.conn.close()).await;
        }
    }
}

/// A connection in use. It is returned to the pool if its last call has finished; otherwise it is closed, and its server process
/// is ended.
pub(crate) struct PooledConnection<'p> {
    pool: &'p Pool,
    entry: Option<PoolEntry>,
    /// Whether a call has started and not finished.
    is_mid_call: bool,
    permit: Option<SemaphorePermit<'p>>,
}

impl PooledConnection<'_> {
    /// Runs one statement in a transaction of its own.
    pub(crate) async fn fetch(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>> {
        let Pool { prepared, session, .. } = self.pool;
        self.run(async |conn: &mut PgConnection| {
            if *prepared {
                return query.fetch_all(conn).await;
            }
            // Preparing and running an unnamed statement takes two round trips. A transaction keeps both on
            // one connection behind a proxy that assigns connections per transaction.
            let mut tx = conn.begin_with(session.transaction()).await?;
            let rows = query.persistent(false).fetch_all(&mut *tx).await?;
            tx.commit().await?;
            Ok(rows)
        })
        .await
    }

    /// Uses the connection, within the time that a call may take.
    pub(crate) async fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T> {
        let Some(entry) = self.entry.as_mut().filter(|_| !self.is_mid_call) else {
            return Err(ERRORS.error(ErrorKind::Unavailable, "the connection broke in an earlier step"));
        };
        self.is_mid_call = true; // also if this future is dropped half-way
        let Ok(done) = tokio::time::timeout(self.pool.call_timeout, work(&mut entry.conn)).await else {
            self.pool.distrust_all();
            let text = "the server did not answer in time: it is not known whether the call took effect";
            return Err(ERRORS.error(ErrorKind::TimedOut, text).with_retry(RetryClass::MayDuplicate));
        };
        match done {
            Ok(value) => {
                self.is_mid_call = false;
                Ok(value)
            }
            Err(error) => {
                if keeps_connection(&error) {
                    self.is_mid_call = false;
                } else {
                    if matches!(error, sqlx::Error::Database(_)) {
                        self.entry = None; // the server's last message: its process ends by itself
                    }
                    self.pool.distrust_all();
                }
                Err(classify(error))
            }
        }
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        if self.is_mid_call {
            let process = entry.process;
            drop(entry); // closed first, so that the process starts nothing that it has not read yet
            if let Some(process) = process
                && let Some(permit) = self.permit.take()
            {
                permit.forget();
                self.pool.abandoned.take(process);
            }
        } else if entry.generation == self.pool.generation.load(Ordering::Acquire)
            && !self.pool.permits.is_closed()
        {
            self.pool.idle().push(entry);
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("target", &self.target).finish_non_exhaustive()
    }
}
