//! The queue's tables, which migrations create and upgrade. The migrations have a version table of their own,
//! and leave everything else in the file alone.

use anyqueue::{ErrorKind, Result};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::{ERRORS, classify};
use crate::sql::{first, run};

/// All migrations that this release knows, oldest first. The version is the position, from 1. Never change
/// one that was released.
const MIGRATIONS: &[(&str, &str)] = &[
    ("queue", include_str!("../migrations/0001_queue.sql")),
    ("kept headers", include_str!("../migrations/0002_kept_headers.sql")),
    ("amendments", include_str!("../migrations/0003_amendments.sql")),
    ("ended", include_str!("../migrations/0004_ended.sql")),
    ("control", include_str!("../migrations/0005_control.sql")),
    ("series", include_str!("../migrations/0006_series.sql")),
];

const LEDGER: &str = "CREATE TABLE IF NOT EXISTS anyqueue_migration (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_ms INTEGER NOT NULL)";

fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Upgrades the file to this release's schema, in one transaction under the write lock. Many processes may do
/// so at once.
pub(crate) fn migrate(conn: &Connection, now_ms: i64) -> Result<()> {
    if applied(conn)? == Some(newest()) {
        return Ok(()); // the usual case takes no lock
    }
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate).map_err(classify)?;
    tx.execute_batch(LEDGER).map_err(classify)?;
    let done = applied(&tx)?.unwrap_or(0);
    refuse_newer(done)?;
    for (version, (name, script)) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > done) {
        tx.execute_batch(script).map_err(classify)?;
        let entry = "INSERT INTO anyqueue_migration (version, name, applied_ms) VALUES (?, ?, ?)";
        run(&tx, entry, (version, *name, now_ms))?;
    }
    tx.commit().map_err(classify)
}

/// Checks that the file has this release's schema, and creates nothing.
pub(crate) fn check(conn: &Connection) -> Result<()> {
    match applied(conn)? {
        Some(version) if version == newest() => Ok(()),
        Some(version) => {
            refuse_newer(version)?;
            Err(ERRORS.error(
                ErrorKind::Incompatible,
                "the queue's tables are of an older release: open the file once with create=true",
            ))
        }
        None => Err(ERRORS.error(
            ErrorKind::Incompatible,
            "the queue's tables are not in this file: open it once with create=true",
        )),
    }
}

/// Returns the newest migration in the file, or `None` if there is no version table.
fn applied(conn: &Connection) -> Result<Option<i64>> {
    let ledger = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'anyqueue_migration'";
    if first(conn, ledger, (), |_| Ok(()))?.is_none() {
        return Ok(None);
    }
    first(conn, "SELECT coalesce(max(version), 0) FROM anyqueue_migration", (), |row| row.get(0))
}

fn refuse_newer(version: i64) -> Result<()> {
    if version <= newest() {
        return Ok(());
    }
    Err(ERRORS.error(
        ErrorKind::Incompatible,
        format!(
            "the file was created by a newer release (schema {version}; this one knows up to {}): upgrade anyqueue-sqlite",
            newest()
        ),
    ))
}
