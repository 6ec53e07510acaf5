//! A model of a server behind a network, on top of the memory backend; the fault cases are tested with it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyqueue::adapter::{
    Action, AmendQueueStorage, Cancelled, Capabilities, ControlStorage, Durability, DurabilityLevel,
    EndedCursor, EndedQuery, EndedTask, Extension, InspectCapability, InspectQueueStorage,
    LedgerQueueStorage, PauseQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage,
    RawDelivery, Reach, SeriesCell, SeriesKey, Settlement, Storage, TaskEnd, async_trait,
};
use anyqueue::control::{Applied, Change, Entry, Expect, Key, Stamped};
use anyqueue::{
    CancelOutcome, Error, ErrorKind, ExtendOutcome, Health, MessageData, MessageId, Page, PartitionId,
    PushOutcome, Result, RetryClass, SettleOutcome,
};
use anyqueue_conformance::Fault;
use anyqueue_conformance::{Disruption, FaultTarget};
use anyqueue_memory::MemoryQueue;
use tokio::sync::watch;

use crate::quirk::Kept;

/// How long the model's clients wait for an answer, beyond what a pull may wait.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// The network and the server's process, as clients see them.
#[derive(Clone, Debug, Default)]
struct Line {
    down: bool,
    frozen: bool,
    flow: Flow,
    delay: Duration,
    /// How often connections were cut. A connection is identified by the number of cuts at its beginning.
    cuts: u64,
}

/// What the network lets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Flow {
    #[default]
    Both,
    Requests,
    Nothing,
}

/// A server in the model.
#[derive(Debug)]
pub(crate) struct Server {
    memory: std::sync::Mutex<MemoryQueue>,
    line: watch::Sender<Line>,
    fault: Option<Fault>,
    /// Whether the server declares that no settlement outlives it.
    forgetful: bool,
    pushed: Kept<HashMap<MessageId, (PartitionId, MessageData)>>,
    removed: Kept<Vec<MessageId>>,
    /// The tasks of which the server may keep an end.
    ended: Kept<HashSet<(PartitionId, MessageId)>>,
}

impl Server {
    pub(crate) fn new(fault: Option<Fault>, forgetful: bool) -> Arc<Self> {
        let (memory, line) = (MemoryQueue::new().into(), watch::Sender::default());
        let (pushed, removed, ended) = (Kept::default(), Kept::default(), Kept::default());
        Arc::new(Self { memory, line, fault, forgetful, pushed, removed, ended })
    }

    /// Returns whether messages that were removed are back after the server has died.
    fn forgets(&self) -> bool {
        self.forgetful || self.fault == Some(Fault::RestartForgetsRemovals)
    }

    async fn forget(&self) {
        let removed = std::mem::take(&mut *self.removed.lock());
        for id in removed {
            let known = self.pushed.lock().get(&id).cloned();
            if let Some((partition, message)) = known {
                let memory = self.memory().client();
                memory.delete_ended(&partition, &[id]).await; // it comes with the removal, and goes with it
                memory.push(&partition, &[message]).await;
            }
        }
    }

    async fn forget_ends(&self) {
        let ended = std::mem::take(&mut *self.ended.lock());
        for (partition, id) in ended {
            let memory = self.memory().client();
            memory.delete_ended(&partition, &[id]).await;
        }
    }

