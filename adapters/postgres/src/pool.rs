//! Connections: a few, opened when needed, kept while they work.
//!
//! Not sqlx's pool: that one asks the server something each time a connection is released, which would double the number of
//! round trips.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::{ErrorKind, Result, RetryClass};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::abandoned::Abandoned;
use crate::config::Config;
use crate::error::{classify, classify_connect, leaves_connection, own};
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
    // A std mutex: it is held for a few instructions and never across an await.
    idle: Mutex<Vec<Kept>>,
    /// Counts the times that a connection broke. What was opened before is then no longer trusted.
    generation: AtomicU64,
}

struct Kept {
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
        let kept = if let Some(kept) = kept {
            kept
        } else {
            let (conn, process) = self.connect().await?;
            Kept { conn, process, generation }
        };
        Ok(Lent { pool: self, kept: Some(kept), is_left: false, permit: Some(permit) })
    }

    async fn connect(&self) -> Result<(PgConnection, Option<Process>)> {
        let connect = async {
            let mut conn = self.options.connect().await?;
            let process = self.session.begin(&mut conn).await?;
            Ok((conn, process))
        };
        match tokio::time::timeout(self.connect_timeout, connect).await {
            Ok(connected) => connected.map_err(|error| classify_connect(error, &self.target)),
            Err(_) => Err(own(ErrorKind::Unavailable, format!("{} did not answer in time", self.target))),
        }
    }

    /// Runs one statement in a transaction of its own.
    pub(crate) async fn fetch(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>> {
        self.lend().await?.fetch(query).await
    }

    /// Runs one statement that stores rows, in a transaction of its own, and returns how many: none if one of them is in the way.
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

/// A connection on loan. It goes back if what was done with it came to its end; else it is closed, and its server process is ended.
pub(crate) struct Lent<'p> {
    pool: &'p Pool,
    kept: Option<Kept>,
    /// Whether something was begun with it that has not come to its end.
    is_left: bool,
    permit: Option<SemaphorePermit<'p>>,
}

impl Lent<'_> {
    /// Runs one statement in a transaction of its own.
    pub(crate) async fn fetch(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>> {
        let Pool { prepared, session, .. } = self.pool;
        self.run(async |conn: &mut PgConnection| {
            if *prepared {
                return query.fetch_all(conn).await;
            }
            // Preparing and running an unnamed statement are two round trips, which a transaction keeps on one connection
            // behind a proxy that hands out its own per transaction.
            let mut tx = conn.begin_with(session.transaction()).await?;
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
        let Some(kept) = self.kept.as_mut().filter(|_| !self.is_left) else {
            return Err(own(ErrorKind::Unavailable, "the connection broke in an earlier step"));
        };
        self.is_left = true; // also if this future is dropped half-way
        let Ok(done) = tokio::time::timeout(self.pool.call_timeout, work(&mut kept.conn)).await else {
            self.pool.renew();
            let text = "the server did not answer in time: whether it was done is not known";
            return Err(own(ErrorKind::TimedOut, text).with_retry(RetryClass::MayDuplicate));
        };
        match done {
            Ok(value) => {
                self.is_left = false;
                Ok(value)
            }
            Err(error) => {
                if leaves_connection(&error) {
                    self.is_left = false;
                } else {
                    if matches!(error, sqlx::Error::Database(_)) {
                        self.kept = None; // its last word: the process ends by itself
                    }
                    self.pool.renew();
                }
                Err(classify(error))
            }
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        if self.is_left {
            let process = kept.process;
            drop(kept); // closed first, so that nothing that it has not read yet is begun
            if let Some(process) = process
                && let Some(permit) = self.permit.take()
            {
                permit.forget();
                self.pool.abandoned.take(process);
            }
        } else if kept.generation == self.pool.generation.load(Ordering::Acquire)
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
