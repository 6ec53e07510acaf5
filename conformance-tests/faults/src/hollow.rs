//! Backends with nothing inside: one agrees to everything and does nothing, one refuses everything.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use anyqueue::adapter::{
    AmendQueueStorage, Cancelled, Capabilities, ControlStorage, EndedCursor, EndedQuery, EndedTask,
    Extension, InspectQueueStorage, LedgerQueueStorage, PauseQueueStorage, PullQueueStorage, PullRequest,
    PushQueueStorage, QueueStorage, RawDelivery, SeriesCell, SeriesKey, Settlement, Storage, TaskEnd,
    async_trait,
};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, Error, ExtendOutcome, Health, MessageData, MessageId,
    Page, PartitionId, PushOutcome, Result, SettleOutcome,
};

/// A backend that keeps nothing but declares everything.
#[derive(Clone, Debug)]
pub struct Hollow {
    capabilities: Capabilities,
    refuses: bool,
}

impl Hollow {
    /// Reports success for everything and does nothing.
    pub fn agreeing(capabilities: Capabilities) -> Self {
        Self { capabilities, refuses: false }
    }

    /// Returns `Unsupported` from everything but `init` and `close`.
    pub fn refusing(capabilities: Capabilities) -> Self {
        Self { capabilities, refuses: true }
    }

    fn answer<T>(&self, yes: T) -> Result<T> {
        if self.refuses { Err(Error::unsupported("this backend refuses everything")) } else { Ok(yes) }
    }

    fn answers<I, T>(&self, items: &[I], yes: impl Fn(&I) -> T) -> Vec<Result<T>> {
        items.iter().map(|item| self.answer(yes(item))).collect()
    }
}

#[async_trait]
impl QueueStorage for Hollow {
    fn name(&self) -> &'static str {
        "hollow"
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    async fn init(&self) -> Result<()> {
        Ok(())
    }
    async fn check(&self) -> Result<Health> {
        self.answer(Health::default())
    }
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl PushQueueStorage for Hollow {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        message.payload().len() as u64
    }
    async fn push(&self, _: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.answers(messages, |message| PushOutcome::Stored(message.id()))
    }
}

#[async_trait]
impl PullQueueStorage for Hollow {
    async fn pull(&self, _: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let _ = tokio::time::timeout(request.wait, request.stop.cancelled()).await;
        self.answer(Vec::new())
    }
    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.answers(settlements, |_| SettleOutcome::Settled)
    }
    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.answers(extensions, |_| ExtendOutcome::Extended)
    }
    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        (self.settle(settlements).await, self.pull(partition, request).await)
    }
}

impl Storage for Hollow {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }
    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        Some(self)
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        None
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Some(self)
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl InspectQueueStorage for Hollow {
    async fn partitions(&self, _: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        self.answer(Vec::new())
    }
    async fn counts(&self, _: &PartitionId) -> Result<Counts> {
        self.answer(Counts::known(0, 0, 0, 0))
    }
    async fn browse(&self, _: &PartitionId, _: Page<MessageId>) -> Result<Vec<Browsed>> {
        self.answer(Vec::new())
    }
    async fn delete(&self, _: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        self.answers(ids, |_| DeleteOutcome::Deleted)
    }
    async fn purge(&self, _: &PartitionId, _: usize) -> Result<usize> {
        self.answer(0)
    }
    async fn request_cancel(&self, _: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        self.answers(ids, |_| CancelOutcome::Removed)
    }
}

#[async_trait]
impl PauseQueueStorage for Hollow {
    async fn set_paused(&self, _: &PartitionId, _: bool) -> Result<()> {
        self.answer(())
    }
    async fn is_paused(&self, _: &PartitionId) -> Result<bool> {
        self.answer(false)
    }
}

#[async_trait]
impl LedgerQueueStorage for Hollow {
    async fn record_ended(&self, _: &PartitionId, ends: &[(MessageId, Arc<TaskEnd>)]) -> Vec<Result<()>> {
        self.answers(ends, |_| ())
    }
    async fn ended(&self, _: &PartitionId, _: &EndedQuery, _: Page<EndedCursor>) -> Result<Vec<EndedTask>> {
        self.answer(Vec::new())
    }
    async fn count_ended(&self, _: &PartitionId, _: &EndedQuery, _: u64) -> Result<u64> {
        self.answer(0)
    }
    async fn find_ended(&self, _: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        self.answers(ids, |_| None)
    }
    async fn delete_ended(&self, _: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        self.answers(ids, |_| true)
    }
    async fn purge_ended(&self, _: usize) -> Result<usize> {
        self.answer(0)
    }
    async fn series(&self, _: &PartitionId, _: Range<u64>, _: Page<SeriesKey>) -> Result<Vec<SeriesCell>> {
        self.answer(Vec::new())
    }
    async fn cancel(&self, _: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        self.answers(tasks, |_| CancelOutcome::Removed)
    }
}

#[async_trait]
impl ControlStorage for Hollow {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.answer(Stamped::new(SystemTime::now(), vec![None; keys.len()]))
    }
    async fn list(&self, _: &str, _: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.answer(Stamped::new(SystemTime::now(), Vec::new()))
    }
    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.answer(Stamped::new(SystemTime::now(), vec![Applied::Done; changes.len()]))
    }
}