    async fn forget_entries(&self) -> Result<()> {
        let memory = self.memory().client();
        let kept = memory.list("", Page::of(usize::MAX)).await?.value;
        let forgotten: Vec<_> =
            kept.into_iter().map(|entry| Change::delete(entry.key, Expect::Any)).collect();
        memory.apply(&forgotten).await.map(drop)
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, MemoryQueue> {
        self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A case's handle on the server.
pub(crate) struct Handle(pub(crate) Arc<Server>);

#[async_trait]
impl FaultTarget for Handle {
    /// The server contains one storage, since there is one case.
    async fn open(&self, _namespace: &str) -> Result<Arc<dyn Storage>> {
        let server = self.0.clone();
        let memory = server.memory().client();
        let mut capabilities = memory.capabilities().clone();
        capabilities.reach = Reach::Network;
        let (lasts, settle) =
            (DurabilityLevel::ProcessCrash, server.forgetful.then_some(DurabilityLevel::None));
        capabilities.durability = Durability { push: lasts, claim: lasts, settle: settle.unwrap_or(lasts) };
        capabilities.pause = false;
        capabilities.inspect = InspectCapability {
            ready: false,
            delayed: false,
            leased: false,
            dead: false,
            list: false,
            browse: false,
            delete: false,
            purge: false,
            cancel: false,
            ..capabilities.inspect
        };
        Ok(Arc::new(Remote { server, closed: memory, capabilities, broken: AtomicBool::new(false) }))
    }

    async fn disrupt(&self, disruption: Disruption) -> Result<()> {
        if disruption == Disruption::Kill && self.0.fault == Some(Fault::RestartForgets) {
            *self.0.memory() = MemoryQueue::new();
        }
        if disruption == Disruption::Kill && self.0.forgets() {
            self.0.forget().await;
        }
        if disruption == Disruption::Kill && self.0.fault == Some(Fault::RestartForgetsEnds) {
            self.0.forget_ends().await;
        }
        if disruption == Disruption::Kill && self.0.fault == Some(Fault::RestartForgetsEntries) {
            self.0.forget_entries().await?;
        }
        let mut known = true;
        self.0.line.send_modify(|line| match disruption {
            Disruption::Kill => (line.down, line.cuts) = (true, line.cuts + 1),
            Disruption::Start => line.down = false,
            Disruption::Freeze => line.frozen = true,
            Disruption::Thaw => line.frozen = false,
            Disruption::Cut => line.cuts += 1,
            Disruption::Stall => line.flow = Flow::Nothing,
            Disruption::DropReplies => line.flow = Flow::Requests,
            Disruption::Delay(delay) => line.delay = delay,
            Disruption::Heal => {
                *line = Line { down: line.down, frozen: line.frozen, cuts: line.cuts, ..Line::default() }
            }
            _ => known = false,
        });
        if known { Ok(()) } else { Err(Error::unsupported("the model does not know this disruption")) }
    }
}

/// A client in the model.
#[derive(Debug)]
struct Remote {
    server: Arc<Server>,
    /// Knows whether this client is closed, without asking a server.
    closed: MemoryQueue,
    capabilities: Capabilities,
    /// Whether a connection was lost; under one fault, no new one is made.
    broken: AtomicBool,
}

fn lost(what: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, what).with_retry(RetryClass::Safe)
}

impl Remote {
    fn is(&self, fault: Fault) -> bool {
        self.server.fault == Some(fault)
    }

    /// Sends one request and awaits its answer, over a connection made now.
    async fn call<T>(&self, patience: Duration, request: impl Future<Output = T>) -> Result<T> {
        self.closed.check().await?;
        let mut line = self.server.line.subscribe();
        let (down, cuts) = {
            let line = line.borrow();
            (line.down, line.cuts)
        };
        if self.is(Fault::NeverReconnects) && self.broken.load(Ordering::SeqCst) {
            return Err(lost("the connection was lost before"));
        }
        if down {
            return Err(lost("connection refused"));
        }
        let travel = async {
            self.pass(false).await;
            let answer = request.await;
            self.pass(true).await;
            answer
        };
        let answer = tokio::select! {
            biased;
            _ = line.wait_for(|line| line.cuts != cuts) => Err(lost("the connection ended")),
            answer = travel => Ok(answer),
            () = tokio::time::sleep(patience + TIMEOUT) => {
                Err(Error::new(ErrorKind::TimedOut, "no answer").with_retry(RetryClass::Safe))
            }
        };
        if answer.is_err() {
            self.broken.store(true, Ordering::SeqCst);
        }
        answer
    }

    /// Travels to the server, or back.
    async fn pass(&self, back: bool) {
        let mut line = self.server.line.subscribe();
        let stopped = |line: &Line| line.frozen || line.flow == Flow::Nothing;
        let lose = back && line.borrow().flow == Flow::Requests;
        let delay = line.borrow().delay;
        tokio::time::sleep(delay).await;
        if lose {
            std::future::pending::<()>().await; // no healing brings this answer back
        }
        let _ = line.wait_for(|line| !stopped(line)).await;
    }

    fn memory(&self) -> MemoryQueue {
        self.server.memory().client()
    }

    /// Sends the ends in a second call, once the first has returned.
    async fn settle_in_two_calls(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let bare: Vec<_> = settlements.iter().map(|it| it.clone().with_end(None)).collect();
        let answers = self.items(bare.len(), async { self.memory().settle(&bare).await }).await;
        for (Settlement { lease, end, .. }, answer) in settlements.iter().zip(&answers) {
            if let (Some(end), Ok(SettleOutcome::Settled)) = (end, answer) {
                self.record_ended(&lease.partition, &[(lease.id, Arc::clone(end))]).await;
            }
        }
        answers
    }

    async fn items<A>(&self, count: usize, request: impl Future<Output = Vec<Result<A>>>) -> Vec<Result<A>> {
        match self.call(Duration::ZERO, request).await {
            Ok(answers) => answers,
            Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
        }
    }
}

#[async_trait]
impl QueueStorage for Remote {
    fn name(&self) -> &'static str {
        "model"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn init(&self) -> Result<()> {
        self.call(Duration::ZERO, async { self.memory().init().await }).await?
    }

    async fn check(&self) -> Result<Health> {
        if self.is(Fault::HealthIgnoresOutage) {
            return self.closed.check().await;
        }
        self.call(Duration::ZERO, async { self.memory().check().await }).await?
    }

    async fn close(&self) -> Result<()> {
        self.closed.close().await
    }
}

#[async_trait]
impl PushQueueStorage for Remote {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        self.closed.encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        if self.server.forgets() {
            let pushed = messages.iter().map(|it| (it.id(), (partition.clone(), it.clone())));
            self.server.pushed.lock().extend(pushed);
        }
        let answers =
            self.items(messages.len(), async { self.memory().push(partition, messages).await }).await;
        if !self.is(Fault::StoredWithoutAnswer) {
            return answers;
        }
        let stored = |(answer, message): (Result<PushOutcome>, &MessageData)| {
            answer.or_else(|_| Ok(PushOutcome::Stored(message.id())))
        };
        answers.into_iter().zip(messages).map(stored).collect()
    }
}

#[async_trait]
impl PullQueueStorage for Remote {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let wait = request.wait;
        self.call(wait, async { self.memory().pull(partition, request).await }).await?
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let ends = settlements.iter().filter(|it| it.end.is_some());
        self.server.ended.lock().extend(ends.map(|it| (it.lease.partition.clone(), it.lease.id)));
        let answers = if self.is(Fault::EndLate) {
            self.settle_in_two_calls(settlements).await
        } else {
            self.items(settlements.len(), async { self.memory().settle(settlements).await }).await
        };
        if self.server.forgets() {
            let done = settlements.iter().zip(&answers).filter(|(it, answer)| {
                it.action == Action::Remove && matches!(answer, Ok(SettleOutcome::Settled))
            });
            self.server.removed.lock().extend(done.map(|(it, _)| it.lease.id));
        }
        if !self.is(Fault::SettledWithoutAnswer) {
            return answers;
        }
        answers.into_iter().map(|answer| answer.or(Ok(SettleOutcome::Settled))).collect()
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let answers = self.items(extensions.len(), async { self.memory().extend(extensions).await }).await;
        if !self.is(Fault::ExtendedWithoutAnswer) {
            return answers;
        }
        answers.into_iter().map(|answer| answer.or(Ok(ExtendOutcome::Extended))).collect()
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        (self.settle(settlements).await, self.pull(partition, request).await)
    }
}

