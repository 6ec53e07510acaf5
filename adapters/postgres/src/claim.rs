//! The statements that claim messages, with their arguments.

use std::time::Instant;

use anyqueue::PartitionId;
use anyqueue::adapter::PullRequest;
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

use crate::PostgresQueue;
use crate::scan_starts::ScanRanges;
use crate::settlements::{PendingSettlement, SettlementBatch};
use crate::sql::{Statements, Text, int, millis};

/// One attempt to claim messages.
pub(crate) struct Claim<'r> {
    pub(crate) partition: &'r PartitionId,
    pub(crate) request: &'r PullRequest,
    pub(crate) secret: Uuid,
    /// A moment not later than when it was sent.
    pub(crate) before: Instant,
    pub(crate) ranges: ScanRanges,
}

impl<'r> Claim<'r> {
    pub(crate) fn new(queue: &PostgresQueue, partition: &'r PartitionId, request: &'r PullRequest) -> Self {
        let before = Instant::now();
        let ranges = queue.inner.scan_starts.ranges(partition, before);
        Self { partition, request, secret: Uuid::new_v4(), before, ranges }
    }

    /// Whether groups are claimed whole. Dead letters have no groups.
    pub(crate) fn is_whole(&self) -> bool {
        self.request.group_members > 1 && !self.partition.is_dead_letters()
    }

    pub(crate) fn query(&self, statements: &Statements) -> Query<'static, Postgres, PgArguments> {
        let text = if self.is_whole() { &statements.pull_whole } else { &statements.pull };
        self.bind_members(self.bind(text.query()))
    }

    pub(crate) fn exchange_text<'s>(
        &self,
        statements: &'s Statements,
        batch: &SettlementBatch<'_>,
    ) -> &'s Text {
        let has_successors = batch.removals().iter().any(PendingSettlement::has_successors);
        let has_ends = batch.removals().iter().any(|pending| pending.end.is_some());
        match (self.is_whole(), has_successors, has_ends) {
            (false, false, false) => &statements.exchange,
            (false, true, false) => &statements.exchange_then,
            (true, false, false) => &statements.exchange_whole,
            (true, true, false) => &statements.exchange_whole_then,
            (false, false, true) => &statements.exchange_end,
            (false, true, true) => &statements.exchange_then_end,
            (true, false, true) => &statements.exchange_whole_end,
            (true, true, true) => &statements.exchange_whole_then_end,
        }
    }

    /// Binds the last argument of statements that claim groups whole.
    pub(crate) fn bind_members<'q>(
        &self,
        query: Query<'q, Postgres, PgArguments>,
    ) -> Query<'q, Postgres, PgArguments> {
        if self.is_whole() { query.bind(int(self.request.group_members)) } else { query }
    }

    pub(crate) fn bind(
        &self,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Query<'static, Postgres, PgArguments> {
        let query = query.bind(self.partition.name().to_owned()).bind(self.partition.is_dead_letters());
        let query = query.bind(int(self.request.max)).bind(millis(self.request.lease)).bind(self.secret);
        let ScanRanges { lanes, positions, last_lanes, due_ms } = self.ranges.clone();
        query.bind(lanes).bind(positions).bind(last_lanes).bind(due_ms)
    }
}
