//! A ledger in a second storage, for a queue that keeps none itself.

mod again;
mod ends;
mod facts;
mod forget;
mod live;
mod said;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use self::facts::Facts;
use crate::capabilities::{Capabilities, MoveGuarantee};
use crate::end_watches::EndWatch;
use crate::error::{Error, ErrorKind, Result, RetryClass};
use crate::forward::Forward;
use crate::inspect::{CancelOutcome, Page};
use crate::ledger::{
    Cancelled, EndedCursor, EndedQuery, EndedTask, LedgerQueueStorage, LiveTasks, SeriesCell, SeriesKey,
    TaskEnd,
};
use crate::lifecycle::Health;
use crate::message::{MessageData, MessageId};
use crate::partition::PartitionId;
use crate::queue::IntoStorage;
use crate::storage::{PullRequest, PushOutcome, RawDelivery, SettleOutcome, Settlement, Storage};

/// A queue and, beside it, a second storage that keeps the ends of its tasks: for queues that keep none
/// themselves.
///
/// The end is stored *before* the settlement is sent, so that no message is gone without its end. A message
/// whose settlement a crash prevented is delivered again, is recognised by its stored end, and is settled
/// without being run again, unless it had [successors](crate::Successors): then it runs again, since those
/// may be missing. There are three differences from a ledger in the queue's own storage:
///
/// - An owner that has lost its lease may leave an end. It is outranked by the end of whoever has the message
///   now, once that is stored; but not if the queue gives a later delivery a lower count than an earlier one,
///   as RabbitMQ may do for another handle.
/// - Ends are [counted](crate::Queue::series) as the ledger's storage counts them, a repeated end once. An
///   end left by an owner that lost its lease counts, and the end that outranks it does not. The end of a
///   task that is kept for no time, or becomes a dead letter, is counted after its settlement, so it is
///   missing if the process crashes in between or the ledger is down. A ledger that does not return such a
///   count within a second is not asked for the next half minute.
/// - A message id must not be used again: if the queue does not count deliveries, a second task with the id
///   of one that has ended may be mistaken for that one.
///
/// # Tasks that have not ended
/// If the queue [cannot be browsed](crate::adapter::InspectCapability::browse), as with RabbitMQ and SQS, the
/// ledger also records tasks that wait or are dead, so that [`Queue::task`](crate::Queue::task), lists and
/// counts know them: when a task was pushed, when an attempt failed or was postponed (with its errors and
/// until when it waits), when it became a dead letter, when it was put back, and that it is gone. No call
/// waits for these reports; they go to the ledger in batches. While the ledger is down, reports about up to
/// 10,000 tasks wait, or are dropped if [so configured](LedgerDown::Drop); reports that a task is gone wait
/// in either case, for up to 50,000 more. A report that was dropped, or that a killed process did not send,
/// is missing until the next event of the task, which reports all that is known of it. In whatever order
/// reports arrive, the latest counts: by redrives, attempts, then deliveries.
///
/// No event follows the last report. If that one is lost (because its process was killed, or the result of
/// the settlement was lost), the task seems to wait though it is gone. It is not shown while its end is kept,
/// nor later if somebody asked for it in that time; otherwise it is shown until its record
/// [lapses](Self::live_kept) or is [forgotten](crate::Queue::forget_waiting). The same is true of tasks
/// removed by [`purge`](crate::Queue::purge).
///
/// A running task is shown as queued. A task pushed with a deduplication key that the queue may drop
/// [silently](crate::adapter::Dedup::Window) is known from its first attempt on. Partition names must not end
/// with `.-live`; tasks in a partition whose name is longer than 58 bytes are not known before they end.
///
/// ```
/// use anyqueue::{Beside, Keep, MessageData, Queue, QueueMessageStatus::Processed, TaskState};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let (rabbitmq, postgres) = (anyqueue_memory::MemoryQueue::new(), anyqueue_memory::MemoryQueue::new());
/// let storage = Beside::new(rabbitmq, postgres)?;
/// let queue = Queue::builder(storage).ledger(Keep::default()).build()?;
///
/// queue.push("mail", MessageData::new("hello")).await?;
/// for mut mail in queue.pull("mail").await? {
///     mail.settle(Processed).await?;
///     assert_eq!(queue.task("mail", mail.id()).await?.unwrap().state, TaskState::Succeeded);
/// }
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Beside {
    queue: Arc<dyn Storage>,
    ledger: Arc<dyn Storage>,
    capabilities: Capabilities,
    when_down: LedgerDown,
    /// Whether the ledger could not be reached at the last call.
    is_down: AtomicBool,
    /// Until when the ledger is not asked to count ends that it does not store.
    uncounted_until: Mutex<Option<Instant>>,
    /// Reports to the ledger about tasks that have not ended, if the queue cannot show them.
    facts: Option<Facts>,
    /// How long the ledger keeps those.
    live_kept: Duration,
}

