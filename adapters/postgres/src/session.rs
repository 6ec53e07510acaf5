//! The settings of each connection: the isolation level that the functions need, and time limits.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, Row, SqlSafeStr};

use crate::config::Config;

/// The server's limit is shorter than the client's by a tenth, but at most by this much. So the client learns
/// that nothing was changed, and the connection stays usable.
const MAX_LEAD: Duration = Duration::from_secs(1);

/// A server process, which can be distinguished from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) started_us: i64,
}

/// Settings of sessions and transactions.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Whether connections belong to this handle alone. Behind a proxy that shares them, no setting may be
    /// made that others would find.
    is_exclusive: bool,
    limit_ms: u128,
}

impl Session {
    pub(crate) fn new(config: &Config) -> Self {
        let limit = config.call_timeout.saturating_sub((config.call_timeout / 10).min(MAX_LEAD));
        Self { is_exclusive: config.notify, limit_ms: limit.as_millis().max(1) } // 0 would mean no limit
    }

    /// Prepares a new connection. Returns the process that serves it, if that does not change.
    pub(crate) async fn begin(&self, conn: &mut PgConnection) -> Result<Option<Process>, sqlx::Error> {
        if !self.is_exclusive {
            return Ok(None);
        }
        let limit_ms = self.limit_ms;
        let text = format!(
            "SET default_transaction_isolation = 'read committed'; SET statement_timeout = {limit_ms};
             SET idle_in_transaction_session_timeout = {limit_ms};
             SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint
             FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        );
        let row = sqlx::raw_sql(AssertSqlSafe(text)).fetch_one(conn).await?;
        Ok(Some(Process { pid: row.try_get(0)?, started_us: row.try_get(1)? }))
    }

    /// The statement that begins a transaction. Its settings end with the transaction.
    pub(crate) fn transaction(&self) -> impl SqlSafeStr + use<> {
        let limit_ms = self.limit_ms;
        AssertSqlSafe(format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {limit_ms};
             SET LOCAL idle_in_transaction_session_timeout = {limit_ms}"
        ))
    }
}
