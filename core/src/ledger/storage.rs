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

/// Keeping the ends of tasks, declared by [`ledger`](crate::adapter::Capabilities::ledger).
///
/// An end arrives with the [settlement](crate::adapter::Settlement::end) that removes the message, and is
/// stored in the same step: either the message is gone and its end is there, or neither. Under a lost lease
/// no end is stored.
///
/// # Time
/// The storage stamps [`ended_at`](EndedTask::ended_at) by the server's clock, to the millisecond. An end
/// whose time is over is not returned any more, whether [`purge_ended`](Self::purge_ended) has freed its
/// space or not.
///
/// # Ids
/// An end is kept by partition and message id. If an id was pushed again after its end and ended again,
/// [`find_ended`](Self::find_ended) returns the last end; lists and counts may include the earlier ones until
/// they expire.
#[async_trait]
pub trait LedgerQueueStorage: QueueStorage {
    /// Stores ends that do not belong to a settlement. Returns one result per end, in order. An end replaces
    /// the stored one only if its [rank](TaskEnd::rank) is greater; otherwise nothing changes. So in whatever
    /// order and however often the ends of a task arrive this way, the greatest one remains.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE), each task at most once, a live partition.
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>>;

    /// Returns a page of what has ended, newest first: by moment, then by id, both descending, without
    /// [results](TaskEnd::result). An end that is stored meanwhile may or may not be seen; one that stays is
    /// seen exactly once.
    ///
    /// # Errors
    /// The server's error. An end that cannot be read fails the whole page.
    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>>;

    /// Counts the ends that match, up to `cap` (at least 1); a result below `cap` is exact.
    ///
    /// # Errors
    /// The server's error.
    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64>;

    /// Returns the ends of tasks by id, with their results. One result per id, in order.
    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>>;

    /// Deletes all ends of these ids. Returns one result per id, in order: whether there was any.
    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>>;

    /// Frees the space of up to `limit` ends, of any partition, whose time is over, and returns how many;
    /// fewer than `limit` means that hardly any are left. Bounded: locks nobody out for longer than a batch
    /// of settlements would.
    ///
    /// # Errors
    /// The server's error.
    async fn purge_ended(&self, limit: usize) -> Result<usize>;

    /// Returns a page of the counts of ends in these minutes (whole minutes since 1970), in the order of
    /// their keys. Where [`series`](crate::adapter::Capabilities::series) is declared, each end is counted
    /// once, in the step that stores it, by the minute of its stamped moment. This includes two kinds of ends
    /// that are not stored: those [kept for no time](TaskEnd::is_kept), and those of tasks whose message
    /// becomes a dead letter. An end that is [recorded](Self::record_ended) counts if there was none of the
    /// task in its generation; what is recorded in a [partition of facts](crate::adapter::is_of_facts) is not
    /// an end and does not count. Counts are kept for [`SERIES_KEPT`](crate::SERIES_KEPT);
    /// [`purge_ended`](Self::purge_ended) frees older ones regardless of its limit, enough per call that they
    /// cannot pile up, and does not include them in its result.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE), a live partition.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if counts are not declared; otherwise the server's
    /// error.
    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>>;

    /// Like [`request_cancel`](crate::adapter::InspectQueueStorage::request_cancel), but also stores the end
    /// of a waiting task in the step that removes it. Returns one result per task, in order.
    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>>;

    /// Called when somebody waits for the end of this task. The returned watch should end soon after another
    /// handle has [noted](Self::note_ended) the end, but need not: core also checks by itself. Called again
    /// every 20 s while somebody waits, from any thread; must not block. An adapter whose server can notify
    /// other processes implements both methods with [`EndWatches`](crate::adapter::EndWatches).
    fn watch_ended(&self, _id: MessageId) -> EndWatch {
        EndWatch::silent()
    }

    /// Called after a call of this handle by which these tasks have ended or died. Must not block.
    fn note_ended(&self, _ids: &[MessageId]) {}

    /// Returns the tasks that have not ended, if the ledger knows of them what the queue cannot show; `None`
    /// if the ledger and the queue are the same storage.
    fn live_tasks(&self) -> Option<&dyn LiveTasks> {
        None
    }
}

const _: fn(&dyn LedgerQueueStorage) = |_| {};
