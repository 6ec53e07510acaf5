//! A ledger beside a queue that keeps none itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;

use crate::capabilities::{Capabilities, DeliveryCount, MoveGuarantee};
use crate::end_watches::EndWatch;
use crate::error::{Error, ErrorKind, Result, RetryClass};
use crate::forward::Forward;
use crate::inspect::{CancelOutcome, MAX_PAGE, Page};
use crate::ledger::{Cancelled, EndedCursor, EndedQuery, EndedTask, LedgerQueueStorage, TaskEnd, generation};
use crate::lifecycle::Health;
use crate::message::MessageId;
use crate::partition::PartitionId;
use crate::queue::IntoStorage;
use crate::storage::{Action, PullRequest, RawDelivery, SettleOutcome, Settlement, Storage};
use crate::telemetry;

/// A queue and, beside it, another storage that keeps the ends of its tasks: for queues that keep none themselves.
///
/// The end is stored *before* the settlement is sent, so that no message is gone without its end. What a crash leaves in between comes again, is
/// known by its end, and is settled without being run again, unless it brought [successors](crate::Successors): then it runs again, since those may
/// be missing. Two things are different from a ledger inside:
///
/// - An owner that has lost its lease may leave an end. The end of whoever has the message now outranks it, once it comes.
/// - A message id must not be used again: where the queue does not count deliveries, a second task with the id of one that has ended may be taken for it.
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
    /// Whether the ledger could not be reached last time.
    is_down: AtomicBool,
}

/// What becomes of tasks that end while the ledger beside the queue cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LedgerDown {
    /// They are not settled: their settlements fail, and nothing more is pulled, until the ledger can be reached again. Every end is kept.
    #[default]
    Hold,
    /// They are settled without an end, which is counted as `anyqueue_ledger_dropped_total`: work goes on.
    Drop,
}

impl Beside {
    /// This queue, with this storage's ledger. Of the second nothing but its ledger is used; several queues can share what it stores, with
    /// partitions of different names, each by a handle of its own: closing the queue closes both.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the second storage keeps no ledger.
    pub fn new(queue: impl IntoStorage, ledger: impl IntoStorage) -> Result<Self> {
        let (queue, ledger) = (queue.into_storage(), ledger.into_storage());
        if ledger.capabilities().ledger.is_none() || ledger.ledger().is_none() {
            let text = "this storage keeps no ledger, so it cannot keep one for another: take one that declares `ledger`";
            return Err(Error::unsupported(text).with_backend(ledger.name()));
        }
        let mut capabilities = queue.capabilities().clone();
        capabilities.ledger = Some(MoveGuarantee::AtLeastOnce);
        // Settlements wait for the ledger before they are sent, so that those under way together could not keep their order.
        capabilities.exchange = false;
        let is_down = AtomicBool::new(false);
        Ok(Self { queue, ledger, capabilities, when_down: LedgerDown::Hold, is_down })
    }

    /// Sets what becomes of tasks that end while the ledger cannot be reached. Default: [`Hold`](LedgerDown::Hold).
    #[must_use]
    pub fn when_down(mut self, when_down: LedgerDown) -> Self {
        self.when_down = when_down;
        self
    }

    fn kept(&self) -> Result<&dyn LedgerQueueStorage> {
        self.ledger.ledger().ok_or_else(|| Error::unsupported("this storage keeps no ledger"))
    }

    /// Keeps ends. Those that could not be kept are left, with the reason.
    async fn keep(&self, settlements: &[Settlement]) -> HashMap<(PartitionId, MessageId), Error> {
        let mut by_partition: BTreeMap<&PartitionId, BTreeMap<MessageId, Arc<TaskEnd>>> = BTreeMap::new();
        for Settlement { lease, end, then, .. } in settlements {
            if let Some(end) = end {
                let end = with_successors(end, then.len());
                by_partition.entry(&lease.partition).or_default().insert(lease.id, end);
            }
        }
        let mut failed = HashMap::new();
        for (partition, ends) in by_partition {
            let ends: Vec<_> = ends.into_iter().collect();
            for part in ends.chunks(MAX_PAGE) {
                for ((id, _), answer) in part.iter().zip(self.record_ended(partition, part).await) {
                    if let Err(error) = answer {
                        failed.insert((partition.clone(), *id), error);
                    }
                }
            }
        }
        self.is_down.store(!failed.is_empty(), Ordering::Relaxed);
        if !failed.is_empty() && self.when_down == LedgerDown::Drop {
            let dropped = failed.len() as u64;
            telemetry::count("anyqueue_ledger_dropped_total", self.queue.name(), dropped);
            let error = failed.drain().next().map(|(_, error)| error);
            tracing::warn!(
                dropped,
                error = error.map(tracing::field::display),
                "the ends of tasks were not kept"
            );
            failed.clear();
        }
        failed
    }

