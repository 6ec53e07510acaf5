//! Checks the plan of every statement: none may take longer because more messages wait.

use rusqlite::Connection;

use crate::{
    SqliteQueue, admin, alter, claim, connect, due, ends, entries, forget, found, insert, inspect, ledger,
    lookout, often, place, record, series, settle, taken, tx, urgent,
};

/// Tables that grow with the backlog, and their aliases in statements.
const GROWING: [&str; 14] = [
    "anyqueue_message",
    "anyqueue_timed",
    "anyqueue_ready",
    "anyqueue_blocked",
    "anyqueue_group",
    "anyqueue_disabled",
    "anyqueue_ended",
    "anyqueue_series",
    "anyqueue_control",
    "m",
    "t",
    "b",
    "d",
    "g",
];

pub(crate) const STATEMENTS: [&str; 82] = [
    admin::REQUEST,
    admin::PAUSE,
    alter::REWRITE,
    claim::FIRST,
    claim::LEASE,
    claim::UNREADY,
    claim::NEXT_DUE,
    claim::FOLLOWERS,
    claim::LEASE_FOLLOWERS,
    claim::UNBLOCK_FOLLOWERS,
    claim::JOIN_HEADS,
    due::DUE,
    due::BRING,
    ends::STORE,
    ends::RECORD,
    ends::RANK,
    ends::DELETE,
    ends::LAPSED,
    ends::FREE,
    entries::GET,
    entries::FROM,
    entries::PUT,
    entries::DELETE,
    entries::FREE,
    forget::FORGET,
    forget::LOOK,
    found::FIND,
    found::PURGE[0],
    found::PURGE[1],
    found::PURGE[2],
    found::PURGE[3],
    found::UNREADY,
    found::UNTIME,
    found::UNBLOCK,
    found::ENABLE,
    inspect::PARTITIONS,
    inspect::COUNTS,
    inspect::DEAD,
    inspect::BROWSE,
    inspect::PAUSED,
    ledger::PAGE,
    ledger::COUNT,
    ledger::FIND,
    lookout::LOOK,
    often::INSERT,
    often::READY,
    often::TAKE,
    often::REMOVE,
    place::READY_RUN,
    place::TIME,
    place::START_GROUP,
    place::LEAVE_HEADS,
    place::BLOCK,
    place::END_GROUP,
    place::PROMOTE,
    place::DISABLE,
    place::NEXT_OF_GROUP,
    place::SET_POSITIONS,
    place::SET_POSITION,
    insert::HAS_DEAD,
    insert::IS_DEAD,
    series::COUNT,
    series::PAGE,
    series::FREE,
    settle::HELD,
    settle::EXTEND,
    settle::PLACE,
    settle::MOVE,
    record::STORED,
    record::REPLACE,
    taken::KNOWN,
    taken::HOLDER,
    taken::FREE_KEY,
    taken::HASTEN,
    taken::HASTEN_DISABLED,
    tx::FIND_PARTITION,
    tx::MAKE_PARTITION,
    tx::MAKE_DEAD,
    urgent::URGENT,
    urgent::NEXT_URGENT,
    urgent::LIFT_READY,
    urgent::LIFT,
];

