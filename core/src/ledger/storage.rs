//! The optional trait for keeping the ends of tasks.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::cancel::Cancelled;
use super::end::TaskEnd;
use super::ended::{EndedCursor, EndedQuery, EndedTask};
use super::live::LiveTasks;
use super::series::{SeriesCell, SeriesKey};
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

    /// Counts of the ends of these minutes, in whole minutes since 1970, in the order of their keys: a page of them. Where
    /// [`series`](crate::adapter::Capabilities::series) is declared, each end is counted in the step that stores it, once, by the minute of the moment that it
    /// is stamped with: also one that is [kept for no time](TaskEnd::is_kept), and that of a task whose message becomes a dead letter, neither of which is
    /// stored. One that is [recorded](Self::record_ended) counts if there was none of the task in its generation; in a [partition of
    /// facts](crate::adapter::is_of_facts) it is none, and does not. Counts are kept for
    /// [`SERIES_KEPT`](crate::SERIES_KEPT); [`purge_ended`](Self::purge_ended) frees those before, whatever its limit for ends,
    /// so many in a call that they cannot pile up, and leaves them out of its result.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE), a live partition.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where it is not declared; else if the server cannot be asked.
    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>>;

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

    /// The tasks that have not ended, if it knows of them what the queue cannot tell: nothing where ledger and queue are one.
    fn live_tasks(&self) -> Option<&dyn LiveTasks> {
        None
    }
}

const _: fn(&dyn LedgerQueueStorage) = |_| {};
