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
pub(crate) async fn amended(queue: &SqliteQueue, p: &PartitionId, ids: &[MessageId], change: Amend) {
    for outcome in amend(queue, p, ids, change).await {
        assert_eq!(outcome.unwrap(), AmendOutcome::Amended);
    }
}

/// Looks whether each message stands in one place, and each group has as many members at its head as it says: one that is on offer, or
/// those that wait for nobody of the group.
pub(crate) fn assert_whole(path: &Path) {
    const ASTRAY: &str = "SELECT count(*) FROM anyqueue_message m WHERE 1 <>
        (SELECT count(*) FROM anyqueue_ready WHERE seq = m.seq) + (SELECT count(*) FROM anyqueue_timed WHERE seq = m.seq)
        + (SELECT count(*) FROM anyqueue_blocked WHERE part = m.part AND grp = m.grp AND joined = m.joined AND seq = m.seq)
        + (SELECT count(*) FROM anyqueue_disabled WHERE seq = m.seq)";
    const MISCOUNTED: &str = "WITH head (part, grp, ready) AS (
            SELECT m.part, m.grp, 1 FROM anyqueue_ready r JOIN anyqueue_message m ON m.seq = r.seq WHERE r.head = 1
            UNION ALL SELECT m.part, m.grp, 0 FROM anyqueue_timed t JOIN anyqueue_message m ON m.seq = t.seq WHERE t.head = 1),
        named (part, grp) AS (SELECT part, grp FROM anyqueue_group UNION SELECT part, grp FROM anyqueue_blocked
            UNION SELECT part, grp FROM head)
        SELECT count(*) FROM named n LEFT JOIN anyqueue_group g ON g.part = n.part AND g.grp = n.grp
        WHERE coalesce(g.heads, 0) = 0 OR g.heads <> (SELECT count(*) FROM head WHERE part = n.part AND grp = n.grp)
        OR (g.heads > 1 AND EXISTS (SELECT 1 FROM head WHERE part = n.part AND grp = n.grp AND ready = 1))";
    let conn = Connection::open(path).unwrap();
    for check in [ASTRAY, MISCOUNTED] {
        let wrong: i64 = conn.query_row(check, (), |row| row.get(0)).unwrap();
        assert_eq!(wrong, 0, "{check}");
    }
}
