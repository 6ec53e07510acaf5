//! A queue with a ledger beside it, and what can go wrong.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::adapter::{
    Capabilities, Dedup, Forward, LedgerQueueStorage, PullRequest, QueueStorage, RawDelivery, Settlement,
    Storage, async_trait,
};
use anyqueue::{
    Beside, Error, ErrorKind, Health, Keep, LedgerDown, MessageData, MessageId, MessageState, PartitionId,
    PushOutcome, Queue, Result, RetryPolicy, SettleOutcome, TaskFilter, TaskState,
};
use anyqueue_memory::MemoryQueue;
use futures_util::TryStreamExt;
use tokio::sync::oneshot;

/// A memory queue without a ledger, whose settlements can be cut off before they arrive.
#[derive(Debug)]
pub(crate) struct Bare {
    inner: MemoryQueue,
    capabilities: Capabilities,
    cut: Arc<AtomicBool>,
    pulls: Arc<AtomicUsize>,
}

impl Bare {
    pub(crate) fn new(cut: &Arc<AtomicBool>) -> Self {
        Self::over(MemoryQueue::new(), cut)
    }

    fn over(inner: MemoryQueue, cut: &Arc<AtomicBool>) -> Self {
        let mut capabilities = inner.capabilities().clone();
        capabilities.ledger = None;
        Self { inner, capabilities, cut: cut.clone(), pulls: Arc::default() }
    }

    /// As RabbitMQ and SQS are: what is in it cannot be looked at.
    pub(crate) fn blind(mut self) -> Self {
        self.capabilities.inspect.browse = false;
        self
    }

    /// As a FIFO queue of SQS is: what it drops for its key it reports as stored.
    pub(crate) fn windowed(mut self) -> Self {
        self.capabilities.dedup = Dedup::Window(Duration::from_mins(5));
        self.capabilities.on_duplicate = false;
        self
    }
}

#[async_trait]
impl Forward for Bare {
    fn inner(&self) -> &dyn Storage {
        &self.inner
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let mut answers = self.inner().push(partition, messages).await;
        if matches!(self.capabilities.dedup, Dedup::Window(_)) {
            for (answer, message) in answers.iter_mut().zip(messages) {
                *answer = answer.clone().map(|_| PushOutcome::Stored(message.id()));
            }
        }
        answers
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.pulls.fetch_add(1, SeqCst);
        self.inner().pull(partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        assert!(settlements.iter().all(|it| it.end.is_none()), "an end for a queue that keeps none");
        if self.cut.load(SeqCst) {
            return vec![Err(Error::new(ErrorKind::Unavailable, "cut off")); settlements.len()];
        }
        self.inner().settle(settlements).await
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        None
    }
}

/// A ledger that can be out of reach.
#[derive(Debug)]
pub(crate) struct Remote {
    inner: MemoryQueue,
    fate: Fate,
}

/// What becomes of calls to the ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    /// It is out of reach.
    pub(crate) down: Arc<AtomicBool>,
    /// It never returns.
    pub(crate) hangs: Arc<AtomicBool>,
    /// It refuses facts of tasks, for good.
    pub(crate) deaf: Arc<AtomicBool>,
    /// How many calls that tell it facts of tasks came to nothing.
    pub(crate) unheard: Arc<AtomicUsize>,
    /// Where calls are held up.
    pub(crate) gates: Gates,
}

/// Where calls to the ledger can be held up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates {
    /// A page of ends was read.
    pub(crate) after_page: Arc<Gate>,
    /// Ends are about to be stored or deleted.
    pub(crate) before_change: Arc<Gate>,
}

/// Where whoever comes next is stopped, if somebody is waiting for that.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>>);

impl Gate {
    /// Stops whoever comes next: tells when somebody is there, and lets them go on once the other side is told or dropped.
    pub(crate) fn close(&self) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((here, arrived), (open, opened)) = (oneshot::channel(), oneshot::channel());
        *self.0.lock().unwrap() = Some((here, opened));
        (arrived, open)
    }

    async fn pass(&self) {
        let closed = self.0.lock().unwrap().take();
        if let Some((here, opened)) = closed {
            here.send(()).unwrap();
            let _ = opened.await;
        }
    }
}

impl Remote {
    pub(crate) fn new(inner: MemoryQueue, fate: &Fate) -> Self {
        Self { inner, fate: fate.clone() }
    }
}

#[async_trait]
impl Forward for Remote {
    fn inner(&self) -> &dyn Storage {
        &self.inner
    }

    async fn check(&self) -> Result<Health> {
        if self.fate.down.load(SeqCst) { Err(out_of_reach()) } else { self.inner().check().await }
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Some(self)
    }
}

fn out_of_reach() -> Error {
    Error::new(ErrorKind::Unavailable, "out of reach")
}

mod remote {
    use super::*;
    use anyqueue::Page;
    use anyqueue::adapter::{Cancelled, EndedCursor, EndedQuery, EndedTask, SeriesCell, SeriesKey, TaskEnd};

    impl Remote {
        fn reach(&self) -> Result<&MemoryQueue> {
            if self.fate.down.load(SeqCst) { Err(out_of_reach()) } else { Ok(&self.inner) }
        }

        /// What becomes of a call that tells facts of tasks.
        fn hears(&self) -> Result<()> {
            let Fate { down, hangs, deaf, unheard, .. } = &self.fate;
            let is_deaf = deaf.load(SeqCst);
            unheard.fetch_add(usize::from(is_deaf || down.load(SeqCst) || hangs.load(SeqCst)), SeqCst);
            if is_deaf { Err(Error::new(ErrorKind::AccessDenied, "not from you")) } else { Ok(()) }
        }
    }