/// How long a ledger keeps the record of a waiting task: as long as servers of other queues keep messages at
/// most.
const LIVE_KEPT: Duration = Duration::from_hours(14 * 24);

/// What happens to tasks that end while the ledger beside the queue cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LedgerDown {
    /// They are not settled: their settlements fail, and nothing more is pulled until the ledger can be
    /// reached again. Every end is kept.
    #[default]
    Hold,
    /// They are settled without storing their ends, which are counted as `anyqueue_ledger_dropped_total`;
    /// work goes on.
    Drop,
}

impl Beside {
    /// Combines this queue with the ledger of a second storage. Only the ledger of the second storage is
    /// used. Several queues can share its data, if their partitions have different names and each has its own
    /// handle on it: closing the queue closes both storages.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the second storage has no ledger.
    pub fn new(queue: impl IntoStorage, ledger: impl IntoStorage) -> Result<Self> {
        let (queue, ledger) = (queue.into_storage(), ledger.into_storage());
        if ledger.capabilities().ledger.is_none() || ledger.ledger().is_none() {
            let text = "this storage keeps no ledger, so it cannot keep one for another: choose one that declares `ledger`";
            return Err(Error::unsupported(text).with_backend(ledger.name()));
        }
        let mut capabilities = queue.capabilities().clone();
        capabilities.ledger = Some(MoveGuarantee::AtLeastOnce);
        capabilities.series = ledger.capabilities().series;
        // Settlements wait for the ledger before they are sent, so overlapping ones could not keep their
        // order.
        capabilities.exchange = false;
        let (is_down, uncounted_until) = (AtomicBool::new(false), Mutex::default());
        let is_shown = queue.capabilities().inspect.browse;
        let facts = (!is_shown).then(|| Facts::new(Arc::clone(&ledger), queue.name()));
        let (when_down, live_kept) = (LedgerDown::Hold, LIVE_KEPT);
        Ok(Self { queue, ledger, capabilities, when_down, is_down, uncounted_until, facts, live_kept })
    }

    /// Sets what happens to tasks that end while the ledger cannot be reached. Default:
    /// [`Hold`](LedgerDown::Hold).
    #[must_use]
    pub fn when_down(mut self, when_down: LedgerDown) -> Self {
        self.when_down = when_down;
        if let Some(facts) = &self.facts {
            facts.set_drops(when_down == LedgerDown::Drop);
        }
        self
    }

    /// Sets how long the ledger keeps the last report about a task that waits or is dead, in addition to the
    /// time for which the task waits. After that nothing is known of the task until it is delivered again.
    /// Default: 14 days, the longest that SQS keeps a message.
    #[must_use]
    pub fn live_kept(mut self, keep: Duration) -> Self {
        self.live_kept = keep;
        self
    }

    fn kept(&self) -> Result<&dyn LedgerQueueStorage> {
        self.ledger.ledger().ok_or_else(|| Error::unsupported("this storage keeps no ledger"))
    }

    /// Makes sure that nothing is pulled that could not be settled because the ledger is down.
    async fn ensure_ledger(&self) -> Result<()> {
        if self.when_down == LedgerDown::Drop || !self.is_down.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.ledger.check().await.map_err(|error| not_kept(&error))?;
        self.is_down.store(false, Ordering::Relaxed);
        Ok(())
    }
}

fn not_kept(error: &Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the ledger cannot keep the ends of tasks: {}", error.message()),
    )
    .with_source(error.clone())
    .with_retry(RetryClass::Safe)
}

