//! A fault, described by the calls that it spoils.
//!
//! Each fault is a [`Quirk`]: calls that it does not override are correct. The clients of one namespace share
//! one quirk, which tells them apart by their numbers.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::adapter::{
    Action, AmendQueueStorage as _, Cancelled, Capabilities, ControlStorage as _, EndedCursor, EndedQuery,
    EndedTask, Extension, InspectQueueStorage as _, Lease, LedgerQueueStorage as _, PauseQueueStorage as _,
    PullQueueStorage as _, PullRequest, PushQueueStorage as _, QueueStorage as _, RawDelivery, SeriesCell,
    SeriesKey, Settlement, TaskEnd, async_trait,
};
use anyqueue::control::{Applied, Change, Entry as ControlEntry, Key, Stamped};
use anyqueue::{
    Amend, AmendOutcome, Browsed, CancelOutcome, Clock, Counts, DeleteOutcome, ExtendOutcome, Health,
    MessageData, MessageId, Page, PartitionId, PushOutcome, Result, SettleOutcome, TaskOptions,
};
use anyqueue_conformance::{Clause, Fault};
use tokio_util::sync::CancellationToken;

use crate::right::Right;

pub(crate) type Pushed = Vec<Result<PushOutcome>>;
pub(crate) type Pulled = Result<Vec<RawDelivery>>;
pub(crate) type Settled = Vec<Result<SettleOutcome>>;
pub(crate) type Extended = Vec<Result<ExtendOutcome>>;
pub(crate) type Amended = Vec<Result<AmendOutcome>>;
pub(crate) type Found = Vec<Result<Option<EndedTask>>>;

/// A correct client beneath a faulty one.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) right: Right,
    /// The number of this client among those of its namespace, from 0.
    pub(crate) number: usize,
    pub(crate) closed: CancellationToken,
    /// This client's own clock, which may be wrong.
    pub(crate) clock: Clock,
    /// The storage's clock, which is right.
    pub(crate) server: Clock,
}

impl Client {
    /// Returns the message with this id.
    pub(crate) async fn find(&self, partition: &PartitionId, id: MessageId) -> Option<Browsed> {
        self.right.find(partition, id).await
    }

    pub(crate) async fn settle_one(&self, lease: Lease, action: Action) -> Result<SettleOutcome> {
        let answers = self.right.settle(&[Settlement::new(lease, action)]).await;
        answers.into_iter().next().unwrap_or(Ok(SettleOutcome::Lost))
    }

    /// Returns whether the lease holds; if so, it is set to end in a minute.
    pub(crate) async fn holds(&self, lease: &Lease) -> bool {
        let extension = Extension { lease: lease.clone(), duration: Duration::from_mins(1) };
        let answers = self.right.extend(&[extension]).await;
        matches!(answers.as_slice(), [Ok(ExtendOutcome::Extended | ExtendOutcome::CancelRequested)])
    }

    /// Settles with this action instead, including any successors.
    pub(crate) async fn settle_by(&self, settlement: &Settlement, action: Action) -> Result<SettleOutcome> {
        let answers = self.right.settle(&[by(settlement, action)]).await;
        answers.into_iter().next().unwrap_or(Ok(SettleOutcome::Lost))
    }

    pub(crate) async fn push_one(
        &self,
        partition: &PartitionId,
        message: MessageData,
    ) -> Result<PushOutcome> {
        let id = message.id();
        let answers = self.right.push(partition, &[message]).await;
        answers.into_iter().next().unwrap_or(Ok(PushOutcome::Duplicate(Some(id))))
    }
}

/// One fault: the calls that it spoils.
#[async_trait]
pub(crate) trait Quirk: fmt::Debug + Send + Sync {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        client.right.push(partition, messages).await
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        client.right.pull(partition, request).await
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        client.right.settle(settlements).await
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        client.right.extend(extensions).await
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

    async fn partitions(&self, client: &Client, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        client.right.partitions(Page::of(limit).after(after.cloned())).await
    }

