//! Whoever settles is killed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::*;
use rusqlite::Connection;

const SETTLER: &str = "ANYQUEUE_TEST_SETTLER";
const SETTLER_LEASE: Duration = Duration::from_millis(200);
const BATCH: usize = 20;

/// What the next test kills: ends tasks, a batch at a time. Does nothing in a run of the tests.
#[tokio::test]
async fn a_settler() {
    let Ok(path) = std::env::var(SETTLER) else { return };
    let queue = SqliteQueue::open(PathBuf::from(path)).await.unwrap();
    let p = part("p");
    loop {
        let request = PullRequest::new(BATCH, SOON, SETTLER_LEASE);
        let held = queue.pull(&p, request).await.unwrap();
        // Every other one has a result.
        let end = |(n, held)| {
            done(held, if n % 2 == 0 { succeeded() } else { succeeded().with_result(vec![7; 900]) })
        };
        let ends: Vec<_> = held.iter().enumerate().map(end).collect();
        assert!(queue.settle(&ends).await.iter().all(Result::is_ok));
    }
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, (), |row| row.get(0)).unwrap()
}

const BOTH: &str =
    "SELECT count(*) FROM anyqueue_ended e JOIN anyqueue_message m ON m.part = e.part AND m.id = e.id";
const ALL: &str = "SELECT (SELECT count(*) FROM anyqueue_ended) + (SELECT count(*) FROM anyqueue_message)";
const ENDED: &str = "SELECT count(*) FROM anyqueue_ended";

/// Waits for some progress of two settlers, kills both, and returns how many have ended.
fn kill_two(bed: &Bed, conn: &Connection, before: i64) -> i64 {
    let mut settlers: Vec<_> = (0..2)
        .map(|_| {
            let mut settler = Command::new(std::env::current_exe().unwrap());
            settler.args(["--exact", "ledger::killed::a_settler"]).env(SETTLER, bed.path());
            settler.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let began = Instant::now();
    while number(conn, ENDED) == before && began.elapsed() < 3 * SOON {
        std::thread::yield_now();
    }
    for settler in &mut settlers {
        settler.kill().unwrap();
    }
    for settler in &mut settlers {
        settler.wait().unwrap();
    }
    number(conn, ENDED)
}

#[tokio::test]
async fn of_tasks_of_killed_processes_each_is_there_or_has_ended() {
    const TASKS: u32 = 4000;
    const KILLS: usize = 8;
    let bed = Bed::new().await;
    let p = part("p");
    let mut ids = Vec::new();
    for _ in 0..TASKS / 1000 {
        ids.extend(push_text(&bed.queue, &p, &["m"; 1000]).await);
    }
    let conn = Connection::open(bed.path()).unwrap();
    conn.busy_timeout(SOON).unwrap();
    let mut ended = 0;
    for kill in 0..KILLS {
        let now = kill_two(&bed, &conn, ended);
        assert!(now > ended, "kill {kill}: nothing ended in between");
        ended = now;
        assert_eq!((number(&conn, BOTH), number(&conn, ALL)), (0, i64::from(TASKS)), "kill {kill}");
    }
    // What is left is pulled and ended here; of each task there is one whole end.
    loop {
        let held = bed.queue.pull(&p, PullRequest::new(1000, SETTLER_LEASE * 2, LEASE)).await.unwrap();
        if held.is_empty() {
            break;
        }
        let ends: Vec<_> = held.iter().map(|held| done(held, succeeded())).collect();
        assert!(bed.queue.settle(&ends).await.iter().all(Result::is_ok));
    }
    for part in ids.chunks(1000) {
        for found in bed.queue.find_ended(&p, part).await {
            let end = found.unwrap().unwrap().end;
            assert!(end.result.as_ref().is_none_or(|result| *result == [7; 900][..]));
        }
    }
    assert_eq!((number(&conn, BOTH), number(&conn, ENDED)), (0, i64::from(TASKS)));
}
