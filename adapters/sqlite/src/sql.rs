//! Running statements, each compiled once per connection.

use anyqueue::Result;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::error::classify;

/// Converts a limit for use in a statement.
pub(crate) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Runs a statement. Returns how many rows it changed.
pub(crate) fn run(conn: &Connection, sql: &str, params: impl Params) -> Result<usize> {
    conn.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(classify)
}

/// Returns the first row, if there is one.
pub(crate) fn first<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    let row = conn.prepare_cached(sql).and_then(|mut statement| statement.query_row(params, read));
    row.optional().map_err(classify)
}

/// Returns all rows.
pub(crate) fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let rows = |mut statement: rusqlite::CachedStatement<'_>| statement.query_map(params, read)?.collect();
    conn.prepare_cached(sql).and_then(rows).map_err(classify)
}
