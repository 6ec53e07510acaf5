//! Statements that a transaction runs for each of many messages. Each is looked up by its text only once per
//! transaction.

use anyqueue::Result;
use rusqlite::{CachedStatement, Connection, Params};

use crate::error::classify;

/// Stores a message.
pub(crate) const INSERT: &str =
    "INSERT INTO anyqueue_message (seq, part, rank, pos, id, grp, joined, dedup, body, urgent_ms)
    VALUES (?1, ?2, ?3, ?1, ?4, ?5, ?1, ?6, ?7, ?8) ON CONFLICT DO NOTHING";
/// Makes a message ready.
pub(crate) const READY: &str = "INSERT INTO anyqueue_ready (part, rank, pos, seq, deliveries, cancel, head) VALUES (?, ?, ?, ?, ?, ?, ?)";
/// Ends a valid lease of a message that is not the head of a group; state 1 is [`LEASED`](crate::tx::LEASED).
/// It has no `RETURNING`, for which SQLite would create a table at each use, which takes longer than the
/// deletion.
pub(crate) const TAKE: &str = "DELETE FROM anyqueue_timed WHERE seq = ? AND part = ? AND token = ? AND state = 1 AND at_ms > ? AND head = 0";
/// Removes a message.
pub(crate) const REMOVE: &str = "DELETE FROM anyqueue_message WHERE seq = ?";

/// One of these statements.
pub(crate) struct Often<'c> {
    sql: &'static str,
    statement: Option<CachedStatement<'c>>,
}

impl<'c> Often<'c> {
    pub(crate) const fn new(sql: &'static str) -> Self {
        Self { sql, statement: None }
    }

    /// Runs the statement. Returns how many rows it changed.
    pub(crate) fn run(&mut self, conn: &'c Connection, params: impl Params) -> Result<usize> {
        let statement = match self.statement.take() {
            Some(statement) => statement,
            None => conn.prepare_cached(self.sql).map_err(classify)?,
        };
        self.statement.insert(statement).execute(params).map_err(classify)
    }
}
