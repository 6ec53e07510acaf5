//! Tasks that have not ended, where the queue itself cannot show them.

use std::time::SystemTime;

use async_trait::async_trait;

use super::ended::EndedCursor;
use super::task::Task;
use crate::error::Result;
use crate::inspect::Page;
use crate::message::MessageId;
use crate::partition::PartitionId;

/// What the name of a partition of facts ends with.
pub(crate) const FACTS_MARK: &str = ".-live";

/// Whether what a ledger keeps in this partition are no ends, but facts of tasks that have not ended, of which a [ledger beside](crate::Beside) a queue was told.
/// They are [recorded](super::LedgerQueueStorage::record_ended) as ends are, and not counted.
#[must_use]
pub fn is_of_facts(partition: &PartitionId) -> bool {
    partition.name().ends_with(FACTS_MARK)
}

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

    /// Looks at a page of those tasks, the one first of which it was told last, and forgets what is meant; or only counts it.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE), a live partition.
    ///
    /// # Errors
    /// If the ledger cannot be asked. Some may be forgotten.
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
    /// The tasks: perhaps none, though more follow.
    pub tasks: Vec<Task>,
    /// Where to go on; nothing after the last page.
    pub next: Option<EndedCursor>,
}

/// Which tasks a ledger is to forget of which it was told that they wait or are dead: for [`Queue::forget_waiting`](crate::Queue::forget_waiting).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forget {
    /// Those of which it was told last before this moment, by its server's clock. One that waits for its time counts as told when it is due: until then
    /// there is nothing to be told of it.
    pub before: SystemTime,
    /// Also dead letters. No event follows of one that is there until somebody puts it back, so that nobody would know of it.
    pub dead: bool,
    /// How many at most.
    pub limit: u64,
    /// They are counted, and nothing is forgotten.
    pub dry_run: bool,
}

impl Forget {
    /// All that wait, of which it was told last before this moment.
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

/// What came of a page of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forgotten {
    /// How many were forgotten, or would be.
    pub tasks: u64,
    /// Where to go on; nothing after the last page.
    pub next: Option<EndedCursor>,
}
