//! A ledger that passes every call on, and writes down what it is told.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use anyqueue::adapter::{
    Cancelled, EndedCursor, EndedQuery, EndedTask, Forward, LedgerQueueStorage, SeriesCell, SeriesKey,
    Storage, TaskEnd, async_trait,
};
use anyqueue::{CancelOutcome, MessageId, Page, PartitionId, Result};

/// One thing that a ledger was told: a fact of a task that lives, or an end.
pub(crate) type Fact = (PartitionId, MessageId, Arc<TaskEnd>);

/// What was told, in order.
pub(crate) type Facts = Arc<Mutex<Vec<Fact>>>;

#[derive(Debug)]
pub(crate) struct Tapped {
    inner: Arc<dyn Storage>,
    facts: Facts,
}

impl Tapped {
    pub(crate) fn new(inner: Arc<dyn Storage>, facts: &Facts) -> Self {
        Self { inner, facts: Arc::clone(facts) }
    }

    fn kept(&self) -> &dyn LedgerQueueStorage {
        self.inner.ledger().unwrap()
    }
}

impl Forward for Tapped {
    fn inner(&self) -> &dyn Storage {
        &*self.inner
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Some(self)
    }
}

#[async_trait]
impl LedgerQueueStorage for Tapped {
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        let told = ends.iter().map(|(id, end)| (partition.clone(), *id, Arc::clone(end)));
        self.facts.lock().unwrap().extend(told);
        self.kept().record_ended(partition, ends).await
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        self.kept().ended(partition, query, page).await
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.kept().count_ended(partition, query, cap).await
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        self.kept().find_ended(partition, ids).await
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        self.kept().delete_ended(partition, ids).await
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.kept().purge_ended(limit).await
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        self.kept().series(partition, minutes, page).await
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        self.kept().cancel(partition, tasks).await
    }
}
