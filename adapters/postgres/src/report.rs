//! A report about the queue's tables, for operators.

use std::time::Duration;

use anyqueue::{Error, Operation, PartitionId, Result};

use crate::PostgresQueue;
use crate::error::NAME;
use crate::pull::age;
use crate::schema;
use crate::sql::get;

/// This many dead rows cause a warning, if there are also more of them than live ones.
const MIN_DEAD_ROWS: u64 = 100_000;
/// A transaction of this age causes a warning.
const OLD_TRANSACTION: Duration = Duration::from_mins(5);

/// The state of the queue's message table, and what bloats it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableReport {
    /// The number of rows of messages, as estimated by the server.
    pub live_rows: u64,
    /// The number of rows that autovacuum has not cleaned up yet, as estimated by the server. They make every
    /// pull slower.
    pub dead_rows: u64,
    /// The age of the oldest open transaction on the server that keeps dead rows from being cleaned up;
    /// `None` if there is none, or if the role may not see it (that takes `pg_read_all_stats`).
    pub oldest_transaction: Option<Duration>,
    /// The partition whose first ready message was pushed the longest time ago, and how long ago that was.
    pub oldest_ready: Option<(PartitionId, Duration)>,
}

impl TableReport {
    /// Warnings for an operator, as full sentences.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.dead_rows >= MIN_DEAD_ROWS && self.dead_rows > self.live_rows {
            warnings.push(format!(
                "{} dead rows wait to be cleaned up, with {} live ones: check that autovacuum runs and keeps up",
                self.dead_rows, self.live_rows
            ));
        }
        if let Some(oldest) = self.oldest_transaction
            && oldest >= OLD_TRANSACTION
        {
            warnings.push(format!(
                "a transaction has been open for {} s and keeps dead rows from being cleaned up: see pg_stat_activity",
                oldest.as_secs()
            ));
        }
        warnings
    }
}

impl PostgresQueue {
    /// Returns a report on the queue's tables. It reads the server's statistics, and one message for each
    /// partition and level that has ready messages, which takes a few microseconds each.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn table_report(&self) -> Result<TableReport> {
        self.report()
            .await
            .map_err(|error: Error| error.repeatable().with_backend(NAME).with_operation(Operation::Check))
    }

    /// Drops the queue's schema with every message in it, for all clients. Meant for the schemas of trials
    /// and tests. Close the handle afterwards.
    ///
    /// # Errors
    /// If the role does not own the schema, or the server cannot be reached.
    pub async fn drop_schema(&self) -> Result<()> {
        let dropped = schema::remove(&self.inner.pool, &self.inner.config.schema).await;
        dropped.map_err(|error| error.repeatable().with_backend(NAME).with_operation(Operation::Close))
    }

    async fn report(&self) -> Result<TableReport> {
        let mut report = self.bloat().await?;
        for row in self.fetch(self.inner.statements.oldest_ready.query(), Operation::Check).await? {
            report.oldest_ready = Some((PartitionId::new(get(&row, 0)?)?, age(&row, 1)?));
        }
        Ok(report)
    }

    /// Reads only what the server counts anyway, so it takes the same time for any number of messages.
    pub(crate) async fn bloat(&self) -> Result<TableReport> {
        let statements = &self.inner.statements;
        let mut report = TableReport::default();
        for row in self.fetch(statements.table.query(), Operation::Check).await? {
            let count = |column| get::<i64>(&row, column).map(|count| u64::try_from(count).unwrap_or(0));
            (report.live_rows, report.dead_rows) = (count(0)?, count(1)?);
            if get::<bool>(&row, 3)? {
                report.oldest_transaction = Some(age(&row, 2)?);
            }
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_rows_and_old_transactions_are_warned_of() {
        let fine = TableReport { live_rows: 5, dead_rows: 50_000, ..TableReport::default() };
        assert!(fine.warnings().is_empty());
        let bloated = TableReport {
            live_rows: 5,
            dead_rows: 200_000,
            oldest_transaction: Some(Duration::from_mins(10)),
            oldest_ready: None,
        };
        assert_eq!(bloated.warnings().len(), 2);
    }
}
