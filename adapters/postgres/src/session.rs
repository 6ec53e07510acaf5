//! What is asked of the server for each connection: the isolation that the functions need, and an end to what takes too long.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, Row, SqlSafeStr};

use crate::config::Config;

/// The server gives up before the client does, by a tenth of the time or this: then the client is told that nothing was changed, and
/// the connection lives on.
const MOST_EARLIER: Duration = Duration::from_secs(1);

/// A server process, told apart from a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) started_us: i64,
}

/// Settings of sessions and transactions.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Whether connections are the handle's own for as long as they last. Behind a proxy that shares them nothing may be set that
    /// others would find.
    is_own: bool,
    limit_ms: u128,
}

impl Session {
    pub(crate) fn new(config: &Config) -> Self {
        let limit = config.call_timeout.saturating_sub((config.call_timeout / 10).min(MOST_EARLIER));
        Self { is_own: config.notify, limit_ms: limit.as_millis().max(1) } // 0 would mean no limit
    }

    /// Prepares a new connection, and tells which process serves it, if that stays so.
    pub(crate) async fn begin(&self, conn: &mut PgConnection) -> Result<Option<Process>, sqlx::Error> {
        if !self.is_own {
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

    /// What begins a transaction of several statements. It sets nothing that outlasts it.
    pub(crate) fn transaction(&self) -> impl SqlSafeStr + use<> {
        let limit_ms = self.limit_ms;
        AssertSqlSafe(format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {limit_ms};
             SET LOCAL idle_in_transaction_session_timeout = {limit_ms}"
        ))
    }
}
