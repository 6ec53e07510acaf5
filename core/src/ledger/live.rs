//! Tasks that have not ended, for queues that cannot show them.

use std::time::SystemTime;

use async_trait::async_trait;

use super::ended::EndedCursor;
use super::task::Task;
use crate::error::Result;
use crate::inspect::Page;
use crate::message::MessageId;
use crate::partition::PartitionId;

/// The suffix of the name of a partition of facts.
pub(crate) const FACTS_MARK: &str = ".-live";

/// Returns whether what a ledger keeps in this partition are not ends but facts: reports of a [ledger beside
/// a queue](crate::Beside) about tasks that have not ended. They are
/// [recorded](super::LedgerQueueStorage::record_ended) like ends, and not counted.
#[must_use]
pub fn is_of_facts(partition: &PartitionId) -> bool {
    partition.name().ends_with(FACTS_MARK)
}

/// What a ledger knows of tasks that wait or are dead from what was reported to it: a part of a [ledger
/// beside a queue](crate::Beside) that [cannot be browsed](crate::adapter::InspectCapability::browse).
#[async_trait]
pub trait LiveTasks: Send + Sync {
    /// Returns a page of those tasks, the most recently reported first. A task that is reported meanwhile may
    /// appear twice, or not at all.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE), a live partition.
    ///
    /// # Errors
    /// The ledger's error.
    async fn live_page(&self, partition: &PartitionId, page: Page<EndedCursor>) -> Result<LivePage>;

    /// Returns those tasks by id. One result per id, in order: `None` for a task that has ended, or of which
    /// nothing is known.
    async fn find_live(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<Task>>>;

    /// Looks at a page of those tasks, the most recently reported first, and forgets the ones that `forget`
    /// selects; a dry run only counts them.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE), a live partition.
    ///
    /// # Errors
    /// The ledger's error. Some tasks may already have been forgotten.
    async fn forget_live(
        &self,
        partition: &PartitionId,
        forget: &Forget,
        page: Page<EndedCursor>,
    ) -> Result<Forgotten>;
}

const _: fn(&dyn LiveTasks) = |_| {};

/// A page of tasks that wait or are dead.
#[derive(Clone, Debug, Default)]
pub struct LivePage {
    /// The tasks. There may be none even if more pages follow.
    pub tasks: Vec<Task>,
    /// Where to continue; `None` after the last page.
    pub next: Option<EndedCursor>,
}

/// Which of the waiting or dead tasks it knows a ledger is to forget: for
/// [`Queue::forget_waiting`](crate::Queue::forget_waiting).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forget {
    /// Forgets tasks that were last reported before this moment, by the ledger server's clock. A task that
    /// waits for its time counts as reported when it is due: until then there is nothing to report about it.
    pub before: SystemTime,
    /// Also forgets dead letters. No event follows for a dead letter until somebody puts it back, so one that
    /// still exists would no longer be known.
    pub dead: bool,
    /// The maximum number of tasks to forget.
    pub limit: u64,
    /// Only counts the tasks and forgets nothing.
    pub dry_run: bool,
}

impl Forget {
    /// Selects all waiting tasks that were last reported before this moment.
    #[must_use]
    pub const fn before(moment: SystemTime) -> Self {
        Self { before: moment, dead: false, limit: u64::MAX, dry_run: false }
    }

    /// Sets [`dead`](Self::dead).
    #[must_use]
    pub const fn with_dead(mut self, dead: bool) -> Self {
        self.dead = dead;
        self
    }

    /// Sets [`limit`](Self::limit).
    #[must_use]
    pub const fn with_limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }

    /// Sets [`dry_run`](Self::dry_run).
    #[must_use]
    pub const fn with_dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// The result for one page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forgotten {
    /// How many tasks were forgotten, or would be.
    pub tasks: u64,
    /// Where to continue; `None` after the last page.
    pub next: Option<EndedCursor>,
}
