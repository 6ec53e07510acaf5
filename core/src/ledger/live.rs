//! Tasks that have not ended, where the queue itself cannot show them.

use std::time::SystemTime;

use async_trait::async_trait;

use super::ended::EndedCursor;
use super::task::Task;
use crate::error::Result;
use crate::inspect::Page;
use crate::message::MessageId;
use crate::partition::PartitionId;

/// What a ledger knows of tasks that wait or are dead, because it was told: a side of a [ledger beside](crate::Beside) a queue that
/// [cannot be browsed](crate::adapter::InspectCapability::browse).
#[async_trait]
pub trait LiveTasks: Send + Sync {
    /// A page of those tasks, the one first of which it was told last. Of which it is told meanwhile may come twice, or not at all.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE), a live partition.
    ///
    /// # Errors
    /// If the ledger cannot be asked.
    async fn live_page(&self, partition: &PartitionId, page: Page<EndedCursor>) -> Result<LivePage>;

    /// Those tasks by id. One result per id, in order: `None` for one that has ended, or of which nothing is known.
    async fn find_live(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<Task>>>;

    /// Forgets tasks of which it was told last before this moment, by its server's clock, at most `limit`, and returns how many; fewer than `limit` means that
    /// none is left.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE), a live partition.
    ///
    /// # Errors
    /// If the ledger cannot be asked. Some may be forgotten.
    async fn forget_live(&self, partition: &PartitionId, before: SystemTime, limit: usize) -> Result<usize>;
}

const _: fn(&dyn LiveTasks) = |_| {};

/// A page of tasks that wait or are dead.
#[derive(Clone, Debug, Default)]
pub struct LivePage {
    /// The tasks: perhaps none, though more follow.
    pub tasks: Vec<Task>,
    /// Where to go on; nothing after the last page.
    pub next: Option<EndedCursor>,
}
