//! Measures on a private server what a pinned old transaction and waiting listeners cost. Prints one JSON object a line.
//!
//! `cargo run --release -p anyqueue-postgres --example pressure -- 60` holds the transaction for 60 seconds.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyqueue::{MessageData, Queue, QueueMessageStatus::Processed};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Postgres, Server, start_if_installed};
use sqlx::{Connection, PgConnection};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const BATCH: usize = 100;
const SLICE: Duration = Duration::from_secs(5);
const ROUNDS: usize = 5;

#[tokio::main]
async fn main() -> Result<()> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(60), |argument| argument.parse())?;
    let Some(server) = start_if_installed(Postgres::new().setting("max_wal_size", "8GB")).await? else {
        return Ok(());
    };
    listeners(&server).await?;
    pinned(&server, Duration::from_secs(seconds)).await
}

async fn open(server: &Server, schema: &str) -> Result<Queue> {
    Ok(Queue::new(PostgresQueue::open(&format!("{}?schema={schema}", server.url())).await?)?)
}

fn message() -> MessageData {
    MessageData::new([b'.'; 256])
}

/// The rate of two tasks that push, pull and settle in batches, slice by slice, while a transaction is open and before.
async fn pinned(server: &Server, held: Duration) -> Result<()> {
    let done = Arc::new(AtomicU64::new(0));
    for _ in 0..2 {
        tokio::spawn(cycle(open(server, "pinned").await?, Arc::clone(&done)));
    }
    rate(&done, SLICE).await;
    let before = rate(&done, SLICE).await;
    let mut conn = PgConnection::connect(server.url()).await?;
    sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        .execute(&mut conn)
        .await?;
    let (start, mut slices) = (Instant::now(), Vec::new());
    while start.elapsed() < held {
        slices.push(rate(&done, SLICE).await);
    }
    sqlx::raw_sql("COMMIT").execute(&mut conn).await?;
    let least = slices.iter().copied().fold(f64::INFINITY, f64::min);
    let shown: Vec<_> = slices.iter().map(|rate| rate.round().to_string()).collect();
    println!(
        r#"{{"scenario":"pinned-transaction","held_s":{},"before_per_s":{before:.0},"slices_per_s":[{}],"least_ratio":{:.2}}}"#,
        held.as_secs(),
        shown.join(","),
        least / before
    );
    Ok(())
}

async fn cycle(queue: Queue, done: Arc<AtomicU64>) -> Result<()> {
    loop {
        queue.push_many("work", (0..BATCH).map(|_| message()).collect()).await?;
        let mut held = queue.pull("work").max(BATCH).await?;
        let outcomes = queue.settle_many(held.iter_mut().map(|handler| (handler, Processed))).await;
        done.fetch_add(outcomes.len() as u64, Ordering::Relaxed);
    }
}

/// How much is done a second, from now on for so long.
async fn rate(done: &AtomicU64, time: Duration) -> f64 {
    let (before, start) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(time).await;
    #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    let made = (done.load(Ordering::Relaxed) - before) as f64;
    made / start.elapsed().as_secs_f64()
}

/// The rate of eight tasks that push one at a time, with and without four handles that wait, in turns.
async fn listeners(server: &Server) -> Result<()> {
    let queue = open(server, "listened").await?;
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    push_for(&queue, Duration::from_secs(1)).await?;
    for _ in 0..ROUNDS {
        alone.push(push_for(&queue, Duration::from_secs(2)).await?);
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let other = open(server, "listened").await?;
            // Of the same schema, so that each is told of each push, but nothing comes for it.
            waiting.spawn(async move { other.pull("nothing").wait(Duration::from_mins(1)).await.map(drop) });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        watched.push(push_for(&queue, Duration::from_secs(2)).await?);
        waiting.shutdown().await;
    }
    let (alone, watched) = (median(alone), median(watched));
    println!(
        r#"{{"scenario":"listeners","alone_per_s":{alone:.0},"with_four_per_s":{watched:.0},"ratio":{:.2},"rounds":{ROUNDS}}}"#,
        watched / alone
    );
    Ok(())
}

async fn push_for(queue: &Queue, time: Duration) -> Result<f64> {
    let (start, mut tasks) = (Instant::now(), tokio::task::JoinSet::new());
    for _ in 0..8 {
        let queue = queue.clone();
        tasks.spawn(async move {
            let mut pushed = 0_u32;
            while start.elapsed() < time {
                queue.push("work", message()).await?;
                pushed += 1;
            }
            Ok::<_, anyqueue::Error>(pushed)
        });
    }
    let mut pushed = 0;
    while let Some(ended) = tasks.join_next().await {
        pushed += ended??;
    }
    Ok(f64::from(pushed) / start.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
