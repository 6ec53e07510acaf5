//! Inspection and administration: counts, browsing, deletion, purge, cancellation, amendment, pause.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::guard;
use super::handle::Queue;
use crate::amend::{Amend, AmendOutcome};
use crate::error::{Operation, Result};
use crate::inspect::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, InspectQueueStorage, MAX_PAGE, Page, PauseQueueStorage,
};
use crate::ledger::Cancelled;
use crate::message::MessageId;
use crate::partition::{IntoPartitionId, PartitionId};
use crate::storage::Storage;

/// A purge deletes at most this many pages of [`MAX_PAGE`] messages, so that a fast producer cannot keep it
/// going forever.
const PURGE_PAGES: usize = 100_000;

/// What [`Queue::delete_where`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeletedWhere {
    /// The number of messages deleted.
    pub deleted: u64,
    /// The number of messages that matched but were held by a consumer, and so were left alone.
    pub leased: u64,
    /// The number of messages looked at.
    pub scanned: u64,
    /// Where to continue, if it stopped at its limit.
    pub next: Option<MessageId>,
}

impl Queue {
    /// Returns how many messages of a partition are in which state, as far as the backend knows.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend cannot count at all; otherwise the
    /// server's error.
    pub async fn counts(&self, partition: impl IntoPartitionId) -> Result<Counts> {
        let partition = partition.into_partition_id()?.live();
        let declared = self.capabilities().inspect;
        self.inspect(declared.ready || declared.dead, "counts", |inspect| {
            Box::pin(async move { inspect.counts(&partition).await })
        })
        .await
    }

