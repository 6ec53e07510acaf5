//! The correct backend beneath a fault, whichever backend that is.

use std::ops::Range;
use std::sync::Arc;

use anyqueue::adapter::{
    AmendQueueStorage, Cancelled, Capabilities, ControlStorage, EndedCursor, EndedQuery, EndedTask,
    Extension, InspectQueueStorage, LedgerQueueStorage, PauseQueueStorage, PullQueueStorage, PullRequest,
    PushQueueStorage, QueueStorage, RawDelivery, SeriesCell, SeriesKey, Settlement, Storage, TaskEnd,
    async_trait,
};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{
    Amend, AmendOutcome, Browsed, CancelOutcome, Counts, DeleteOutcome, Error, ExtendOutcome, Health,
    MessageData, MessageId, Page, PartitionId, PushOutcome, Result, SettleOutcome,
};

/// One client of the correct backend, with all calls, including the optional ones.
#[derive(Clone, Debug)]
pub(crate) struct Right(Arc<dyn Storage>);

impl Right {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        Self(storage)
    }

    /// Returns the message with this id.
    pub(crate) async fn find(&self, partition: &PartitionId, id: MessageId) -> Option<Browsed> {
        let before = u128::from_be_bytes(*id.as_bytes()).checked_sub(1);
        let before = before.map(|number| MessageId::from_bytes(number.to_be_bytes()));
        let page = self.browse(partition, Page::of(1).after(before)).await.ok()?;
        page.into_iter().find(|browsed| browsed.message.id() == id)
    }

    pub(crate) fn has_ledger(&self) -> bool {
        self.0.ledger().is_some()
    }

    pub(crate) fn has_control(&self) -> bool {
        self.0.control().is_some()
    }

    fn control(&self) -> Result<&dyn ControlStorage> {
        self.0.control().ok_or_else(|| Error::unsupported("no control store"))
    }

    fn ledger(&self) -> Result<&dyn LedgerQueueStorage> {
        self.0.ledger().ok_or_else(|| Error::unsupported("no ledger"))
    }

    fn inspector(&self) -> Result<&dyn InspectQueueStorage> {
        self.0.inspect().ok_or_else(|| Error::unsupported("no inspection"))
    }

    fn pauser(&self) -> Result<&dyn PauseQueueStorage> {
        self.0.pause().ok_or_else(|| Error::unsupported("no pause"))
    }
}

#[async_trait]
impl QueueStorage for Right {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    async fn init(&self) -> Result<()> {
        self.0.init().await
    }

    async fn check(&self) -> Result<Health> {
        self.0.check().await
    }

    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}

#[async_trait]
impl PushQueueStorage for Right {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        self.0.encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.0.push(partition, messages).await
    }
}

#[async_trait]
impl PullQueueStorage for Right {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.0.pull(partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.0.settle(settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.0.extend(extensions).await
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        self.0.exchange(settlements, partition, request).await
    }
}

#[async_trait]
impl InspectQueueStorage for Right {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        self.inspector()?.partitions(Page::of(limit).after(after.cloned())).await
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.inspector()?.counts(partition).await
    }

    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        self.inspector()?.browse(partition, Page::of(limit).after(after)).await
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        match self.inspector() {
            Ok(inspector) => inspector.delete(partition, ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.inspector()?.purge(partition, limit).await
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        match self.inspector() {
            Ok(inspector) => inspector.request_cancel(partition, ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }
}

#[async_trait]
impl PauseQueueStorage for Right {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        self.pauser()?.set_paused(partition, paused).await
    }

    async fn is_paused(&self, partition: &PartitionId) -> Result<bool> {
        self.pauser()?.is_paused(partition).await
    }
}

#[async_trait]
impl AmendQueueStorage for Right {
    async fn amend(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Vec<Result<AmendOutcome>> {
        match self.0.amend() {
            Some(amend) => amend.amend(partition, ids, change).await,
            None => vec![Err(Error::unsupported("no amendment")); ids.len()],
        }
    }
}

#[async_trait]
impl LedgerQueueStorage for Right {
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        match self.ledger() {
            Ok(ledger) => ledger.record_ended(partition, ends).await,
            Err(error) => vec![Err(error); ends.len()],
        }
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        let Page { after, limit } = page;
        self.ledger()?.ended(partition, query, Page::of(limit).after(after)).await
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.ledger()?.count_ended(partition, query, cap).await
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        match self.ledger() {
            Ok(ledger) => ledger.find_ended(partition, ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        match self.ledger() {
            Ok(ledger) => ledger.delete_ended(partition, ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.ledger()?.purge_ended(limit).await
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        self.ledger()?.series(partition, minutes, page).await
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        match self.ledger() {
            Ok(ledger) => ledger.cancel(partition, tasks).await,
            Err(error) => vec![Err(error); tasks.len()],
        }
    }
}

#[async_trait]
impl ControlStorage for Right {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.control()?.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.control()?.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.control()?.apply(changes).await
    }
}