    async fn counts(&self, client: &Client, partition: &PartitionId) -> Result<Counts> {
        client.right.counts(partition).await
    }

    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        client.right.browse(partition, Page::of(limit).after(after)).await
    }

    async fn delete(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<DeleteOutcome>> {
        client.right.delete(partition, ids).await
    }

    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        client.right.purge(partition, limit).await
    }

    async fn cancel(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<CancelOutcome>> {
        client.right.request_cancel(partition, ids).await
    }

    async fn set_paused(&self, client: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
        client.right.set_paused(partition, paused).await
    }

    async fn is_paused(&self, client: &Client, partition: &PartitionId) -> Result<bool> {
        client.right.is_paused(partition).await
    }

    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        client.right.amend(partition, ids, change).await
    }

    async fn record_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        client.right.record_ended(partition, ends).await
    }

    async fn ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        let Page { after, limit } = page;
        client.right.ended(partition, query, Page::of(limit).after(after)).await
    }

    async fn count_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        query: &EndedQuery,
        cap: u64,
    ) -> Result<u64> {
        client.right.count_ended(partition, query, cap).await
    }

    async fn find_ended(&self, client: &Client, partition: &PartitionId, ids: &[MessageId]) -> Found {
        client.right.find_ended(partition, ids).await
    }

    async fn delete_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<bool>> {
        client.right.delete_ended(partition, ids).await
    }

    async fn purge_ended(&self, client: &Client, limit: usize) -> Result<usize> {
        client.right.purge_ended(limit).await
    }

    async fn series(
        &self,
        client: &Client,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        client.right.series(partition, minutes, page).await
    }

    /// Cancellation in the ledger; [`cancel`](Self::cancel) is that of the inspection.
    async fn cancel_tasks(
        &self,
        client: &Client,
        partition: &PartitionId,
        tasks: &[Cancelled],
    ) -> Vec<Result<CancelOutcome>> {
        client.right.cancel(partition, tasks).await
    }

    async fn entries(&self, client: &Client, keys: &[Key]) -> Result<Stamped<Vec<Option<ControlEntry>>>> {
        client.right.get(keys).await
    }

    async fn list_entries(
        &self,
        client: &Client,
        prefix: &str,
        page: Page<Key>,
    ) -> Result<Stamped<Vec<ControlEntry>>> {
        client.right.list(prefix, page).await
    }

    async fn change_entries(&self, client: &Client, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        client.right.apply(changes).await
    }

    /// Changes what the backend declares.
    fn declare(&self, _capabilities: &mut Capabilities) {}

    async fn init(&self, client: &Client) -> Result<()> {
        self.before_init(client).await;
        client.right.init().await
    }

    async fn check(&self, client: &Client) -> Result<Health> {
        client.right.check().await
    }

    async fn close(&self, client: &Client) -> Result<()> {
        self.before_close(client).await;
        client.closed.cancel();
        client.right.close().await
    }

    /// Runs before the correct `init`.
    async fn before_init(&self, _client: &Client) {}

    /// Runs before the correct `close`, the first time only.
    async fn before_close(&self, _client: &Client) {}
}

/// The quirk of a closed client: none.
#[derive(Debug)]
pub(crate) struct Faultless;

impl Quirk for Faultless {}

/// One fault and its quirk.
pub(crate) struct Entry {
    pub(crate) fault: Fault,
    pub(crate) breaks: &'static [Clause],
    pub(crate) subtle: bool,
    pub(crate) make: fn() -> Arc<dyn Quirk>,
}

pub(crate) const fn plain(fault: Fault, breaks: &'static [Clause], make: fn() -> Arc<dyn Quirk>) -> Entry {
    Entry { fault, breaks, subtle: false, make }
}

pub(crate) const fn subtle(fault: Fault, breaks: &'static [Clause], make: fn() -> Arc<dyn Quirk>) -> Entry {
    Entry { fault, breaks, subtle: true, make }
}

/// Returns the same settlement for another lease.
pub(crate) fn of(settlement: &Settlement, lease: Lease) -> Settlement {
    Settlement::new(lease, settlement.action.clone())
        .with_then(settlement.then.clone())
        .with_end(settlement.end.clone())
}

/// Returns the same settlement with another action.
pub(crate) fn by(settlement: &Settlement, action: Action) -> Settlement {
    Settlement::new(settlement.lease.clone(), action)
        .with_then(settlement.then.clone())
        .with_end(settlement.end.clone())
}

/// Returns the request with another wait.
pub(crate) fn for_wait(request: &PullRequest, wait: Duration) -> PullRequest {
    let mut request = request.clone();
    request.wait = wait;
    request
}

/// What a fault remembers.
#[derive(Debug, Default)]
pub(crate) struct Kept<T>(Mutex<T>);

impl<T> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The original options of messages that are stored with other ones.
#[derive(Debug, Default)]
pub(crate) struct Originals(Kept<HashMap<MessageId, TaskOptions>>);

impl Originals {
    pub(crate) fn keep(&self, message: &MessageData) {
        self.0.lock().insert(message.id(), message.options().clone());
    }

    pub(crate) fn restore(&self, message: &mut MessageData) {
        if let Some(options) = self.0.lock().get(&message.id()) {
            *message = message.clone().with_options(options.clone());
        }
    }
}