/// Inserts enough rows of every kind that the planner prefers an index.
const FILL: &str = "
    WITH RECURSIVE n(i) AS (VALUES (1000) UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
    INSERT INTO anyqueue_message SELECT i, i % 3, 0, i, randomblob(16), 'g' || (i % 50), i, 'k' || i, x'00', NULL, i FROM n;
    INSERT INTO anyqueue_ready SELECT part, rank, pos, seq, 0, 0, 0 FROM anyqueue_message WHERE seq % 4 = 0;
    INSERT INTO anyqueue_timed SELECT seq, part, pos, 1 + seq % 3, 0, 0, 0, x'00' FROM anyqueue_message WHERE seq % 4 = 1;
    INSERT INTO anyqueue_blocked SELECT part, grp, joined, seq, 0, 0, 0 FROM anyqueue_message WHERE seq % 4 = 2;
    INSERT INTO anyqueue_disabled SELECT part, seq, NULL, 0, 0, 0 FROM anyqueue_message WHERE seq % 4 = 3;
    INSERT INTO anyqueue_ended SELECT part, id, 1 + seq % 4, pos, nullif(pos, seq % 5 * pos), 0, x'00', NULL FROM anyqueue_message;
    INSERT INTO anyqueue_series SELECT part, pos, x'', 1 + seq % 4, 0, seq % 5, 1, 0, 0 FROM anyqueue_message;
    INSERT INTO anyqueue_group SELECT DISTINCT part, grp, 1 FROM anyqueue_message";

fn plan(conn: &Connection, statement: &str) -> Vec<String> {
    let explained = conn.prepare(&format!("EXPLAIN QUERY PLAN {statement}"));
    let mut explained = explained.unwrap_or_else(|error| panic!("{statement}: {error}"));
    // Unbound parameters are NULL.
    let steps = explained.raw_query().mapped(|row| row.get("detail"));
    steps.collect::<rusqlite::Result<_>>().unwrap()
}

fn scans_what_grows(step: &str) -> bool {
    step.strip_prefix("SCAN ").is_some_and(|rest| {
        let table = rest.split(' ').next().unwrap_or_default();
        GROWING.contains(&table)
    })
}

async fn filled(dir: &std::path::Path) -> Connection {
    let queue = SqliteQueue::open(dir.join("q.db")).await.unwrap();
    let conn = connect::writer(&queue.inner.config).unwrap();
    conn.execute_batch(FILL).unwrap();
    conn
}

#[tokio::test]
async fn no_statement_scans_a_table_that_grows() {
    let dir = tempfile::tempdir().unwrap();
    let conn = filled(dir.path()).await;
    // Both without and with the statistics of ANALYZE, which an application may run.
    for analyzed in [false, true] {
        if analyzed {
            conn.execute_batch("ANALYZE").unwrap();
        }
        for statement in STATEMENTS {
            let steps = plan(&conn, statement);
            let scan = steps.iter().find(|step| scans_what_grows(step));
            assert!(scan.is_none(), "analyzed {analyzed}: {statement}\n{}", steps.join("\n"));
            let sorts = steps.iter().find(|step| step.contains("TEMP B-TREE"));
            assert!(sorts.is_none(), "analyzed {analyzed}: {statement}\n{}", steps.join("\n"));
        }
    }
}

#[tokio::test]
async fn a_claim_reads_and_writes_only_what_it_takes() {
    let dir = tempfile::tempdir().unwrap();
    let conn = filled(dir.path()).await;
    for statement in [claim::LEASE, claim::UNREADY] {
        let steps = plan(&conn, statement);
        assert!(steps.iter().any(|step| step.contains("(rank,pos)<(?,?)")), "{steps:?}");
    }
}

/// SQLite creates such a table for a `RETURNING`, or for rows that are collected before they are changed.
#[tokio::test]
async fn what_runs_for_each_message_makes_no_table_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let conn = filled(dir.path()).await;
    let for_each = [often::INSERT, often::READY, often::TAKE, often::REMOVE, settle::HELD, due::BRING];
    for statement in for_each.into_iter().chain([place::READY_RUN]) {
        let mut explained = conn.prepare(&format!("EXPLAIN {statement}")).unwrap();
        let steps = explained.raw_query().mapped(|row| row.get("opcode"));
        let steps: Vec<String> = steps.collect::<rusqlite::Result<_>>().unwrap();
        assert!(!steps.iter().any(|step| step.starts_with("OpenEphemeral")), "{statement}\n{steps:?}");
    }
}

#[tokio::test]
async fn pages_and_counts_of_ends_read_only_what_they_tell() {
    let dir = tempfile::tempdir().unwrap();
    let conn = filled(dir.path()).await;
    for analyzed in [false, true] {
        if analyzed {
            conn.execute_batch("ANALYZE").unwrap();
        }
        let page = plan(&conn, ledger::PAGE);
        let in_order = "SEARCH anyqueue_ended USING INDEX anyqueue_ended_moment
            (part=? AND state=? AND ended_ms>? AND (ended_ms,id)<(?,?))";
        let in_order = in_order.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(page.iter().filter(|step| **step == in_order).count(), 4, "{page:?}");
        assert!(page.iter().any(|step| step.starts_with("MERGE")), "{page:?}");
        let count = plan(&conn, ledger::COUNT);
        let by_index = "SEARCH anyqueue_ended USING COVERING INDEX anyqueue_ended_moment (part=? AND state=?";
        assert!(count.iter().any(|step| step.starts_with(by_index)), "{count:?}");
        let lapsed = plan(&conn, ends::LAPSED);
        assert!(lapsed[0].contains("COVERING INDEX anyqueue_ended_lapse (expires_ms<?)"), "{lapsed:?}");
    }
}

#[tokio::test]
async fn a_statement_that_scans_would_be_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let conn = filled(dir.path()).await;
    for scanning in [
        "SELECT * FROM anyqueue_message WHERE rank = 0",
        "SELECT * FROM anyqueue_timed t CROSS JOIN anyqueue_message m ON m.seq = t.seq WHERE t.state = 1",
        "DELETE FROM anyqueue_ready WHERE seq = 1",
    ] {
        assert!(plan(&conn, scanning).iter().any(|step| scans_what_grows(step)), "{scanning}");
    }
}
