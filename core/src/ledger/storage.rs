//! The optional trait for keeping the ends of tasks.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::cancel::Cancelled;
use super::end::{EndState, TaskEnd};
use crate::end_watches::EndWatch;
use crate::error::Result;
use crate::inspect::{CancelOutcome, Page};
use crate::lifecycle::QueueStorage;
use crate::message::MessageId;
use crate::partition::PartitionId;

/// Keeping the ends of tasks: declared by [`ledger`](crate::adapter::Capabilities::ledger).
///
/// An end comes with the [settlement](crate::adapter::Settlement::end) that removes the message, and is stored in the same step: either the message is
/// gone and its end is there, or neither. Under a lost lease no end is stored.
///
/// # Time
/// The storage stamps [`ended_at`](EndedTask::ended_at) by the server's clock, to the millisecond. What has been kept for as long as it says is in no
/// answer any more, whether [`purge_ended`](Self::purge_ended) has freed its place or not.
///
/// # Ids
/// An end is kept by partition and message id. Of an id that was pushed again after its end, and ended again, the last end is what
/// [`find_ended`](Self::find_ended) returns; lists and counts may have the former ones too, until they expire.
#[async_trait]
pub trait LedgerQueueStorage: QueueStorage {
    /// Stores ends that are not those of a settlement. One result for each, in order. One whose [rank](TaskEnd::rank) is not greater than that of
    /// the end that is there already changes nothing; else it takes its place. So in whatever order and however often the ends of a task come this
    /// way, the greatest is left.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE), each task at most once, a live partition.
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>>;

    /// A page of what has ended, the newest first: by moment, then by id, both descending, without [results](TaskEnd::result). What ends
    /// meanwhile may be seen or not; what stays is seen exactly once.
    ///
    /// # Errors
    /// If the server cannot be asked. An end that cannot be read is an error of the page.
    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>>;

    /// How many ends match, counted up to `cap` (at least 1): a result below it is exact.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64>;

    /// The ends of tasks by id, with their results. One result per id, in order.
    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>>;

    /// Deletes all ends by id. One result per id, in order: whether there was any.
    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>>;

    /// Frees the place of up to `limit` ends of any partition that have been kept for as long as they say, and returns how many; fewer than
    /// `limit` means that hardly any is left. Bounded: it locks nobody out for longer than a batch of settlements would.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn purge_ended(&self, limit: usize) -> Result<usize>;

    /// As [`request_cancel`](crate::adapter::InspectQueueStorage::request_cancel), and stores with the removal of what waits its end, in one step. One
    /// result for each, in order.
    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>>;

    /// Somebody waits for the end of this task: what is returned should end soon after another handle [noted](Self::note_ended) it. It need
    /// not: core looks by itself as well. It is called again every 20 s while somebody waits, and from any thread; it must not block. An
    /// adapter whose server can tell other processes something does both by [`EndWatches`](crate::adapter::EndWatches).
    fn watch_ended(&self, _id: MessageId) -> EndWatch {
        EndWatch::silent()
    }

    /// These tasks have ended, or are dead, by a call of this handle. Called after that call, and must not block.
    fn note_ended(&self, _ids: &[MessageId]) {}
}

const _: fn(&dyn LedgerQueueStorage) = |_| {};

/// Which ends to list or count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedQuery {
    /// Those in one of these states; none named: in any.
    pub states: Vec<EndState>,
    /// Those that ended at this time or later, by the server's clock.
    pub since: Option<SystemTime>,
    /// Those that ended before this time, by the server's clock.
    pub before: Option<SystemTime>,
}

impl EndedQuery {
    /// Whether it asks for an end like this.
    #[must_use]
    pub fn matches(&self, state: EndState, ended_at: SystemTime) -> bool {
        (self.states.is_empty() || self.states.contains(&state))
            && self.since.is_none_or(|since| ended_at >= since)
            && self.before.is_none_or(|before| ended_at < before)
    }
}

/// Where a page of ends stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedCursor {
    /// When the last of it ended.
    pub ended_at: SystemTime,
    /// Its id.
    pub id: MessageId,
}

/// The end of a task as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedTask {
    /// The message.
    pub id: MessageId,
    /// When it ended, by the server's clock, to the millisecond.
    pub ended_at: SystemTime,
    /// Until when this is kept; `None`: until it is deleted.
    pub expires_at: Option<SystemTime>,
    /// Its end. How long it was to be kept is said by `expires_at`.
    pub end: Arc<TaskEnd>,
}

impl EndedTask {
    /// An end that was stored at this moment.
    #[must_use]
    pub fn new(
        id: MessageId,
        ended_at: SystemTime,
        expires_at: Option<SystemTime>,
        end: Arc<TaskEnd>,
    ) -> Self {
        Self { id, ended_at, expires_at, end }
    }

    /// Where a page that ends with this one goes on.
    #[must_use]
    pub const fn cursor(&self) -> EndedCursor {
        EndedCursor { ended_at: self.ended_at, id: self.id }
    }
}