impl Storage for Remote {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        None
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        None
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        None
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Some(self)
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl LedgerQueueStorage for Remote {
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        self.server.ended.lock().extend(ends.iter().map(|(id, _)| (partition.clone(), *id)));
        self.items(ends.len(), async { self.memory().record_ended(partition, ends).await }).await
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        let Page { after, limit } = page;
        let page = Page::of(limit).after(after);
        self.call(Duration::ZERO, async { self.memory().ended(partition, query, page).await }).await?
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.call(Duration::ZERO, async { self.memory().count_ended(partition, query, cap).await }).await?
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        self.items(ids.len(), async { self.memory().find_ended(partition, ids).await }).await
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        self.items(ids.len(), async { self.memory().delete_ended(partition, ids).await }).await
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.call(Duration::ZERO, async { self.memory().purge_ended(limit).await }).await?
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        self.call(Duration::ZERO, async { self.memory().series(partition, minutes, page).await }).await?
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        self.items(tasks.len(), async { self.memory().cancel(partition, tasks).await }).await
    }
}

#[async_trait]
impl ControlStorage for Remote {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.call(Duration::ZERO, async { self.memory().get(keys).await }).await?
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.call(Duration::ZERO, async { self.memory().list(prefix, page).await }).await?
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        let answer = self.call(Duration::ZERO, async { self.memory().apply(changes).await }).await;
        if answer.is_err() && self.is(Fault::EntryDoneWithoutAnswer) {
            return Ok(Stamped::new(SystemTime::now(), vec![Applied::Done; changes.len()]));
        }
        answer?
    }
}
