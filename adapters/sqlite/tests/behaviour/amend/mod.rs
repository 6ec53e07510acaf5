//! Amendments of what waits, and messages that become urgent.

mod at_once;
mod kept;
mod killed;
mod like_memory;
mod urgent;

use std::path::Path;
use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::AmendQueueStorage;
use anyqueue::{Amend, AmendOutcome, MessageId, PartitionId, Result};
use anyqueue_sqlite::SqliteQueue;
use rusqlite::Connection;

const SECOND: Duration = Duration::from_secs(1);

async fn amend(
    queue: &SqliteQueue,
    p: &PartitionId,
    ids: &[MessageId],
    change: Amend,
) -> Vec<Result<AmendOutcome>> {
    queue.amend(p, ids, &change.normalised(std::time::SystemTime::now())).await
}

/// All of them must be amended.
async fn amended(queue: &SqliteQueue, p: &PartitionId, ids: &[MessageId], change: Amend) {
    for outcome in amend(queue, p, ids, change).await {
        assert_eq!(outcome.unwrap(), AmendOutcome::Amended);
    }
}

/// Looks whether each message stands in one place, and each group has a head.
fn assert_whole(path: &Path) {
    const ASTRAY: &str = "SELECT count(*) FROM anyqueue_message m WHERE 1 <>
        (SELECT count(*) FROM anyqueue_ready WHERE seq = m.seq) + (SELECT count(*) FROM anyqueue_timed WHERE seq = m.seq)
        + (SELECT count(*) FROM anyqueue_blocked WHERE seq = m.seq) + (SELECT count(*) FROM anyqueue_disabled WHERE seq = m.seq)";
    const HEADLESS: &str = "SELECT count(*) FROM
        (SELECT part, grp FROM anyqueue_group UNION SELECT part, grp FROM anyqueue_blocked) g WHERE 1 <>
        (SELECT count(*) FROM anyqueue_message m WHERE m.part = g.part AND m.grp = g.grp AND 1 IN
            (SELECT head FROM anyqueue_ready WHERE seq = m.seq UNION SELECT head FROM anyqueue_timed WHERE seq = m.seq))";
    let conn = Connection::open(path).unwrap();
    for check in [ASTRAY, HEADLESS] {
        let wrong: i64 = conn.query_row(check, (), |row| row.get(0)).unwrap();
        assert_eq!(wrong, 0, "{check}");
    }
}
