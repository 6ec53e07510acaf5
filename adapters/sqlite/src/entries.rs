//! Control entries in the file.

use std::time::{Duration, SystemTime};

use anyqueue::Result;
use anyqueue::control::{Applied, Change, Entry, Expect, Key, Stamped, Version};
use rusqlite::{Connection, Row};

use crate::error::classify;
use crate::sql::{first, run};
use crate::tx::Tx;

pub(crate) const GET: &str = "SELECT key, version, expires_ms, value FROM anyqueue_control
    WHERE key = ? AND (expires_ms IS NULL OR expires_ms > ?)";
pub(crate) const FROM: &str = "SELECT key, version, expires_ms, value FROM anyqueue_control
    WHERE key >= ? AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY key";
pub(crate) const PUT: &str =
    "INSERT INTO anyqueue_control (key, version, expires_ms, value) VALUES (?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE
    SET version = excluded.version, expires_ms = excluded.expires_ms, value = excluded.value";
pub(crate) const DELETE: &str = "DELETE FROM anyqueue_control WHERE key = ?";
pub(crate) const FREE: &str = "DELETE FROM anyqueue_control WHERE rowid IN (
    SELECT rowid FROM anyqueue_control WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ? + 0)";

/// How many expired entries one call frees: more than it writes, so that they do not pile up.
const FREED: i64 = 200;

/// Converts a time in the file.
pub(crate) fn moment(ms: i64) -> SystemTime {
    let since = Duration::from_millis(ms.max(0).unsigned_abs());
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A row whose key has not been checked yet.
struct Stored {
    key: String,
    version: i64,
    expires_ms: Option<i64>,
    value: Vec<u8>,
}

impl Stored {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { key: row.get(0)?, version: row.get(1)?, expires_ms: row.get(2)?, value: row.get(3)? })
    }

    fn entry(self) -> Result<Entry> {
        let version = Version::from_u64(self.version.cast_unsigned());
        let entry = Entry::new(Key::new(self.key)?, version, self.value);
        Ok(entry.with_expires_at(self.expires_ms.map(moment)))
    }
}

pub(crate) fn get(conn: &Connection, key: &Key, now_ms: i64) -> Result<Option<Entry>> {
    first(conn, GET, (key.as_str(), now_ms), Stored::read)?.map(Stored::entry).transpose()
}

/// Returns a page of the entries with this prefix. The rows are read one by one, because no upper bound for a
/// range of keys with a prefix can be given.
pub(crate) fn list(
    conn: &Connection,
    prefix: &str,
    after: Option<&Key>,
    limit: usize,
    now_ms: i64,
) -> Result<Vec<Entry>> {
    let after = after.map_or("", Key::as_str);
    let mut statement = conn.prepare_cached(FROM).map_err(classify)?;
    let rows = statement.query_map((prefix.max(after), now_ms), Stored::read).map_err(classify)?;
    let mut entries = Vec::new();
    for row in rows {
        let row = row.map_err(classify)?;
        if entries.len() == limit || !row.key.starts_with(prefix) {
            break;
        }
        if row.key != after {
            entries.push(row.entry()?);
        }
    }
    Ok(entries)
}

/// Makes changes, except those whose expectation is not met.
pub(crate) fn apply(tx: &Tx<'_>, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
    run(tx.conn, FREE, (tx.now.ms, FREED))?;
    let applied: Result<Vec<_>> = changes.iter().map(|change| apply_one(tx, change)).collect();
    Ok(Stamped::new(moment(tx.now.ms), applied?))
}

fn apply_one(tx: &Tx<'_>, change: &Change) -> Result<Applied> {
    let there = get(tx.conn, change.key(), tx.now.ms)?;
    let as_expected = match change.expect() {
        Expect::Any => true,
        Expect::Absent => there.is_none(),
        Expect::Version(version) => there.as_ref().is_some_and(|entry| entry.version == version),
    };
    if !as_expected {
        return Ok(Applied::Conflict(there));
    }
    match change {
        Change::Put { key, version, value, ttl, .. } => {
            // If the expiry cannot be represented, the entry is kept until it is deleted.
            let expires_ms = ttl.and_then(|ttl| tx.now.floor_after(ttl));
            run(tx.conn, PUT, (key.as_str(), version.get().cast_signed(), expires_ms, &value[..]))?;
        }
        _ => {
            run(tx.conn, DELETE, [change.key().as_str()])?;
        }
    }
    Ok(Applied::Done)
}
