//! The queue's tables: made and upgraded by migrations with a ledger of their own, beside whatever else is in the file.

use anyqueue::{ErrorKind, Result};
use sqlx::{Connection, SqliteConnection};

use crate::error::{classify, own};
use crate::sql::{get, rows, run, statement};

/// Every migration this release knows, oldest first; its version is its place, from 1. Never change one that was released.
const MIGRATIONS: &[(&str, &str)] = &[("queue", include_str!("../migrations/0001_queue.sql"))];

const LEDGER: &str = "CREATE TABLE IF NOT EXISTS anyqueue_migration (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_ms INTEGER NOT NULL)";

fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Brings the file to this release's schema, in one transaction under the write lock: many processes may try at once.
pub(crate) async fn migrate(conn: &mut SqliteConnection, now_ms: i64) -> Result<()> {
    if applied(conn).await? == Some(newest()) {
        return Ok(()); // the usual case takes no lock
    }
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.map_err(classify)?;
    run(&mut tx, statement(LEDGER)).await?;
    let done = applied(&mut tx).await?.unwrap_or(0);
    refuse_newer(done)?;
    for (version, (name, script)) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > done) {
        sqlx::raw_sql(*script).execute(&mut *tx).await.map_err(classify)?;
        let entry = "INSERT INTO anyqueue_migration (version, name, applied_ms) VALUES (?, ?, ?)";
        run(&mut tx, statement(entry).bind(version).bind(*name).bind(now_ms)).await?;
    }
    tx.commit().await.map_err(classify)
}

/// Checks that the file has this release's schema, and creates nothing.
pub(crate) async fn check(conn: &mut SqliteConnection) -> Result<()> {
    match applied(conn).await? {
        Some(version) if version == newest() => Ok(()),
        Some(version) => {
            refuse_newer(version)?;
            Err(own(
                ErrorKind::Incompatible,
                "the queue's tables are of an older release: open the file once with create=true",
            ))
        }
        None => Err(own(
            ErrorKind::Incompatible,
            "the queue's tables are not in this file: open it once with create=true",
        )),
    }
}

/// The newest migration in the file; `None` if there is no ledger.
async fn applied(conn: &mut SqliteConnection) -> Result<Option<i64>> {
    let ledger = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'anyqueue_migration'";
    if rows(conn, statement(ledger)).await?.is_empty() {
        return Ok(None);
    }
    let newest = rows(conn, statement("SELECT coalesce(max(version), 0) FROM anyqueue_migration")).await?;
    newest.first().map(|row| get(row, 0)).transpose()
}

fn refuse_newer(version: i64) -> Result<()> {
    if version <= newest() {
        return Ok(());
    }
    Err(own(
        ErrorKind::Incompatible,
        format!(
            "the file was made by a newer release (schema {version}; this one knows up to {}): upgrade anyqueue-sqlite",
            newest()
        ),
    ))
}
