//! Looks at the plan of every statement: none may cost more because more messages wait.

use sqlx::{AssertSqlSafe, Executor, Row, SqliteConnection};

use crate::sql::Listed;
use crate::{SqliteQueue, admin, changes, claim, connect, due, inspect, lookout, push, settle};

/// Tables that grow with the backlog, and the names they go by in statements.
const GROWING: [&str; 9] = [
    "anyqueue_message",
    "anyqueue_timed",
    "anyqueue_ready",
    "anyqueue_blocked",
    "anyqueue_group",
    "m",
    "t",
    "b",
    "g",
];

/// Enough rows, of every kind, that the planner would rather use an index.
const FILL: &str = "
    WITH RECURSIVE n(i) AS (VALUES (1000) UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
    INSERT INTO anyqueue_message SELECT i, i % 3, 0, i, randomblob(16), 'g' || (i % 50), 'k' || i, x'00' FROM n;
    INSERT INTO anyqueue_ready SELECT part, rank, pos, seq, 0, 0, 0 FROM anyqueue_message WHERE seq % 4 = 0;
    INSERT INTO anyqueue_timed SELECT seq, part, pos, 1 + seq % 3, 0, 0, 0, x'00' FROM anyqueue_message WHERE seq % 4 = 1;
    INSERT INTO anyqueue_blocked SELECT part, grp, pos, seq FROM anyqueue_message WHERE seq % 4 > 1;
    INSERT INTO anyqueue_group SELECT DISTINCT part, grp FROM anyqueue_message";

async fn plan(conn: &mut SqliteConnection, statement: &str) -> Vec<String> {
    let explained = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let rows = conn.fetch_all(sqlx::raw_sql(explained)).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
    rows.iter().map(|row| row.get::<String, _>("detail")).collect()
}

fn scans_what_grows(step: &str) -> bool {
    step.strip_prefix("SCAN ").is_some_and(|rest| {
        let table = rest.split(' ').next().unwrap_or_default();
        GROWING.contains(&table)
    })
}

async fn filled(dir: &std::path::Path) -> SqliteConnection {
    let queue = SqliteQueue::open(dir.join("q.db")).await.unwrap();
    let mut conn = connect::writer(&queue.inner.config).await.unwrap();
    conn.execute(sqlx::raw_sql(FILL)).await.unwrap();
    conn
}

#[tokio::test]
async fn no_statement_scans_a_table_that_grows() {
    let dir = tempfile::tempdir().unwrap();
    let mut conn = filled(dir.path()).await;
    let lists: Vec<&Listed> = [
        changes::statements(),
        due::statements(),
        settle::statements(),
        push::statements(),
        admin::statements(),
    ]
    .concat();
    let mut texts: Vec<&str> = lists.into_iter().flat_map(Listed::texts).collect();
    texts.extend(admin::single_statements());
    texts.extend([claim::STATEMENT, lookout::LOOK]);
    texts.extend([inspect::PARTITIONS, inspect::COUNTS, inspect::DEAD, inspect::BROWSE, inspect::PAUSED]);
    // Both without and with what ANALYZE knows: an application may run it.
    for analyzed in [false, true] {
        if analyzed {
            conn.execute(sqlx::raw_sql("ANALYZE")).await.unwrap();
        }
        for statement in texts.iter().flat_map(|text| text.split(';')) {
            let steps = plan(&mut conn, statement.trim()).await;
            let scan = steps.iter().find(|step| scans_what_grows(step));
            assert!(scan.is_none(), "analyzed {analyzed}: {statement}\n{}", steps.join("\n"));
        }
    }
}

#[tokio::test]
async fn a_statement_that_scans_would_be_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut conn = filled(dir.path()).await;
    for scanning in [
        "SELECT * FROM anyqueue_message WHERE rank = 0",
        "SELECT * FROM anyqueue_timed t CROSS JOIN anyqueue_message m ON m.seq = t.seq WHERE t.state = 1",
        "DELETE FROM anyqueue_ready WHERE seq = 1",
    ] {
        assert!(plan(&mut conn, scanning).await.iter().any(|step| scans_what_grows(step)), "{scanning}");
    }
}