    /// While the ledger is down nothing is pulled that could not be settled.
    async fn ensure_ledger(&self) -> Result<()> {
        if self.when_down == LedgerDown::Drop || !self.is_down.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.ledger.check().await.map_err(|error| not_kept(&error))?;
        self.is_down.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Settles what has ended before, though its settlement was never sent or never arrived, and returns the others.
    async fn without_ended(&self, partition: &PartitionId, deliveries: Vec<RawDelivery>) -> Vec<RawDelivery> {
        // Where releases are not counted, one that was given back after it had ended looks like new.
        let counts_all = self.capabilities.delivery_count == DeliveryCount::Deliveries;
        let is_repeated = |delivery: &RawDelivery| {
            delivery.unreadable.is_none() && !(counts_all && delivery.delivery_count == Some(1))
        };
        let ids: Vec<_> = deliveries.iter().filter(|it| is_repeated(it)).map(|it| it.message.id()).collect();
        if ids.is_empty() || partition.is_dead_letters() {
            return deliveries;
        }
        let found = self.find_ended(partition, &ids).await;
        let ends: HashMap<MessageId, EndedTask> =
            found.into_iter().flatten().flatten().map(|ended| (ended.id, ended)).collect();
        let now = SystemTime::now();
        let (ended, left): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(|delivery| {
            is_repeated(delivery)
                && ends.get(&delivery.message.id()).is_some_and(|ended| is_end_of(ended, delivery, now))
        });
        if !ended.is_empty() {
            tracing::debug!(count = ended.len(), "tasks that had ended came again and are settled");
            let settlements: Vec<_> =
                ended.into_iter().map(|delivery| Settlement::new(delivery.lease, Action::Remove)).collect();
            // What fails comes again at its lease's end.
            let _ = self.queue.settle(&settlements).await;
        }
        left
    }
}

/// What is cut off from the moment of an end.
const MOMENT: Duration = Duration::from_millis(1);

/// Whether this is how the delivered task ended, and not an earlier one: before a redrive, or one that had the same id.
fn is_end_of(ended: &EndedTask, delivery: &RawDelivery, now: SystemTime) -> bool {
    let is_newer = ended.end.generation >= generation(delivery.message.headers());
    let pushed_at = now.checked_sub(delivery.age).filter(|_| !delivery.age.is_zero());
    // Its successors may not have been stored: they are once it has run again.
    let is_complete = ended.end.successors == 0;
    is_newer && is_complete && pushed_at.is_none_or(|pushed_at| ended.ended_at + MOMENT > pushed_at)
}

/// The end of a task that brings so many messages, which tells whoever meets it again that they may be missing.
fn with_successors(end: &Arc<TaskEnd>, successors: usize) -> Arc<TaskEnd> {
    let successors = u32::try_from(successors).unwrap_or(u32::MAX);
    if end.successors == successors {
        return Arc::clone(end);
    }
    Arc::new(TaskEnd { successors, ..TaskEnd::clone(end) })
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
        let closed = self.queue.close().await;
        self.ledger.close().await.and(closed)
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.ensure_ledger().await?;
        let started = Instant::now();
        loop {
            let mut part = request.clone();
            part.wait = request.wait.saturating_sub(started.elapsed());
            let deliveries = self.queue.pull(partition, part).await?;
            let was_empty = deliveries.is_empty();
            let left = self.without_ended(partition, deliveries).await;
            if was_empty || !left.is_empty() || request.stop.is_cancelled() {
                return Ok(left);
            }
        }
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if settlements.iter().all(|settlement| settlement.end.is_none()) {
            return self.queue.settle(settlements).await;
        }
        let failed = self.keep(settlements).await;
        let failure = |settlement: &Settlement| {
            let Settlement { lease, end, .. } = settlement;
            end.as_ref().and_then(|_| failed.get(&(lease.partition.clone(), lease.id)))
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
        settlements.iter().map(answer).collect()
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

    /// The task is cancelled first: an end of what turns out to be held, or unknown, would be wrong. A crash in between leaves no end.
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
