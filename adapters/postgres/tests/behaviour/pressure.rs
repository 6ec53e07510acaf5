//! What it costs to wait.

use std::time::{Duration, Instant};

use anyqueue::adapter::{PullQueueStorage, PullRequest, QueueStorage};
use anyqueue_postgres::PostgresQueue;
use sqlx::{Connection, PgConnection};

use crate::common::{Bed, LEASE, part, push};

const WORKERS: usize = 4;
const MEASURED: Duration = Duration::from_secs(5);
/// Looks that are taken, until one shows little.
const WINDOWS: usize = 8;
const TRANSACTIONS_PER_SECOND: f64 = 12.0;

#[tokio::test]
async fn four_idle_workers_ask_for_little() {
    let Some(bed) = Bed::empty().await else { return };
    if !bed.is_private() {
        eprintln!("NOT RUN: a database of its own needs a private server");
        return;
    }
    // In a database of their own, whose transactions can be counted.
    let database = bed.schema.clone();
    bed.run(format!("CREATE DATABASE {database}")).await;
    let (server, _) = bed.server_url().rsplit_once('/').unwrap();
    let url = format!("{server}/{database}");
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(PostgresQueue::open(&url).await.unwrap());
    }
    let pulls = workers.iter().cloned().map(|queue| {
        let request = PullRequest::new(1, Duration::from_mins(1), LEASE);
        tokio::spawn(async move { queue.pull(&part("p"), request).await })
    });
    let pulls: Vec<_> = pulls.collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut conn = bed.connect().await;
    // The server's own vacuum of a new database is counted too: where much else goes on, in several of them, but less and less.
    let mut rates = Vec::new();
    while rates.len() < WINDOWS && rates.last().is_none_or(|rate| *rate > TRANSACTIONS_PER_SECOND) {
        let (before, start) = (transactions(&mut conn, &database).await, Instant::now());
        tokio::time::sleep(MEASURED).await;
        let made = transactions(&mut conn, &database).await - before;
        rates.push(f64::from(i32::try_from(made).unwrap()) / start.elapsed().as_secs_f64());
    }
    let is_little = rates.last().is_some_and(|rate| *rate <= TRANSACTIONS_PER_SECOND);
    assert!(is_little, "transactions a second: {rates:.1?}");

    // They do wait: one message ends one pull.
    push(&workers[0], &part("p"), &["work"]).await;
    let (ended, _, rest) = futures_util::future::select_all(pulls).await;
    assert_eq!(ended.unwrap().unwrap().len(), 1);
    for worker in &workers {
        worker.close().await.unwrap();
    }
    for pull in rest {
        assert!(pull.await.unwrap().is_ok_and(|deliveries| deliveries.is_empty()));
    }
    bed.run(format!("DROP DATABASE {database}")).await;
}

/// As the server's statistics show them, which sessions add to at most a second after they did something.
async fn transactions(conn: &mut PgConnection, database: &str) -> i64 {
    let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1";
    let mut tx = conn.begin().await.unwrap();
    let count = sqlx::query_scalar(count).bind(database).fetch_one(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    count
}
