//! The handle, what it declares, and the storage traits, which only delegate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{
    Browsed, CancelOutcome, Capabilities, Coalesce, Counts, Dedup, DelayCapability, DeleteOutcome, Delivery,
    DeliveryCount, Durability, DurabilityLevel, Error, ExtendOutcome, Extension, Health, InspectCapability,
    InspectQueueStorage, LeaseCapability, LeaseKind, Limits, MessageData, MessageId, MoveGuarantee,
    Operation, Order, PartitionId, PauseQueueStorage, PriorityDiscipline, PullQueueStorage, PullRequest,
    PushOutcome, PushQueueStorage, QueueStorage, Reach, Requeue, Result, SettleConfirm, SettleOutcome,
    Settlement, Storage, Strictness, async_trait,
};
use tokio_util::sync::CancellationToken;

use crate::config::MemoryConfig;
use crate::push::encoded_len;
use crate::state::Store;

pub(crate) const NAME: &str = "memory";
pub(crate) const PRIORITY_LEVELS: u8 = 10;
pub(crate) const MAX_BATCH: usize = 1000;
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(1);
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(7 * 24);
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(10 * 365 * 24);
/// The state changes at the very moment; a waiter learns of it by a timer, which ticks in milliseconds.
const SLACK: Duration = Duration::from_millis(5);

/// A client of a store in memory: see the [crate's page](crate) for what it promises.
///
/// Messages live as long as any client of their store. Every call is done when it is first polled, except a pull that
/// has to wait.
pub struct MemoryQueue {
    pub(crate) store: Arc<Store>,
    pub(crate) capabilities: Arc<Capabilities>,
    /// This client's own.
    pub(crate) closed: CancellationToken,
}

impl MemoryQueue {
    /// A new, empty store with default settings, and its first client.
    #[allow(clippy::new_without_default, reason = "each is a store of its own, made on purpose")]
    pub fn new() -> Self {
        Self::with_config(MemoryConfig::default())
    }

    /// A new, empty store, and its first client.
    pub fn with_config(config: MemoryConfig) -> Self {
        let capabilities = Arc::new(capabilities(config.max_message_bytes));
        Self { store: Arc::new(Store::new(config)), capabilities, closed: CancellationToken::new() }
    }

    /// Another client of the same store, as another process would have it: open, and not closed with this one.
    #[must_use]
    pub fn client(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            capabilities: Arc::clone(&self.capabilities),
            closed: CancellationToken::new(),
        }
    }

    pub(crate) fn ensure_open(&self, operation: Operation) -> Result<()> {
        if self.closed.is_cancelled() {
            return Err(Error::closed().with_backend(NAME).with_operation(operation));
        }
        Ok(())
    }

    pub(crate) fn max_message_bytes(&self) -> u64 {
        self.capabilities.limits.message_bytes
    }
}

/// Shows no message.
impl fmt::Debug for MemoryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryQueue").field("closed", &self.closed.is_cancelled()).finish_non_exhaustive()
    }
}

fn capabilities(max_message_bytes: u64) -> Capabilities {
    let none = DurabilityLevel::None;
    let delay = DelayCapability { max: MAX_DELAY, granularity: Duration::from_millis(1) };
    let coalesce = Coalesce { in_flight: 1, linger: Duration::ZERO, across_partitions: true };
    Capabilities {
        reach: Reach::Process,
        durability: Durability { push: none, claim: none, settle: none },
        unique_ids: true,
        settle_confirm: SettleConfirm::Confirmed,
        priority_levels: PRIORITY_LEVELS,
        priority: PriorityDiscipline::Strict,
        order: Order::PushOrder,
        requeue: Requeue::Front,
        exclusive: Strictness::Strict,
        fencing: Strictness::Strict,
        lease: LeaseCapability { kind: LeaseKind::Timed, min: MIN_LEASE, max: MAX_LEASE, max_hold: None },
        push_delay: Some(delay),
        postpone_delay: Some(delay),
        postpone_headers: true,
        groups: true,
        dedup: Dedup::WhileLive,
        delivery_count: DeliveryCount::ExceptReleases,
        moves: MoveGuarantee::Atomic,
        inspect: InspectCapability {
            ready: true,
            delayed: true,
            leased: true,
            dead: true,
            staleness: Duration::ZERO,
            list: true,
            browse: true,
            delete: true,
            purge: true,
            cancel: true,
        },
        pause: true,
        limits: Limits {
            message_bytes: max_message_bytes,
            push_batch: MAX_BATCH,
            push_batch_bytes: 64 << 20,
            pull_batch: MAX_BATCH,
            settle_batch: MAX_BATCH,
        },
        slack: SLACK,
        wake_latency: SLACK,
        overfetch: 0,
        exchange: true,
        coalesce_push: coalesce,
        coalesce_settle: coalesce,
        retention: None,
    }
}

#[async_trait]
impl QueueStorage for MemoryQueue {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn init(&self) -> Result<()> {
        self.ensure_open(Operation::Init)
    }

    async fn check(&self) -> Result<Health> {
        self.ensure_open(Operation::Check)?;
        Ok(Health::of_version(env!("CARGO_PKG_VERSION")))
    }

    async fn close(&self) -> Result<()> {
        self.closed.cancel();
        Ok(())
    }
}

#[async_trait]
impl PushQueueStorage for MemoryQueue {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.push_batch(partition, messages)
    }
}

#[async_trait]
impl PullQueueStorage for MemoryQueue {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<Delivery>> {
        self.pull_batch(partition, &request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.settle_batch(settlements)
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.extend_batch(extensions)
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<Delivery>>) {
        self.exchange_batch(settlements, partition, &request).await
    }
}

impl Storage for MemoryQueue {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        Some(self)
    }
}

#[async_trait]
impl InspectQueueStorage for MemoryQueue {
    async fn partitions(&self, after: Option<&PartitionId>, limit: usize) -> Result<Vec<PartitionId>> {
        self.list(after, limit)
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.count(partition)
    }

    async fn browse(
        &self,
        partition: &PartitionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<Browsed>> {
        self.browse_page(partition, after, limit)
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        self.delete_all(partition, ids)
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.purge_some(partition, limit)
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        self.cancel_all(partition, ids)
    }
}

#[async_trait]
impl PauseQueueStorage for MemoryQueue {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        self.pause_or_resume(partition, paused)
    }

    async fn is_paused(&self, partition: &PartitionId) -> Result<bool> {
        self.paused(partition)
    }
}
