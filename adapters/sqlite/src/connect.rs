//! Connections to the file: one that writes, a few that read.

use std::time::{Duration, Instant};

use anyqueue::{ErrorKind, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection, SqlitePool};

use crate::config::{Config, Synchronous};
use crate::error::{classify, classify_open, own};
use crate::sql::{get, rows, run, statement};

/// Connections that answer counts, lists and pages at once; more requests wait for one.
const READERS: u32 = 2;
/// Prepared statements kept per connection: all there are.
const STATEMENTS: usize = 256;
/// Rows on their way from SQLite's thread: so many that it never stops to wait in the middle of a pull.
const ROW_BUFFER: usize = 1024;
/// Room beyond `max_bytes` for taking messages *out* of a full file.
const RESERVE_BYTES: u64 = 1024 * 1024;

fn options(config: &Config) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(&config.path)
        .busy_timeout(config.busy_timeout)
        .statement_cache_capacity(STATEMENTS)
        .row_buffer_size(ROW_BUFFER)
        .pragma(
            "synchronous",
            match config.synchronous {
                Synchronous::Full => "FULL",
                Synchronous::Normal => "NORMAL",
            },
        )
        .thread_name(|number| format!("anyqueue-sqlite-{number}"))
        .disable_statement_logging()
}

/// Opens the writing connection, creating the file if allowed, in WAL mode.
pub(crate) async fn writer(config: &Config) -> Result<SqliteConnection> {
    let options = options(config).create_if_missing(config.create);
    let mut conn = options.connect().await.map_err(|error| classify_open(error, &config.path))?;
    write_ahead(&mut conn, config.busy_timeout).await?;
    let encoding = rows(&mut conn, statement("PRAGMA encoding")).await?;
    let encoding: String = encoding.first().map(|row| get(row, 0)).transpose()?.unwrap_or_default();
    if encoding != "UTF-8" {
        let text = format!("the file stores text as {encoding}: a queue needs a file in UTF-8");
        return Err(own(ErrorKind::Incompatible, text));
    }
    limit_size(&mut conn, config, false).await?;
    Ok(conn)
}

/// Whether commits are flushed from the next transaction on. Not a cached statement: SQLite obeys this pragma when it is
/// prepared, and a cached one is prepared only once.
pub(crate) async fn flush_commits(conn: &mut SqliteConnection, flush: bool) -> Result<()> {
    let pragma = if flush { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
    sqlx::raw_sql(pragma).execute(conn).await.map(drop).map_err(classify)
}

/// A connection that only reads.
pub(crate) async fn reader(config: &Config) -> Result<SqliteConnection> {
    options(config)
        .pragma("query_only", "ON")
        .connect()
        .await
        .map_err(|error| classify_open(error, &config.path))
}

/// The reading connections, opened as they are needed.
pub(crate) fn readers(config: &Config) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(READERS)
        .min_connections(0)
        .test_before_acquire(false)
        .acquire_timeout(config.busy_timeout.max(Duration::from_secs(5)))
        .connect_lazy_with(options(config).pragma("query_only", "ON"))
}

/// Turns the write-ahead log on. The switch needs the file alone and SQLite does not wait for that by itself, so where
/// many processes open a new file at once it is tried until the busy timeout is over.
async fn write_ahead(conn: &mut SqliteConnection, busy_timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + busy_timeout;
    loop {
        let switched = rows(conn, statement("PRAGMA journal_mode = WAL")).await;
        match switched {
            Ok(mode) => {
                let mode: String = mode.first().map(|row| get(row, 0)).transpose()?.unwrap_or_default();
                if mode.eq_ignore_ascii_case("wal") {
                    return Ok(());
                }
                return Err(own(
                    ErrorKind::Incompatible,
                    format!(
                        "the file stays in journal mode {mode:?}: a queue needs WAL, which network file systems do not offer"
                    ),
                ));
            }
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Sets the file's largest size on this connection; with `reserve`, a little more.
pub(crate) async fn limit_size(conn: &mut SqliteConnection, config: &Config, reserve: bool) -> Result<()> {
    let Some(max_bytes) = config.max_bytes else { return Ok(()) };
    let page_bytes = pragma(conn, "PRAGMA page_size").await?.max(512);
    let bytes = if reserve { max_bytes.saturating_add(RESERVE_BYTES) } else { max_bytes };
    let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page_bytes;
    let limit = AssertSqlSafe(format!("PRAGMA max_page_count = {}", pages.min(u32::MAX.into())));
    sqlx::raw_sql(limit).execute(conn).await.map(drop).map_err(classify)
}

/// Whether a commit waits for the disk, as SQLite itself says.
pub(crate) async fn survives_power_loss(conn: &mut SqliteConnection) -> Result<bool> {
    Ok(pragma(conn, "PRAGMA synchronous").await? >= 2)
}

async fn pragma(conn: &mut SqliteConnection, text: &'static str) -> Result<i64> {
    let answer = rows(conn, statement(text)).await?;
    answer.first().map_or(Ok(0), |row| get(row, 0))
}

/// Moves the log into the file, as far as other connections allow, and closes.
pub(crate) async fn checkpoint_and_close(mut conn: SqliteConnection) -> Result<()> {
    let checkpoint = run(&mut conn, statement("PRAGMA wal_checkpoint(TRUNCATE)")).await;
    conn.close().await.map_err(classify)?;
    checkpoint
}
