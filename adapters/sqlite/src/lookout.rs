//! The task that wakes waiting pulls for what this handle did not do itself: delays and leases that end, and
//! the work of other processes. It runs on the writer's thread.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Waiters;
use anyqueue::{Clock, PartitionId, Result};
use rusqlite::Connection;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::connect;
use crate::now::Now;
use crate::sql::first;

/// How long after a failed read the file is read again.
const AFTER_ERROR: Duration = Duration::from_millis(250);

/// How long after a change the file is polled at the full rate. After that it is polled half as often.
const LIVELY: Duration = Duration::from_millis(250);

/// How many messages of a partition are ready (at most `?3`), and when the next one is due.
pub(crate) const LOOK: &str = "SELECT
    (SELECT count(*) FROM (SELECT 1 FROM anyqueue_ready WHERE part = p.part LIMIT ?3 + 0)),
    (SELECT min(at_ms) FROM anyqueue_timed WHERE part = p.part)
    FROM anyqueue_partition p WHERE p.dead = ?1 AND p.name = ?2 AND p.paused = 0";

/// Runs until the handle closes. While nobody waits it sleeps.
pub(crate) async fn serve(waiters: Arc<Waiters<i64>>, config: Config, closed: CancellationToken) {
    let mut file = File { config: config.clone(), conn: None, version: None, changed: Instant::now() };
    let mut next_look = Instant::now();
    loop {
        if waiters.is_empty() {
            file.version = None; // what happens from now on must be looked at when somebody waits again
            next_look = Instant::now();
            tokio::select! {
                () = closed.cancelled() => return,
                () = waiters.changed() => continue,
            }
        }
        let due_ms = waiters.next_due();
        tokio::select! {
            () = closed.cancelled() => return,
            () = waiters.changed() => {}
            () = until(&config.clock, due_ms) => waiters.fire(Now::of(&config.clock).ms),
            () = tokio::time::sleep_until(next_look) => {
                let pause = match file.look(&waiters) {
                    Ok(()) => config.poll_interval * if file.changed.elapsed() < LIVELY { 1 } else { 2 },
                    Err(error) => {
                        tracing::warn!(%error, "cannot look for what other processes did");
                        file.conn = None;
                        waiters.wake_each(usize::MAX); // their own look says why, rather than let them wait for nothing
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

/// A connection that only polls. SQLite counts the commits of all others for it, including this handle's
/// writer.
struct File {
    config: Config,
    conn: Option<Connection>,
    version: Option<i64>,
    changed: Instant,
}

impl File {
    /// If anything was committed since the last call, looks at every partition that a pull waits for.
    fn look(&mut self, waiters: &Waiters<i64>) -> Result<()> {
        self.config.identity.look_closely(&self.config.path)?;
        let conn = match &mut self.conn {
            Some(conn) => conn,
            none => none.insert(connect::reader(&self.config)?),
        };
        let version = first(conn, "PRAGMA data_version", (), |row| row.get(0))?;
        if version.is_some() && version == self.version {
            return Ok(());
        }
        // The list is read after the version: a pull that joins later looks for messages itself, later still.
        for (partition, count) in waiters.partitions() {
            look_at(conn, waiters, &partition, count)?;
        }
        (self.version, self.changed) = (version, Instant::now());
        Ok(())
    }
}

fn look_at(conn: &Connection, waiters: &Waiters<i64>, partition: &PartitionId, count: usize) -> Result<()> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let key = (partition.is_dead_letters(), partition.name(), count);
    let found = first(conn, LOOK, key, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)))?;
    let Some((ready, due_ms)) = found else { return Ok(()) };
    if let Some(at_ms) = due_ms {
        waiters.due(partition, at_ms);
    }
    waiters.wake(partition, usize::try_from(ready).unwrap_or(0));
    Ok(())
}
