//! The task that wakes waiting pulls for what this handle did not do itself: time, and other processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::{Clock, PartitionId, Result};
use sqlx::SqliteConnection;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::connect;
use crate::sql::{get, rows, statement};
use crate::tx::Now;
use crate::wake::Wake;

/// How long until the file is tried again after it could not be read.
const AFTER_ERROR: Duration = Duration::from_millis(250);

/// How coarse the file system's clock may be.
const COARSE: Duration = Duration::from_millis(50);
/// How long the log's time of writing is trusted in a row.
const LOOK_ANYHOW: Duration = Duration::from_millis(250);

/// What waits for a partition: how many are ready (at most `?3`), and when the next one is due.
pub(crate) const LOOK: &str = "SELECT
    (SELECT count(*) FROM (SELECT 1 FROM anyqueue_ready WHERE part = p.part LIMIT ?3 + 0)),
    (SELECT min(at_ms) FROM anyqueue_timed WHERE part = p.part)
    FROM anyqueue_partition p WHERE p.dead = ?1 AND p.name = ?2 AND p.paused = 0";

/// Runs until the handle closes. While nobody waits it sleeps.
pub(crate) async fn serve(wake: Arc<Wake>, config: Config, closed: CancellationToken) {
    let mut file = File::new(config.clone());
    let mut next_look = Instant::now();
    loop {
        if !wake.is_waited_for() {
            file.version = None; // what happens from now on must be looked at when somebody waits again
            next_look = Instant::now();
            tokio::select! {
                () = closed.cancelled() => return,
                () = wake.changed() => continue,
            }
        }
        let due_ms = wake.next_due_ms();
        tokio::select! {
            () = closed.cancelled() => return,
            () = wake.changed() => {}
            () = until(&config.clock, due_ms) => wake.fire(Now::of(&config.clock).ms),
            () = tokio::time::sleep_until(next_look) => {
                let pause = match file.look(&wake).await {
                    Ok(()) => config.poll_interval,
                    Err(error) => {
                        tracing::warn!(%error, "cannot look for what other processes did");
                        file.conn = None;
                        AFTER_ERROR
                    }
                };
                next_look = Instant::now() + pause;
            }
        }
    }
}

async fn until(clock: &Clock, due_ms: Option<i64>) {
    let Some(due_ms) = due_ms else { return std::future::pending().await };
    let left_ms = due_ms.saturating_sub(Now::of(clock).ms);
    clock.sleep(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))).await;
}

/// A connection that only looks. SQLite counts the commits of all others, this handle's writer included.
struct File {
    config: Config,
    log: PathBuf,
    conn: Option<SqliteConnection>,
    version: Option<i64>,
    looked: Instant,
    written: Option<SystemTime>,
}

impl File {
    fn new(config: Config) -> Self {
        let mut log = config.path.clone().into_os_string();
        log.push("-wal");
        Self { config, log: log.into(), conn: None, version: None, looked: Instant::now(), written: None }
    }

    /// Whether the log's time of writing rules out that anything was committed since the last look. This spares an idle
    /// process the hop to SQLite's thread. That time is coarse, so a log written just now proves nothing.
    fn is_quiet(&mut self) -> bool {
        let written = std::fs::metadata(&self.log).and_then(|log| log.modified()).ok();
        let settled = written.is_some_and(|written| written.elapsed().is_ok_and(|age| age > COARSE));
        let quiet = settled && written == self.written && self.looked.elapsed() < LOOK_ANYHOW;
        self.written = written;
        quiet
    }

    /// Looks at every partition somebody waits for, if anything was committed since the last time.
    async fn look(&mut self, wake: &Wake) -> Result<()> {
        if self.is_quiet() && self.version.is_some() {
            return Ok(());
        }
        self.looked = Instant::now();
        let conn = match &mut self.conn {
            Some(conn) => conn,
            none => none.insert(connect::reader(&self.config).await?),
        };
        let answer = rows(conn, statement("PRAGMA data_version")).await?;
        let version: Option<i64> = answer.first().map(|row| get(row, 0)).transpose()?;
        if version.is_some() && version == self.version {
            return Ok(());
        }
        // The list is taken after the version: whoever joins later looks for messages by itself, later still.
        for (partition, waiters) in wake.waiting() {
            look_at(conn, wake, &partition, waiters).await?;
        }
        self.version = version;
        Ok(())
    }
}

async fn look_at(
    conn: &mut SqliteConnection,
    wake: &Wake,
    partition: &PartitionId,
    waiters: usize,
) -> Result<()> {
    let query = statement(LOOK).bind(i64::from(partition.is_dead_letters())).bind(partition.name());
    let query = query.bind(i64::try_from(waiters).unwrap_or(i64::MAX));
    for row in rows(conn, query).await? {
        if let Some(at_ms) = get::<Option<i64>>(&row, 1)? {
            wake.due(partition, at_ms);
        }
        wake.ready(partition, usize::try_from(get::<i64>(&row, 0)?).unwrap_or(0));
    }
    Ok(())
}