#[async_trait]
impl Forward for Beside {
    fn inner(&self) -> &dyn Storage {
        &*self.queue
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn init(&self) -> Result<()> {
        self.queue.init().await?;
        self.ledger.init().await
    }

    async fn check(&self) -> Result<Health> {
        let mut health = self.queue.check().await?;
        let ledger = self.ledger.check().await.map_err(|error| not_kept(&error))?;
        health.warnings.extend(ledger.warnings.into_iter().map(|warning| format!("ledger: {warning}")));
        Ok(health)
    }

    async fn close(&self) -> Result<()> {
        if let Some(facts) = &self.facts {
            facts.close().await;
        }
        let closed = self.queue.close().await;
        self.ledger.close().await.and(closed)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        if let Some(refusal) = self.reserved(partition) {
            return messages.iter().map(|_| Err(refusal.clone())).collect();
        }
        let answers = self.queue.push(partition, messages).await;
        self.note_pushed(partition, messages, &answers);
        answers
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.ensure_ledger().await?;
        let started = Instant::now();
        loop {
            let mut part = request.clone();
            part.wait = request.wait.saturating_sub(started.elapsed());
            let deliveries = self.queue.pull(partition, part).await?;
            let was_empty = deliveries.is_empty();
            let left = self.without_ended(partition, deliveries).await?;
            if was_empty || !left.is_empty() || request.stop.is_cancelled() {
                return Ok(left);
            }
        }
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if settlements.iter().all(|settlement| settlement.end.is_none()) {
            let answers = self.queue.settle(settlements).await;
            self.note_settled(settlements, &answers);
            return answers;
        }
        let failed = self.keep(settlements).await;
        let failure = |settlement: &Settlement| {
            let lease = &settlement.lease;
            settlement.stored_end().and_then(|_| failed.get(&(lease.partition.clone(), lease.id)))
        };
        let bare = |settlement: &Settlement| settlement.clone().with_end(None);
        let sent: Vec<_> = settlements.iter().filter(|it| failure(it).is_none()).map(bare).collect();
        let mut answers =
            if sent.is_empty() { Vec::new() } else { self.queue.settle(&sent).await }.into_iter();
        let unanswered =
            || Err(Error::new(ErrorKind::Internal, "the adapter did not answer each item of a batch"));
        let answer = |settlement| match failure(settlement) {
            Some(error) => Err(not_kept(error)),
            None => answers.next().unwrap_or_else(unanswered),
        };
        let answers: Vec<_> = settlements.iter().map(answer).collect();
        self.note_settled(settlements, &answers);
        self.count(settlements, &answers).await;
        answers
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Some(self)
    }
}

#[async_trait]
impl LedgerQueueStorage for Beside {
    fn watch_ended(&self, id: MessageId) -> EndWatch {
        self.kept().map_or_else(|_| EndWatch::silent(), |ledger| ledger.watch_ended(id))
    }

    fn note_ended(&self, ids: &[MessageId]) {
        if let Ok(ledger) = self.kept() {
            ledger.note_ended(ids);
        }
    }

    fn live_tasks(&self) -> Option<&dyn LiveTasks> {
        self.facts.as_ref().map(|_| self as &dyn LiveTasks)
    }

    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        match self.kept() {
            Ok(ledger) => ledger.record_ended(partition, ends).await,
            Err(error) => vec![Err(error); ends.len()],
        }
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        self.kept()?.ended(partition, query, page).await
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.kept()?.count_ended(partition, query, cap).await
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        match self.kept() {
            Ok(ledger) => ledger.find_ended(partition, ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        match self.kept() {
            Ok(ledger) => ledger.delete_ended(partition, ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.kept()?.purge_ended(limit).await
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        self.kept()?.series(partition, minutes, page).await
    }

    /// Cancels the task first: storing an end for a task that turns out to be held or unknown would be wrong.
    /// A crash in between leaves no end.
    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        let Some(inspect) = self.queue.inspect() else {
            return vec![
                Err(Error::unsupported("this backend takes no requests for cancellation"));
                tasks.len()
            ];
        };
        let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
        let outcomes = inspect.request_cancel(partition, &ids).await;
        let removed =
            tasks.iter().zip(&outcomes).filter(|(_, outcome)| matches!(outcome, Ok(CancelOutcome::Removed)));
        let ends: BTreeMap<_, _> =
            removed.filter_map(|(task, _)| Some((task.id, Arc::clone(task.end.as_ref()?)))).collect();
        let ends: Vec<_> = ends.into_iter().collect();
        let gone = tasks.iter().zip(&outcomes).filter(|(_, it)| matches!(it, Ok(CancelOutcome::Removed)));
        self.note_gone(partition, gone.map(|(task, _)| task.id));
        if ends.is_empty() {
            return outcomes;
        }
        let kept = self.record_ended(partition, &ends).await;
        let failed: HashMap<MessageId, Error> =
            ends.iter().zip(kept).filter_map(|((id, _), kept)| Some((*id, kept.err()?))).collect();
        let told = |(task, outcome): (&Cancelled, Result<CancelOutcome>)| match failed.get(&task.id) {
            Some(error) if matches!(outcome, Ok(CancelOutcome::Removed)) => Err(Error::new(
                error.kind(),
                format!("the task is cancelled, but the ledger did not keep its end: {}", error.message()),
            )),
            _ => outcome,
        };
        tasks.iter().zip(outcomes).map(told).collect()
    }
}
