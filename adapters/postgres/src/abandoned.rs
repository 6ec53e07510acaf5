//! Ending the server processes of abandoned calls.
//!
//! A process that waits for a lock does not notice that its client has gone. Without this, each abandoned
//! call would leave one behind, and the next call would need a new connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tokio::sync::Semaphore;

use crate::session::Process;

/// How long abandoned processes count as connections at most. A process that cannot be ended in this time
/// ends by the server's own limit, if the server runs at all.
const PATIENCE: Duration = Duration::from_secs(1);

const END: &str = "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
    JOIN unnest($1, $2) AS p(pid, started_us)
    ON a.pid = p.pid AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = p.started_us";

/// Ends abandoned processes, over one further connection at a time.
#[derive(Debug)]
pub(crate) struct Abandoned {
    options: PgConnectOptions,
    permits: Arc<Semaphore>,
    // A std mutex, because it is held for a few instructions and never across an await.
    left: Mutex<Left>,
}

/// Bounded by the number of connections: each has a permit.
#[derive(Debug, Default)]
struct Left {
    processes: Vec<Process>,
    is_served: bool,
}

impl Abandoned {
    pub(crate) fn new(options: PgConnectOptions, permits: Arc<Semaphore>) -> Self {
        Self { options, permits, left: Mutex::default() }
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a process and the permit of its connection. The permit is returned once the server was
    /// asked to end the process.
    pub(crate) fn take(self: &Arc<Self>, process: Process) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.permits.add_permits(1);
            return;
        };
        let mut left = self.left();
        left.processes.push(process);
        if !left.is_served {
            left.is_served = true;
            runtime.spawn(Arc::clone(self).serve());
        }
    }

    async fn serve(self: Arc<Self>) {
        loop {
            let processes = {
                let mut left = self.left();
                left.is_served = !left.processes.is_empty();
                std::mem::take(&mut left.processes)
            };
            if processes.is_empty() {
                return;
            }
            match tokio::time::timeout(PATIENCE, self.end(&processes)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "abandoned calls are still running at the server"),
                Err(_) => {
                    tracing::debug!("abandoned calls are still running at the server: it does not answer");
                }
            }
            self.permits.add_permits(processes.len());
        }
    }

    async fn end(&self, processes: &[Process]) -> Result<(), sqlx::Error> {
        let (pids, starts): (Vec<_>, Vec<_>) =
            processes.iter().map(|process| (process.pid, process.started_us)).unzip();
        let mut conn = self.options.connect().await?;
        sqlx::query(END).persistent(false).bind(pids).bind(starts).execute(&mut conn).await?;
        conn.close().await
    }
}
