//! How long others wait when the space of millions of ends is freed at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyqueue::Queue;
use anyqueue_testkit::ends;
use sqlx::{AssertSqlSafe, PgConnection};

use super::line::Line;
use super::store::{PostgresStore, SCHEMA};
use crate::client::Result;

/// The most that one call frees: more than there are.
const LIMIT: u64 = 100_000_000;

/// Replaces what was measured before, so that the disk need not hold both.
pub(super) async fn print(
    store: &PostgresStore,
    queue: &Queue,
    ended: usize,
    line: &Line,
    json: bool,
) -> Result<()> {
    let mut conn = store.connect().await?;
    run(&mut conn, format!("TRUNCATE {SCHEMA}.ended")).await?;
    store.fill(&ends::lapsed_in_postgres(SCHEMA, u64::try_from(ended)?)).await?;
    let number = format!("SELECT min(bucket)::integer FROM {SCHEMA}.ended");
    let bucket: i32 = sqlx::query_scalar(AssertSqlSafe(number)).fetch_one(&mut conn).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let looking = tokio::spawn(look(store.connect().await?, bucket, is_over.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    // A table that a look has locked at that moment is left to the next call.
    let mut freed = 0;
    while freed == 0 {
        freed = queue.purge_ended(LIMIT).await?;
    }
    let took = began.elapsed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    is_over.store(true, Ordering::Relaxed);
    let looks = looking.await??;
    if usize::try_from(freed)? != ended {
        return Err(format!("{freed} of {ended} were freed").into());
    }
    let line = Line { ended, filter: Some("a look at the table meanwhile"), ..line.clone() };
    let whole = Line { scenario: "purge", filter: None, rounds: 1, ..line.clone() };
    Line { seconds: Some(took.as_secs_f64()), ..whole }.print(json)?;
    Line { scenario: "purge", ..line }.times(&looks).print(json)
}

/// Returns how long each look at the table takes; it waits as long as the table is locked.
async fn look(mut conn: PgConnection, bucket: i32, is_over: Arc<AtomicBool>) -> Result<Vec<Duration>> {
    let text = format!("SELECT 1 FROM {SCHEMA}.ended_{bucket} LIMIT 0");
    let mut all = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        run(&mut conn, text.clone()).await?;
        all.push(began.elapsed());
        tokio::task::yield_now().await;
    }
    Ok(all)
}

async fn run(conn: &mut PgConnection, text: String) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await?;
    Ok(())
}
