//! Faults written from the contract alone, without sight of the cases: how they sit on the memory backend.
//!
//! Each is a [`Quirk`]: what it does not override is done right. The clients of one namespace share one quirk, and are told
//! apart by their numbers.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::{
    Action, Browsed, CancelOutcome, Counts, DeleteOutcome, Delivery, ExtendOutcome, Extension,
    InspectQueueStorage as _, Lease, MessageData, MessageId, PartitionId, PauseQueueStorage as _,
    PullQueueStorage as _, PullRequest, PushOutcome, PushQueueStorage as _, Result, SettleOutcome,
    Settlement, TaskOptions, async_trait,
};
use anyqueue_memory::MemoryQueue;
use tokio_util::sync::CancellationToken;

use super::{
    Fault, batches, fields, keys, lateness, numbers, reader_clients, reader_disguise, reader_exchange,
    reader_groups, reader_inspect, reader_keys, reader_lease, reader_names, reader_pause, reader_push,
    reader_reborn, reader_redelivery, reader_settle, reader_sharing, reader_wake,
};

pub(super) type Pushed = Vec<Result<PushOutcome>>;
pub(super) type Pulled = Result<Vec<Delivery>>;
pub(super) type Settled = Vec<Result<SettleOutcome>>;
pub(super) type Extended = Vec<Result<ExtendOutcome>>;

/// A right client, under a faulty one.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) memory: MemoryQueue,
    /// Of the clients of its namespace, from 0 on.
    pub(super) number: usize,
    pub(super) closed: CancellationToken,
}

impl Client {
    /// The message with this id.
    pub(super) async fn find(&self, partition: &PartitionId, id: MessageId) -> Option<Browsed> {
        let before = u128::from_be_bytes(*id.as_bytes()).checked_sub(1);
        let before = before.map(|number| MessageId::from_bytes(number.to_be_bytes()));
        let page = self.memory.browse(partition, before, 1).await.ok()?;
        page.into_iter().find(|browsed| browsed.message.id() == id)
    }

    pub(super) async fn settle_one(&self, lease: Lease, action: Action) -> Result<SettleOutcome> {
        let answers = self.memory.settle(&[Settlement { lease, action }]).await;
        answers.into_iter().next().unwrap_or(Ok(SettleOutcome::Lost))
    }

    pub(super) async fn push_one(
        &self,
        partition: &PartitionId,
        message: MessageData,
    ) -> Result<PushOutcome> {
        let id = message.id();
        let answers = self.memory.push(partition, &[message]).await;
        answers.into_iter().next().unwrap_or(Ok(PushOutcome::Duplicate(Some(id))))
    }
}

/// One fault: the calls that it spoils.
#[async_trait]
pub(super) trait Quirk: fmt::Debug + Send + Sync {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        client.memory.push(partition, messages).await
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        client.memory.pull(partition, request).await
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        client.memory.settle(settlements).await
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        client.memory.extend(extensions).await
    }

    async fn exchange(
        &self,
        client: &Client,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Settled, Pulled) {
        (self.settle(client, settlements).await, self.pull(client, partition, request).await)
    }

    async fn partitions(
        &self,
        client: &Client,
        after: Option<&PartitionId>,
        limit: usize,
    ) -> Result<Vec<PartitionId>> {
        client.memory.partitions(after, limit).await
    }

    async fn counts(&self, client: &Client, partition: &PartitionId) -> Result<Counts> {
        client.memory.counts(partition).await
    }

    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<Browsed>> {
        client.memory.browse(partition, after, limit).await
    }

    async fn delete(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<DeleteOutcome>> {
        client.memory.delete(partition, ids).await
    }

    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        client.memory.purge(partition, limit).await
    }

    async fn cancel(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<CancelOutcome>> {
        client.memory.request_cancel(partition, ids).await
    }

    async fn set_paused(&self, client: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
        client.memory.set_paused(partition, paused).await
    }

    async fn is_paused(&self, client: &Client, partition: &PartitionId) -> Result<bool> {
        client.memory.is_paused(partition).await
    }

    /// Before the right `init`.
    async fn before_init(&self, _client: &Client) {}

    /// Before the right `close`, the first time.
    async fn before_close(&self, _client: &Client) {}
}

/// What a closed client has.
#[derive(Debug)]
pub(super) struct Faultless;

impl Quirk for Faultless {}

/// One fault of this kind.
pub(super) struct Entry {
    fault: Fault,
    breaks: &'static [u8],
    subtle: bool,
    make: fn() -> Arc<dyn Quirk>,
}

pub(super) const fn plain(fault: Fault, breaks: &'static [u8], make: fn() -> Arc<dyn Quirk>) -> Entry {
    Entry { fault, breaks, subtle: false, make }
}

pub(super) const fn subtle(fault: Fault, breaks: &'static [u8], make: fn() -> Arc<dyn Quirk>) -> Entry {
    Entry { fault, breaks, subtle: true, make }
}

const TOPICS: &[&[Entry]] = &[
    reader_push::FAULTS,
    reader_disguise::FAULTS,
    reader_keys::FAULTS,
    reader_names::FAULTS,
    reader_reborn::FAULTS,
    reader_groups::FAULTS,
    reader_settle::FAULTS,
    reader_redelivery::FAULTS,
    reader_lease::FAULTS,
    reader_exchange::FAULTS,
    reader_inspect::FAULTS,
    reader_pause::FAULTS,
    reader_clients::FAULTS,
    reader_wake::FAULTS,
    reader_sharing::FAULTS,
    fields::FAULTS,
    batches::FAULTS,
    keys::FAULTS,
    numbers::FAULTS,
    lateness::FAULTS,
];

fn entry(fault: Fault) -> Option<&'static Entry> {
    TOPICS.iter().flat_map(|topic| topic.iter()).find(|entry| entry.fault == fault)
}

/// The fault, if it is one of these.
pub(super) fn quirk(fault: Fault) -> Option<Arc<dyn Quirk>> {
    entry(fault).map(|entry| (entry.make)())
}

impl Fault {
    /// The clauses that it breaks, for a fault that was written from the contract alone; none for others.
    pub fn breaks(self) -> &'static [u8] {
        entry(self).map_or(&[], |entry| entry.breaks)
    }

    /// Whether it was written from the contract alone, and shows only in a rare situation.
    pub fn is_subtle(self) -> bool {
        entry(self).is_some_and(|entry| entry.subtle)
    }
}

/// The request, with another wait.
pub(super) fn for_wait(request: &PullRequest, wait: Duration) -> PullRequest {
    let mut request = request.clone();
    request.wait = wait;
    request
}

/// What a fault remembers.
#[derive(Debug, Default)]
pub(super) struct Kept<T>(Mutex<T>);

impl<T> Kept<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The options of messages that are stored with other ones.
#[derive(Debug, Default)]
pub(super) struct Originals(Kept<HashMap<MessageId, TaskOptions>>);

impl Originals {
    pub(super) fn keep(&self, message: &MessageData) {
        self.0.lock().insert(message.id(), message.options().clone());
    }

    pub(super) fn restore(&self, message: &mut MessageData) {
        if let Some(options) = self.0.lock().get(&message.id()) {
            *message = message.clone().with_options(options.clone());
        }
    }
}