    /// Returns the names of live partitions in byte order, at most [`MAX_PAGE`] per call.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), or the server's error.
    pub async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        self.inspect(self.capabilities().inspect.list, "list of partitions", move |inspect| {
            Box::pin(async move { inspect.partitions(page.bounded()).await })
        })
        .await
    }

    /// Returns messages in the order of their ids, at most [`MAX_PAGE`] per call. Nothing is leased and
    /// nobody is locked out.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), or the server's error.
    pub async fn browse(
        &self,
        partition: impl IntoPartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let partition = partition.into_partition_id()?;
        self.inspect(self.capabilities().inspect.browse, "browsing", move |inspect| {
            Box::pin(async move { inspect.browse(&partition, page.bounded()).await })
        })
        .await
    }

    /// Deletes messages by id, unless they are held. Returns one result per id, in order.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), [`InvalidInput`](crate::ErrorKind::InvalidInput) for a
    /// bad name, or a failed call as a whole; errors of single messages are in the results.
    pub async fn delete(
        &self,
        partition: impl IntoPartitionId,
        ids: &[MessageId],
    ) -> Result<Vec<Result<DeleteOutcome>>> {
        let partition = partition.into_partition_id()?;
        let declared = self.capabilities().inspect.delete;
        self.can_inspect(declared, "deletion by id")?;
        let mut answers = Vec::with_capacity(ids.len());
        for part in ids.chunks(MAX_PAGE) {
            let (partition, part) = (partition.clone(), part.to_vec());
            let call = self.inspect(declared, "deletion by id", |inspect| {
                Box::pin(async move { Ok(inspect.delete(&partition, &part).await) })
            });
            answers.extend(call.await?);
        }
        Ok(answers)
    }

    /// Deletes those messages of a page that the filter accepts, except those that are held. The page can be
    /// longer than [`MAX_PAGE`]. The next one begins after the [`next`](DeletedWhere::next) that this returns.
    ///
    /// ```
    /// use anyqueue::{MessageData, Page, Queue};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
    /// queue.push_many("mail", ["a", "b", "c"].map(MessageData::new).into()).await?;
    ///
    /// let first = queue.delete_where("mail", Page::of(2), |_| true).await?;
    /// let rest = queue.delete_where("mail", Page::of(2).after(first.next), |_| true).await?;
    /// assert_eq!((first.deleted, rest.deleted, rest.next), (2, 1, None));
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), or the server's error; what was deleted before stays
    /// deleted.
    pub async fn delete_where(
        &self,
        partition: impl IntoPartitionId,
        page: Page<MessageId>,
        mut filter: impl FnMut(&Browsed) -> bool,
    ) -> Result<DeletedWhere> {
        let partition = partition.into_partition_id()?;
        let mut done = DeletedWhere { next: page.after, ..DeletedWhere::default() };
        let mut left = page.limit;
        while left > 0 {
            let room = left.min(MAX_PAGE);
            let found = self.browse(&partition, Page::of(room).after(done.next)).await?;
            let is_last = found.len() < room;
            left = left.saturating_sub(found.len());
            done.scanned += found.len() as u64;
            done.next = found.last().map(|browsed| browsed.message.id()).or(done.next);
            let ids: Vec<_> =
                found.iter().filter(|browsed| filter(browsed)).map(|browsed| browsed.message.id()).collect();
            for outcome in self.delete(&partition, &ids).await? {
                match outcome? {
                    DeleteOutcome::Deleted => done.deleted += 1,
                    DeleteOutcome::Leased => done.leased += 1,
                    DeleteOutcome::NotFound => {}
                }
            }
            if is_last {
                done.next = None;
                break;
            }
        }
        Ok(done)
    }

    /// Deletes all messages that nobody holds, and returns how many. Messages pushed meanwhile may or may not
    /// be deleted; the purge stops after a hundred million messages in any case.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), or the server's error; what was deleted before stays
    /// deleted.
    pub async fn purge(&self, partition: impl IntoPartitionId) -> Result<u64> {
        let partition = partition.into_partition_id()?;
        let declared = self.capabilities().inspect.purge;
        let mut purged = 0;
        for _ in 0..PURGE_PAGES {
            let partition = partition.clone();
            let call = self.inspect(declared, "purge", |inspect| {
                Box::pin(async move { inspect.purge(&partition, MAX_PAGE).await })
            });
            let page = call.await?;
            purged += page as u64;
            if page < MAX_PAGE {
                break;
            }
        }
        Ok(purged)
    }

    /// Requests the cancellation of tasks by message id, from any process. A waiting message is removed; the
    /// handler of a held one sees [`cancel_requested`](crate::Delivery::cancel_requested) at its next
    /// heartbeat. With a [ledger](crate::QueueBuilder::ledger), a task that is removed is recorded as
    /// [`Cancelled`](crate::TaskState::Cancelled): in the same step, unless the ledger is
    /// [beside](crate::Beside) the queue.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), [`InvalidInput`](crate::ErrorKind::InvalidInput) for a
    /// bad name, or a failed call as a whole; errors of single messages are in the results.
    pub async fn request_cancel(
        &self,
        partition: impl IntoPartitionId,
        ids: &[MessageId],
    ) -> Result<Vec<Result<CancelOutcome>>> {
        let partition = partition.into_partition_id()?;
        let declared = self.capabilities().inspect.cancel;
        self.can_inspect(declared, "requests for cancellation")?;
        let mut answers = Vec::with_capacity(ids.len());
        for part in ids.chunks(MAX_PAGE) {
            if self.0.options.ledger.is_some() && !partition.is_dead_letters() {
                answers.extend(self.cancel_with_ends(&partition, part).await?);
                continue;
            }
            let (partition, part) = (partition.clone(), part.to_vec());
            let call = self.inspect(declared, "requests for cancellation", |inspect| {
                Box::pin(async move { Ok(inspect.request_cancel(&partition, &part).await) })
            });
            answers.extend(call.await?);
        }
        Ok(answers)
    }

    /// Changes waiting messages by id: their priority, when they are due, their group, or whether they are
    /// disabled. Each message is changed as a whole or not at all. Returns one result per id, in order.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend cannot do this, or lacks something that
    /// the change needs; [`InvalidInput`](crate::ErrorKind::InvalidInput) for an empty change, a value out of
    /// range, a bad name or dead letters; errors of single messages are in the results.
    pub async fn amend(
        &self,
        partition: impl IntoPartitionId,
        ids: &[MessageId],
        change: Amend,
    ) -> Result<Vec<Result<AmendOutcome>>> {
        let partition = partition.into_partition_id()?;
        let refused = |error| self.0.stamp(error, Operation::Amend);
        if !self.capabilities().amend || self.storage().amend().is_none() {
            return Err(refused(guard::unsupported("amendment of what waits")));
        }
        guard::amendment(&partition, &change, self.capabilities()).map_err(refused)?;
        let change = change.normalised(self.0.caller.clock.wall());
        let mut answers = Vec::with_capacity(ids.len());
        for part in ids.chunks(MAX_PAGE) {
            let (partition, part, change) = (partition.clone(), part.to_vec(), change.clone());
            let call = async move |storage: Arc<dyn Storage>| match storage.amend() {
                Some(amend) => Ok(amend.amend(&partition, &part, &change).await),
                None => Err(guard::unsupported("amendment of what waits")),
            };
            answers.extend(self.0.bounded(Operation::Amend, call).await?);
        }
        Ok(answers)
    }

    /// Pauses a partition for every client: it delivers nothing until it is resumed. Push and settle go on.
    /// Idempotent.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), or the server's error.
    pub async fn pause(&self, partition: impl IntoPartitionId) -> Result<()> {
        self.set_paused(partition.into_partition_id()?, true).await
    }

    /// Resumes a paused partition. Idempotent.
    ///
    /// # Errors
    /// As for [`pause`](Self::pause).
    pub async fn resume(&self, partition: impl IntoPartitionId) -> Result<()> {
        self.set_paused(partition.into_partition_id()?, false).await
    }

    /// Returns whether a partition is paused.
    ///
    /// # Errors
    /// As for [`pause`](Self::pause).
    pub async fn is_paused(&self, partition: impl IntoPartitionId) -> Result<bool> {
        let partition = partition.into_partition_id()?;
        self.pausing(|pause| Box::pin(async move { pause.is_paused(&partition).await })).await
    }

    async fn set_paused(&self, partition: PartitionId, paused: bool) -> Result<()> {
        self.pausing(move |pause| Box::pin(async move { pause.set_paused(&partition, paused).await })).await
    }

    /// Reads the waiting messages first, for what the ledger keeps of them.
    async fn cancel_with_ends(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Result<Vec<Result<CancelOutcome>>> {
        let can_browse = self.capabilities().inspect.browse;
        let mut tasks = Vec::with_capacity(ids.len());
        for &id in ids {
            let browsed = if can_browse { self.browse_one(partition, id).await? } else { None };
            tasks.push(Cancelled { id, end: self.0.end_cancelled(partition, browsed.as_ref()) });
        }
        let partition = partition.clone();
        let answers = self
            .ledger(move |ledger| Box::pin(async move { Ok(ledger.cancel(&partition, &tasks).await) }))
            .await?;
        let removed = ids.iter().zip(&answers).filter(|(_, it)| matches!(it, Ok(CancelOutcome::Removed)));
        self.0.caller.note_ended(&removed.map(|(id, _)| *id).collect::<Vec<_>>());
        Ok(answers)
    }

    fn can_inspect(&self, declared: bool, what: &str) -> Result<()> {
        let can = declared && self.storage().inspect().is_some();
        can.then_some(()).ok_or_else(|| self.0.stamp(guard::unsupported(what), Operation::Inspect))
    }

    async fn inspect<T: Send + 'static>(
        &self,
        declared: bool,
        what: &'static str,
        call: impl FnOnce(&dyn InspectQueueStorage) -> BoxFuture<'_, Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.can_inspect(declared, what)?;
        let call = async move |storage: Arc<dyn Storage>| match storage.inspect() {
            Some(inspect) => call(inspect).await,
            None => Err(guard::unsupported(what)),
        };
        self.0.bounded(Operation::Inspect, call).await
    }

    async fn pausing<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn PauseQueueStorage) -> BoxFuture<'_, Result<T>> + Send + 'static,
    ) -> Result<T> {
        let unsupported = self.0.stamp(guard::unsupported("pause"), Operation::Pause);
        let declared = self.capabilities().pause;
        let call = async move |storage: Arc<dyn Storage>| match storage.pause().filter(|_| declared) {
            Some(pause) => call(pause).await,
            None => Err(unsupported),
        };
        self.0.bounded(Operation::Pause, call).await
    }
}
