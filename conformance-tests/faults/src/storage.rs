//! The storage that a [`Quirk`] spoils.

use std::ops::Range;
use std::sync::Arc;

use anyqueue::adapter::{
    AmendQueueStorage, Cancelled, Capabilities, ControlStorage, EndedCursor, EndedQuery, EndedTask,
    Extension, InspectQueueStorage, LedgerQueueStorage, PauseQueueStorage, PullQueueStorage, PullRequest,
    PushQueueStorage, QueueStorage, SeriesCell, SeriesKey, Settlement, Storage, TaskEnd, async_trait,
};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{
    Amend, Browsed, CancelOutcome, Clock, Counts, DeleteOutcome, Health, MessageData, MessageId, Page,
    PartitionId, Result,
};
use tokio_util::sync::CancellationToken;

use crate::quirk::{Amended, Client, Extended, Faultless, Found, Pulled, Pushed, Quirk, Settled};
use crate::right::Right;

/// One client of a backend with one fault.
#[derive(Debug)]
pub(crate) struct Quirky {
    client: Client,
    quirk: Arc<dyn Quirk>,
    capabilities: Capabilities,
}

impl Quirky {
    /// `number` is the client's number, and `clock` its own clock; the storage has another one.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        number: usize,
        clock: Clock,
        server: Clock,
        quirk: Arc<dyn Quirk>,
    ) -> Self {
        let mut capabilities = storage.capabilities().clone();
        quirk.declare(&mut capabilities);
        let right = Right::new(storage);
        let client = Client { right, number, closed: CancellationToken::new(), clock, server };
        Self { client, quirk, capabilities }
    }

    /// A closed client is correct: every call goes to the correct backend, which refuses it.
    fn quirk(&self) -> &dyn Quirk {
        if self.client.closed.is_cancelled() { &Faultless } else { &*self.quirk }
    }
}

#[async_trait]
impl QueueStorage for Quirky {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn init(&self) -> Result<()> {
        self.quirk().init(&self.client).await
    }

    async fn check(&self) -> Result<Health> {
        self.quirk().check(&self.client).await
    }

    async fn close(&self) -> Result<()> {
        self.quirk().close(&self.client).await
    }
}

#[async_trait]
impl PushQueueStorage for Quirky {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        self.client.right.encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        self.quirk().push(&self.client, partition, messages).await
    }
}

#[async_trait]
impl PullQueueStorage for Quirky {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Pulled {
        self.quirk().pull(&self.client, partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Settled {
        self.quirk().settle(&self.client, settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Extended {
        self.quirk().extend(&self.client, extensions).await
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Settled, Pulled) {
        self.quirk().exchange(&self.client, settlements, partition, request).await
    }
}

impl Storage for Quirky {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        Some(self)
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        let has_one = self.capabilities.ledger.is_some() && self.client.right.has_ledger();
        has_one.then_some(self as &dyn LedgerQueueStorage)
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        let has_one = self.capabilities.control && self.client.right.has_control();
        has_one.then_some(self as &dyn ControlStorage)
    }
}

#[async_trait]
impl AmendQueueStorage for Quirky {
    async fn amend(&self, partition: &PartitionId, ids: &[MessageId], change: &Amend) -> Amended {
        self.quirk().amend(&self.client, partition, ids, change).await
    }
}

#[async_trait]
impl InspectQueueStorage for Quirky {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        self.quirk().partitions(&self.client, Page::of(limit).after(after.cloned())).await
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.quirk().counts(&self.client, partition).await
    }

    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        self.quirk().browse(&self.client, partition, Page::of(limit).after(after)).await
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        self.quirk().delete(&self.client, partition, ids).await
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.quirk().purge(&self.client, partition, limit).await
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        self.quirk().cancel(&self.client, partition, ids).await
    }
}

#[async_trait]
impl PauseQueueStorage for Quirky {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        self.quirk().set_paused(&self.client, partition, paused).await
    }

    async fn is_paused(&self, partition: &PartitionId) -> Result<bool> {
        self.quirk().is_paused(&self.client, partition).await
    }
}

#[async_trait]
impl LedgerQueueStorage for Quirky {
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        self.quirk().record_ended(&self.client, partition, ends).await
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        let Page { after, limit } = page;
        self.quirk().ended(&self.client, partition, query, Page::of(limit).after(after)).await
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.quirk().count_ended(&self.client, partition, query, cap).await
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Found {
        self.quirk().find_ended(&self.client, partition, ids).await
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        self.quirk().delete_ended(&self.client, partition, ids).await
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.quirk().purge_ended(&self.client, limit).await
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        self.quirk().series(&self.client, partition, minutes, page).await
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        self.quirk().cancel_tasks(&self.client, partition, tasks).await
    }
}

#[async_trait]
impl ControlStorage for Quirky {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.quirk().entries(&self.client, keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.quirk().list_entries(&self.client, prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.quirk().change_entries(&self.client, changes).await
    }
}
