//! A storage over memory that counts calls, holds them back, and fails as told.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use anyqueue::adapter::*;
use anyqueue::*;
use anyqueue_memory::MemoryQueue;
use tokio::sync::{oneshot, watch};

/// What the next call of an operation does instead of its work.
pub(crate) enum Script {
    /// Each item fails with this.
    Fail(Error),
    /// Only the item at this position fails.
    FailItem(usize, Error),
    Panic,
    /// Extensions only: each lease is lost.
    Lost,
    /// Answers for one item fewer than it was given.
    Short,
}

/// One operation's gate, script and count.
pub(crate) struct Tap {
    pub(crate) calls: AtomicUsize,
    pub(crate) items: AtomicUsize,
    sizes: Mutex<Vec<usize>>,
    takes: Mutex<Duration>,
    script: Mutex<VecDeque<Script>>,
    open: watch::Sender<bool>,
    late: Mutex<VecDeque<oneshot::Receiver<()>>>,
}

impl Default for Tap {
    fn default() -> Self {
        Self {
            calls: AtomicUsize::default(),
            items: AtomicUsize::default(),
            sizes: Mutex::default(),
            takes: Mutex::default(),
            script: Mutex::default(),
            open: watch::Sender::new(true),
            late: Mutex::default(),
        }
    }
}

impl Tap {
    pub(crate) fn script(&self, steps: impl IntoIterator<Item = Script>) {
        self.script.lock().unwrap().extend(steps);
    }

    pub(crate) fn hold(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn let_go(&self) {
        self.open.send_replace(true);
    }

    /// The next call that has no such promise yet does its work at once, and returns when this is sent. If it is dropped instead, the
    /// answer is lost.
    pub(crate) fn answer_later(&self) -> oneshot::Sender<()> {
        let (say, told) = oneshot::channel();
        self.late.lock().unwrap().push_back(told);
        say
    }

    /// Whether the answer arrives.
    async fn answered(&self) -> bool {
        let late = self.late.lock().unwrap().pop_front();
        match late {
            Some(told) => told.await.is_ok(),
            None => true,
        }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    pub(crate) fn items(&self) -> usize {
        self.items.load(SeqCst)
    }

    /// How many items each call had.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.sizes.lock().unwrap().clone()
    }

    /// How long each call takes from now on.
    pub(crate) fn takes(&self, time: Duration) {
        *self.takes.lock().unwrap() = time;
    }

    async fn pass(&self, items: usize) -> Option<Script> {
        self.calls.fetch_add(1, SeqCst);
        self.items.fetch_add(items, SeqCst);
        self.sizes.lock().unwrap().push(items);
        let takes = *self.takes.lock().unwrap();
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        self.script.lock().unwrap().pop_front()
    }
}

fn play<A: Clone>(script: Option<Script>, items: usize, real: Vec<Result<A>>) -> Vec<Result<A>> {
    match script {
        None => real,
        Some(Script::Panic | Script::Lost) => panic!("as the script says"),
        Some(Script::Fail(error)) => vec![Err(error); items],
        Some(Script::FailItem(position, error)) => {
            let mut answers = real;
            answers[position] = Err(error);
            answers
        }
        Some(Script::Short) => real.into_iter().skip(1).collect(),
    }
}

pub(crate) struct Spy {
    pub(crate) memory: MemoryQueue,
    pub(crate) capabilities: Capabilities,
    pub(crate) push: Tap,
    pub(crate) pull: Tap,
    pub(crate) settle: Tap,
    pub(crate) extend: Tap,
    pub(crate) exchange: Tap,
    /// Why each message that is pulled cannot be read.
    pub(crate) unreadable: Mutex<Option<Error>>,
}

impl std::fmt::Debug for Spy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spy")
    }
}

impl Spy {
    pub(crate) fn new(memory: MemoryQueue) -> Self {
        let capabilities = memory.capabilities().clone();
        let (push, pull, settle, extend, exchange) = Default::default();
        Self { memory, capabilities, push, pull, settle, extend, exchange, unreadable: Mutex::default() }
    }

