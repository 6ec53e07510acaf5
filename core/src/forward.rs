//! Storages that wrap another storage.

use std::fmt;

use async_trait::async_trait;

use crate::amend::AmendQueueStorage;
use crate::capabilities::Capabilities;
use crate::control::ControlStorage;
use crate::error::Result;
use crate::inspect::{InspectQueueStorage, PauseQueueStorage};
use crate::ledger::LedgerQueueStorage;
use crate::lifecycle::{Health, QueueStorage};
use crate::message::MessageData;
use crate::partition::PartitionId;
use crate::storage::{
    ExtendOutcome, Extension, PullQueueStorage, PullRequest, PushOutcome, PushQueueStorage, RawDelivery,
    SettleOutcome, Settlement, Storage,
};

/// A storage that wraps another one and forwards every call, except for the methods that it overrides. Every
/// type that implements this trait is a [`Storage`].
///
/// Each method has the same contract as the trait method that it is named after: see [`QueueStorage`],
/// [`PushQueueStorage`], [`PullQueueStorage`].
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use anyqueue::adapter::{Forward, Storage, async_trait};
/// use anyqueue::{MessageData, PartitionId, PushOutcome, Queue, Result};
///
/// /// Counts what is pushed.
/// #[derive(Debug)]
/// struct Counted(Arc<dyn Storage>, Arc<AtomicUsize>);
///
/// #[async_trait]
/// impl Forward for Counted {
///     fn inner(&self) -> &dyn Storage {
///         &*self.0
///     }
///
///     async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
///         self.1.fetch_add(messages.len(), Ordering::Relaxed);
///         self.inner().push(partition, messages).await
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let count = Arc::new(AtomicUsize::new(0));
/// let queue = Queue::new(Counted(Arc::new(anyqueue_memory::MemoryQueue::new()), count.clone()))?;
/// queue.push("jobs", MessageData::new("one")).await?;
/// assert_eq!(count.load(Ordering::Relaxed), 1);
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[async_trait]
pub trait Forward: fmt::Debug + Send + Sync + 'static {
    /// Returns the storage that calls are forwarded to.
    fn inner(&self) -> &dyn Storage;

    /// See [`QueueStorage::name`].
    fn name(&self) -> &'static str {
        self.inner().name()
    }

    /// See [`QueueStorage::capabilities`].
    fn capabilities(&self) -> &Capabilities {
        self.inner().capabilities()
    }

    /// See [`QueueStorage::init`].
    async fn init(&self) -> Result<()> {
        self.inner().init().await
    }

    /// See [`QueueStorage::check`].
    async fn check(&self) -> Result<Health> {
        self.inner().check().await
    }

    /// See [`QueueStorage::close`].
    async fn close(&self) -> Result<()> {
        self.inner().close().await
    }

    /// See [`PushQueueStorage::encoded_len`].
    fn encoded_len(&self, message: &MessageData) -> u64 {
        self.inner().encoded_len(message)
    }

    /// See [`PushQueueStorage::push`].
    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.inner().push(partition, messages).await
    }

    /// See [`PullQueueStorage::pull`].
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.inner().pull(partition, request).await
    }

    /// See [`PullQueueStorage::settle`].
    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.inner().settle(settlements).await
    }

    /// See [`PullQueueStorage::extend`].
    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.inner().extend(extensions).await
    }

    /// See [`PullQueueStorage::exchange`]. This method alone is not forwarded: it calls `settle` and `pull`
    /// of this trait, so that overrides of those apply here too. A storage that overrides neither can forward
    /// it, to save a round trip.
    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        (self.settle(settlements).await, self.pull(partition, request).await)
    }

    /// See [`Storage::inspect`].
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        self.inner().inspect()
    }

    /// See [`Storage::pause`].
    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        self.inner().pause()
    }

    /// See [`Storage::amend`].
    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        self.inner().amend()
    }

    /// See [`Storage::ledger`].
    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        self.inner().ledger()
    }

    /// See [`Storage::control`].
    fn control(&self) -> Option<&dyn ControlStorage> {
        self.inner().control()
    }
}

#[async_trait]
impl<T: Forward> QueueStorage for T {
    fn name(&self) -> &'static str {
        Forward::name(self)
    }

    fn capabilities(&self) -> &Capabilities {
        Forward::capabilities(self)
    }

    async fn init(&self) -> Result<()> {
        Forward::init(self).await
    }

    async fn check(&self) -> Result<Health> {
        Forward::check(self).await
    }

    async fn close(&self) -> Result<()> {
        Forward::close(self).await
    }
}

#[async_trait]
impl<T: Forward> PushQueueStorage for T {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        Forward::encoded_len(self, message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        Forward::push(self, partition, messages).await
    }
}

#[async_trait]
impl<T: Forward> PullQueueStorage for T {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        Forward::pull(self, partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        Forward::settle(self, settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        Forward::extend(self, extensions).await
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        Forward::exchange(self, settlements, partition, request).await
    }
}

impl<T: Forward> Storage for T {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Forward::inspect(self)
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        Forward::pause(self)
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        Forward::amend(self)
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Forward::ledger(self)
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Forward::control(self)
    }
}
