//! Connections: a few, opened when needed, kept while they work.
//!
//! Not sqlx's pool: that one asks the server something each time a connection is given back, which would double the number of
//! round trips.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::{ErrorKind, Result, RetryClass};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::Config;
use crate::error::{classify, classify_connect, leaves_connection, own};

/// The connections of one handle.
pub(crate) struct Pool {
    options: PgConnectOptions,
    target: String,
    prepared: bool,
    connect_timeout: Duration,
    call_timeout: Duration,
    connections: u32,
    permits: Semaphore,
    // A std mutex: it is held for a few instructions and never across an await.
    idle: Mutex<Vec<Kept>>,
    /// Counts the times that a connection broke. What was opened before is then no longer trusted.
    generation: AtomicU64,
}

struct Kept {
    conn: PgConnection,
    generation: u64,
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            options: config.connect.clone(),
            target: config.target(),
            prepared: config.prepared,
            connect_timeout: config.connect_timeout,
            call_timeout: config.call_timeout,
            connections: config.max_connections,
            permits: Semaphore::new(usize::try_from(config.max_connections).unwrap_or(1)),
            idle: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for one piece of work.
    pub(crate) async fn lend(&self) -> Result<Lent<'_>> {
        let busy =
            || own(ErrorKind::TimedOut, "all connections of this handle are busy: raise max_connections");
        let permit =
            tokio::time::timeout(self.call_timeout, self.permits.acquire()).await.map_err(|_| busy())?;
        let permit = permit.map_err(|_| anyqueue::Error::closed())?;
        let generation = self.generation.load(Ordering::Acquire);
        let kept = self.idle().pop();
        let kept = match kept {
            Some(kept) => kept,
            None => Kept { conn: self.connect().await?, generation },
        };
        Ok(Lent { pool: self, kept: Some(kept), _permit: permit })
    }

    pub(crate) async fn connect(&self) -> Result<PgConnection> {
        match tokio::time::timeout(self.connect_timeout, self.options.connect()).await {
            Ok(connected) => connected.map_err(|error| classify_connect(error, &self.target)),
            Err(_) => Err(own(ErrorKind::Unavailable, format!("{} did not answer in time", self.target))),
        }
    }

    /// Runs one statement in a transaction of its own.
    pub(crate) async fn fetch(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>> {
        self.lend().await?.fetch(query).await
    }

    /// Runs one statement that stores rows, in a transaction of its own, and answers how many: none if one of them is in the way.
    pub(crate) async fn store(&self, query: Query<'_, Postgres, PgArguments>) -> Result<u64> {
        let insert = async |conn: &mut PgConnection| match query.execute(conn).await {
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(0),
            done => done.map(|done| done.rows_affected()),
        };
        self.lend().await?.run(insert).await
    }

    /// Distrusts all connections that were opened before.
    fn renew(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.idle().clear();
    }

    /// Waits for what is lent, and closes.
    pub(crate) async fn close(&self) {
        let all = tokio::time::timeout(self.call_timeout, self.permits.acquire_many(self.connections)).await;
        drop(all); // whether or not they came back in time
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle());
        for kept in idle {
            // A server that does not answer the farewell is of no interest any more.
            let _ = tokio::time::timeout(Duration::from_secs(1), kept.conn.close()).await;
        }
    }
}

/// A connection on loan. It goes back if what was done with it came to its end; else it is closed.
pub(crate) struct Lent<'p> {
    pool: &'p Pool,
    kept: Option<Kept>,
    _permit: SemaphorePermit<'p>,
}

impl Lent<'_> {
    /// Runs one statement in a transaction of its own.
    pub(crate) async fn fetch(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>> {
        let prepared = self.pool.prepared;
        self.run(async |conn: &mut PgConnection| {
            if prepared {
                return query.fetch_all(conn).await;
            }
            // Preparing and running an unnamed statement are two round trips, which a transaction keeps on one connection
            // behind a proxy that hands out its own per transaction.
            let mut tx = conn.begin().await?;
            let rows = query.persistent(false).fetch_all(&mut *tx).await?;
            tx.commit().await?;
            Ok(rows)
        })
        .await
    }

    /// Does something with the connection, within the time that a call may take.
    pub(crate) async fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T> {
        // Taken out, so that it is gone if this future is dropped half-way.
        let Some(mut kept) = self.kept.take() else {
            return Err(own(ErrorKind::Unavailable, "the connection broke in an earlier step"));
        };
        let Ok(done) = tokio::time::timeout(self.pool.call_timeout, work(&mut kept.conn)).await else {
            self.pool.renew();
            let text = "the server did not answer in time: whether it was done is not known";
            return Err(own(ErrorKind::TimedOut, text).with_retry(RetryClass::MayDuplicate));
        };
        match done {
            Ok(value) => {
                self.kept = Some(kept);
                Ok(value)
            }
            Err(error) => {
                if leaves_connection(&error) {
                    self.kept = Some(kept);
                } else {
                    self.pool.renew();
                }
                Err(classify(error))
            }
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take()
            && kept.generation == self.pool.generation.load(Ordering::Acquire)
            && !self.pool.permits.is_closed()
        {
            self.pool.idle().push(kept);
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("target", &self.target).finish_non_exhaustive()
    }
}