    fn marked(&self, deliveries: Vec<RawDelivery>) -> Vec<RawDelivery> {
        let why = self.unreadable.lock().unwrap().clone();
        deliveries.into_iter().map(|delivery| delivery.with_unreadable(why.clone())).collect()
    }

    /// Settlements that it was given, with a pull or without.
    pub(crate) fn settlements(&self) -> usize {
        self.settle.items() + self.exchange.items()
    }
}

/// A shared handle, so that a test keeps its hands on the taps.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) std::sync::Arc<Spy>);

impl std::ops::Deref for Shared {
    type Target = Spy;
    fn deref(&self) -> &Spy {
        &self.0
    }
}

#[async_trait]
impl Forward for Shared {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }
    fn name(&self) -> &'static str {
        "spy"
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        match self.push.pass(messages.len()).await {
            Some(Script::FailItem(bad, error)) => {
                let mut answers = Vec::new();
                for (position, message) in messages.iter().enumerate() {
                    let one = std::slice::from_ref(message);
                    answers.push(if position == bad {
                        Err(error.clone())
                    } else {
                        self.memory.push(partition, one).await.remove(0)
                    });
                }
                answers
            }
            None => self.memory.push(partition, messages).await,
            script => play(
                script,
                messages.len(),
                messages.iter().map(|m| Ok(PushOutcome::Stored(m.id()))).collect(),
            ),
        }
    }
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        match self.pull.pass(request.max).await {
            None => {
                let told = self.pull.answered();
                let answer = self.memory.pull(partition, request).await;
                if told.await { answer.map(|deliveries| self.marked(deliveries)) } else { Err(lost()) }
            }
            Some(Script::Fail(error)) => Err(error),
            Some(_) => panic!("as the script says"),
        }
    }
    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        match self.settle.pass(settlements.len()).await {
            None => self.memory.settle(settlements).await,
            script => play(script, settlements.len(), vec![Ok(SettleOutcome::Settled); settlements.len()]),
        }
    }
    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        match self.extend.pass(extensions.len()).await {
            None => {
                let told = self.extend.answered();
                let answer = self.memory.extend(extensions).await;
                if told.await { answer } else { vec![Err(lost()); extensions.len()] }
            }
            Some(Script::Lost) => vec![Ok(ExtendOutcome::Lost); extensions.len()],
            script => play(script, extensions.len(), vec![Ok(ExtendOutcome::Extended); extensions.len()]),
        }
    }
    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        match self.exchange.pass(settlements.len()).await {
            None => {
                let told = self.exchange.answered();
                let (settled, pulled) = self.memory.exchange(settlements, partition, request).await;
                let answer = (settled, pulled.map(|deliveries| self.marked(deliveries)));
                if told.await { answer } else { (vec![Err(lost()); settlements.len()], Err(lost())) }
            }
            Some(Script::Fail(error)) => (vec![Err(error.clone()); settlements.len()], Err(error)),
            script => (
                play(script, settlements.len(), vec![Ok(SettleOutcome::Settled); settlements.len()]),
                Ok(Vec::new()),
            ),
        }
    }
}

fn lost() -> Error {
    safe(ErrorKind::Unavailable)
}

pub(crate) fn spy() -> Shared {
    Shared(std::sync::Arc::new(Spy::new(MemoryQueue::new())))
}

/// A spy whose storage and queue share a clock that the test turns.
pub(crate) fn spy_on(clock: &ManualClock) -> Shared {
    let config = anyqueue_memory::MemoryConfig::default().with_clock(clock.clock());
    Shared(std::sync::Arc::new(Spy::new(MemoryQueue::with_config(config))))
}

/// Waits for a condition that other tasks bring about; fails after ten seconds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) fn safe(kind: ErrorKind) -> Error {
    Error::new(kind, "as the script says").with_retry(RetryClass::Safe)
}