    #[async_trait]
    impl LedgerQueueStorage for Remote {
        async fn record_ended(
            &self,
            partition: &PartitionId,
            ends: &[(MessageId, Arc<TaskEnd>)],
        ) -> Vec<Result<()>> {
            if partition.name().ends_with(".-live")
                && let Err(refused) = self.hears()
            {
                return vec![Err(refused); ends.len()];
            }
            if self.fate.hangs.load(SeqCst) {
                std::future::pending::<()>().await;
            }
            self.fate.gates.before_change.pass().await;
            match self.reach() {
                Ok(inner) => inner.record_ended(partition, ends).await,
                Err(error) => vec![Err(error); ends.len()],
            }
        }

        async fn ended(
            &self,
            partition: &PartitionId,
            query: &EndedQuery,
            page: Page<EndedCursor>,
        ) -> Result<Vec<EndedTask>> {
            let found = self.reach()?.ended(partition, query, page).await;
            self.fate.gates.after_page.pass().await;
            found
        }

        async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
            self.reach()?.count_ended(partition, query, cap).await
        }

        async fn find_ended(
            &self,
            partition: &PartitionId,
            ids: &[MessageId],
        ) -> Vec<Result<Option<EndedTask>>> {
            match self.reach() {
                Ok(inner) => inner.find_ended(partition, ids).await,
                Err(error) => vec![Err(error); ids.len()],
            }
        }

        async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
            self.fate.gates.before_change.pass().await;
            match self.reach() {
                Ok(inner) => inner.delete_ended(partition, ids).await,
                Err(error) => vec![Err(error); ids.len()],
            }
        }

        async fn purge_ended(&self, limit: usize) -> Result<usize> {
            self.reach()?.purge_ended(limit).await
        }

        async fn series(
            &self,
            partition: &PartitionId,
            minutes: std::ops::Range<u64>,
            page: Page<SeriesKey>,
        ) -> Result<Vec<SeriesCell>> {
            self.reach()?.series(partition, minutes, page).await
        }

        async fn cancel(
            &self,
            partition: &PartitionId,
            tasks: &[Cancelled],
        ) -> Vec<Result<anyqueue::CancelOutcome>> {
            self.inner.cancel(partition, tasks).await
        }
    }
}

/// A queue with a ledger beside it, and what can go wrong.
pub(crate) struct Lab {
    pub(crate) queue: Queue,
    /// Settlements do not arrive.
    pub(crate) cut: Arc<AtomicBool>,
    /// The ledger is out of reach.
    pub(crate) down: Arc<AtomicBool>,
    /// It does not return.
    pub(crate) hangs: Arc<AtomicBool>,
    pub(crate) fate: Fate,
    pub(crate) pulls: Arc<AtomicUsize>,
    pub(crate) gates: Gates,
}

pub(crate) fn lab(when_down: LedgerDown) -> Lab {
    Lab::over(Bare::new, MemoryQueue::new(), when_down)
}

/// A queue that cannot be browsed, and drops untold what comes with a key that it has had lately.
pub(crate) fn windowed_lab() -> Lab {
    Lab::over(|cut| Bare::new(cut).blind().windowed(), MemoryQueue::new(), LedgerDown::Hold)
}

/// Handles of two processes on one queue that cannot be browsed, and one ledger.
pub(crate) fn blind_labs(when_down: LedgerDown) -> [Lab; 2] {
    blind_labs_on(&MemoryQueue::new(), when_down)
}

/// The same of as many processes, on this ledger.
pub(crate) fn blind_labs_on<const N: usize>(ledger: &MemoryQueue, when_down: LedgerDown) -> [Lab; N] {
    let queue = MemoryQueue::new();
    [(); N].map(|()| Lab::over(|cut| Bare::over(queue.client(), cut).blind(), ledger.client(), when_down))
}

impl Lab {
    fn over(bare: impl Fn(&Arc<AtomicBool>) -> Bare, ledger: MemoryQueue, when_down: LedgerDown) -> Self {
        let (cut, fate) = (Arc::default(), Fate::default());
        let bare = bare(&cut);
        let pulls = bare.pulls.clone();
        let storage = Beside::new(bare, Remote::new(ledger, &fate)).unwrap().when_down(when_down);
        let queue =
            Queue::builder(storage).ledger(Keep::default()).retry(RetryPolicy::NEVER).build().unwrap();
        let gates = fate.gates.clone();
        let (down, hangs) = (Arc::clone(&fate.down), Arc::clone(&fate.hangs));
        Self { queue, cut, down, hangs, fate, pulls, gates }
    }

    pub(crate) async fn push(&self) -> MessageId {
        let message = MessageData::new("x");
        let id = message.id();
        self.queue.push("jobs", message).await.unwrap();
        id
    }

    pub(crate) async fn state(&self, id: MessageId) -> Option<TaskState> {
        self.queue.task("jobs", id).await.unwrap().map(|task| task.state)
    }

    pub(crate) async fn state_of_message(&self, id: MessageId) -> Option<MessageState> {
        let page = self.queue.browse("jobs", anyqueue::Page::of(10)).await.unwrap();
        page.into_iter().find(|browsed| browsed.message.id() == id).map(|browsed| browsed.state)
    }

    pub(crate) async fn ends(&self) -> Vec<TaskState> {
        let tasks = self.queue.tasks("jobs", TaskFilter::new().in_state(TaskState::Succeeded)).unwrap();
        tasks.map_ok(|task| task.state).try_collect().await.unwrap()
    }
}
