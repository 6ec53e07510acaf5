//! A queue whose ledger tells counts of ends that a test has written down, takes its time, or fails.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::adapter::{
    Cancelled, EndedCursor, EndedQuery, EndedTask, Forward, LedgerQueueStorage, SeriesCell, SeriesKey,
    Storage, TaskEnd, async_trait, minute_of,
};
use anyqueue::{
    CancelOutcome, EndState, Error, ErrorKind, Keep, ManualClock, MessageId, Page, PartitionId, Queue, Result,
};
use anyqueue_memory::MemoryQueue;

/// What the ledger tells, and what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Told {
    cells: Vec<(&'static str, SeriesCell)>,
    /// Each question: the queue and the minutes.
    pub(crate) asked: Vec<(String, Range<u64>)>,
    /// Why it fails.
    pub(crate) problem: Option<&'static str>,
    /// By how much the clock goes on with each question.
    pub(crate) takes: Duration,
    /// The queues of which it answers nothing at all.
    pub(crate) hangs: Vec<&'static str>,
    /// What is longer is too much for it.
    pub(crate) most_minutes: Option<u64>,
    /// How many questions are under way, and were at most.
    under_way: usize,
    pub(crate) most_under_way: usize,
}

/// A question that is under way.
struct UnderWay<'a>(&'a Counting);

impl<'a> UnderWay<'a> {
    fn begin(counting: &'a Counting) -> Self {
        counting.told(|told| {
            told.under_way += 1;
            told.most_under_way = told.most_under_way.max(told.under_way);
        });
        Self(counting)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.told(|told| told.under_way -= 1);
    }
}

#[derive(Debug)]
pub(crate) struct Counting {
    memory: MemoryQueue,
    pub(crate) clock: ManualClock,
    told: Mutex<Told>,
}

impl Counting {
    /// At ten minutes past one in the afternoon, UTC.
    pub(crate) fn queue() -> (Queue, Arc<Self>) {
        let (memory, clock) = (MemoryQueue::new(), ManualClock::new());
        clock.advance(Duration::from_mins(13 * 60 + 10));
        let this = Arc::new(Self { memory, clock, told: Mutex::default() });
        let storage: Arc<dyn Storage> = this.clone();
        let builder = Queue::builder(storage).ledger(Keep::default()).clock(this.clock.clock());
        (builder.build().unwrap(), this)
    }

    pub(crate) fn told<T>(&self, change: impl FnOnce(&mut Told) -> T) -> T {
        change(&mut self.told.lock().unwrap())
    }

    /// This minute.
    pub(crate) fn now(&self) -> u64 {
        minute_of(self.clock.clock().wall())
    }

    /// So many ended so long ago: the buckets are of how long they ran and waited.
    pub(crate) fn ended(
        &self,
        partition: &'static str,
        minutes_ago: u64,
        state: EndState,
        tasks: u64,
        buckets: (u8, u8),
    ) {
        let (ran_bucket, waited_bucket) = buckets;
        let key =
            SeriesKey { minute: self.now() - minutes_ago, kind: None, state, ran_bucket, waited_bucket };
        let cell = SeriesCell::new(key, tasks, Duration::ZERO, Duration::ZERO);
        self.told(|told| told.cells.push((partition, cell)));
    }
}

impl Forward for Counting {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Some(self)
    }
}

#[async_trait]
impl LedgerQueueStorage for Counting {
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        self.memory.record_ended(partition, ends).await
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        LedgerQueueStorage::ended(&self.memory, partition, query, page).await
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.memory.count_ended(partition, query, cap).await
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        self.memory.find_ended(partition, ids).await
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        self.memory.delete_ended(partition, ids).await
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.memory.purge_ended(limit).await
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        _: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        let _under_way = UnderWay::begin(self);
        let (found, problem, hangs) = self.told(|told| {
            let length = minutes.end.min(self.now() + 1).saturating_sub(minutes.start);
            let is_too_long = told.most_minutes.is_some_and(|most| length > most);
            let too_much = is_too_long.then(|| Error::new(ErrorKind::TooLarge, "it is too much"));
            let problem = told.problem.map(|why| Error::new(ErrorKind::AccessDenied, why));
            let cells = told
                .cells
                .iter()
                .filter(|(of, cell)| *of == partition.name() && minutes.contains(&cell.key.minute));
            let mut found: Vec<_> = cells.map(|(_, cell)| cell.clone()).collect();
            found.sort_by(|one, other| one.key.cmp(&other.key));
            told.asked.push((partition.name().to_owned(), minutes));
            self.clock.advance(told.takes);
            (found, problem.or(too_much), told.hangs.contains(&partition.name()))
        });
        if hangs {
            std::future::pending::<()>().await;
        }
        problem.map_or(Ok(found), Err)
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        self.memory.cancel(partition, tasks).await
    }
}
