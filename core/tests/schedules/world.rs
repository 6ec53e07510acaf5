//! What is true: a server that passes turns around each effect and fails as the seed says, and the account of what it did.

use anyqueue::Page;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyqueue::adapter::*;
use anyqueue::*;
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use fastrand::Rng;
use futures_util::FutureExt;

use crate::executor::pass;

/// A handler learns by then that its lease has ended, on a clock that goes in small steps.
const LATE: Duration = Duration::from_millis(50);
/// The header in which a delivery says which it is.
const DELIVERY: &str = "delivery";

/// Everything that one schedule is about, and everything that must be true of it.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) memory: MemoryQueue,
    state: Mutex<State>,
}

pub(crate) struct State {
    rng: Rng,
    /// How many calls may still fail.
    pub(crate) faults: usize,
    /// The longest that a call passes turns, before its effect and after.
    pub(crate) slowness: usize,
    pub(crate) attempted: HashSet<MessageId>,
    pub(crate) acknowledged: HashSet<MessageId>,
    /// Stored by a call that was not answered: core pushes it again, and if it was settled meanwhile it is there a second time.
    unsure: HashSet<MessageId>,
    /// What the server has removed.
    removed: HashSet<MessageId>,
    deliveries: HashMap<(MessageId, Token), u64>,
    /// When the lease of each delivery ends, as the server has it.
    ends: HashMap<u64, Instant>,
    /// Calls that wait for messages, and deliveries in the hands of the test.
    pub(crate) waiting: usize,
    pub(crate) held: usize,
    pub(crate) progress: u64,
}

enum Fate {
    Done,
    /// Nothing happened.
    Refused,
    /// It happened, and the answer was lost.
    Unanswered,
}

impl World {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let clock = Arc::new(ManualClock::new());
        let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
        let state = State {
            rng: Rng::with_seed(seed ^ 0x5eed),
            faults: 0,
            slowness: 4,
            attempted: HashSet::new(),
            acknowledged: HashSet::new(),
            unsure: HashSet::new(),
            removed: HashSet::new(),
            deliveries: HashMap::new(),
            ends: HashMap::new(),
            waiting: 0,
            held: 0,
            progress: 0,
        };
        Arc::new(Self { clock, memory, state: Mutex::new(state) })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// No handler trusts its lease longer than the server keeps it, and each learns of its loss.
    pub(crate) fn check_trust(&self, handler: &Delivery) {
        let Some(until) = handler.lease_until().filter(|_| !handler.is_lost()) else { return };
        let end = self.state().ends[&handler.headers()[DELIVERY].parse().unwrap()];
        let now = self.clock.clock().now();
        assert!(now < until + LATE, "a lease ended {:?} ago, and its handler was not told", now - until);
        assert!(until <= end, "a lease is trusted for {:?} longer than it lasts", until - end);
    }

    /// A handler was told that its message is removed.
    pub(crate) fn told_removed(&self, id: MessageId) {
        assert!(self.state().removed.contains(&id), "told that it is settled, and it is not");
    }

    pub(crate) fn ready(&self) -> u64 {
        let partition = PartitionId::new("p").unwrap();
        let counts = self.memory.inspect().unwrap().counts(&partition).now_or_never();
        counts.unwrap().unwrap().ready.unwrap()
    }

    /// The account by id, when nobody holds anything any more.
    pub(crate) fn check_account(&self) {
        let mut left = HashSet::new();
        let inspect = self.memory.inspect().unwrap();
        for partition in [PartitionId::new("p").unwrap(), PartitionId::new("p").unwrap().dead_letters()] {
            let page = inspect.browse(&partition, Page::of(MAX_PAGE)).now_or_never().unwrap().unwrap();
            for browsed in page {
                assert!(left.insert(browsed.message.id()), "two copies of one message");
            }
        }
        let state = self.state();
        let lost: Vec<_> = state
            .acknowledged
            .iter()
            .filter(|id| !left.contains(id) && !state.removed.contains(id))
            .collect();
        assert!(
            lost.is_empty(),
            "{} of {} acknowledged messages are lost",
            lost.len(),
            state.acknowledged.len()
        );
        let again = left.intersection(&state.removed).filter(|id| !state.unsure.contains(id)).count();
        assert_eq!(again, 0, "messages that were settled and are there again");
        assert!(left.union(&state.removed).all(|id| state.attempted.contains(id)), "a message nobody pushed");
    }

    async fn pass_turns(&self) {
        let turns = {
            let mut state = self.state();
            let slowness = state.slowness;
            state.rng.usize(..=slowness)
        };
        for _ in 0..turns {
            pass().await;
        }
    }

    fn fate(&self) -> Fate {
        let mut state = self.state();
        if state.faults == 0 || state.rng.u8(..8) > 0 {
            return Fate::Done;
        }
        state.faults -= 1;
        if state.rng.bool() { Fate::Refused } else { Fate::Unanswered }
    }

    fn failure(&self) -> Error {
        let kind = if self.state().rng.u8(..4) == 0 { ErrorKind::TimedOut } else { ErrorKind::Unavailable };
        Error::new(kind, "as the seed says").with_retry(RetryClass::Safe)
    }

    /// A call: its effect among turns of others, and perhaps an error instead of it, or of its answer.
    async fn call<T>(&self, effect: impl Future<Output = T>) -> std::result::Result<T, Error> {
        self.pass_turns().await;
        let fate = self.fate();
        if matches!(fate, Fate::Refused) {
            return Err(self.failure());
        }
        let answer = effect.await;
        self.pass_turns().await;
        if matches!(fate, Fate::Unanswered) { Err(self.failure()) } else { Ok(answer) }
    }

    fn delivered(&self, lease: Duration, deliveries: Vec<RawDelivery>) -> Vec<RawDelivery> {
        let mut state = self.state();
        let end = self.clock.clock().now() + lease;
        let marked = deliveries.into_iter().map(|mut delivery| {
            let number = state.ends.len() as u64;
            state.ends.insert(number, end);
            state.deliveries.insert((delivery.lease.id, delivery.lease.token.clone()), number);
            delivery.message = delivery.message.with_header(DELIVERY, number.to_string());
            delivery
        });
        marked.collect()
    }

    fn settled(&self, settlements: &[Settlement], answers: &[Result<SettleOutcome>]) {
        let mut state = self.state();
        for (settlement, answer) in settlements.iter().zip(answers) {
            if matches!(answer, Ok(SettleOutcome::Settled)) && settlement.action == Action::Remove {
                let id = settlement.lease.id;
                assert!(state.removed.insert(id) || state.unsure.contains(&id), "removed twice");
                state.progress += 1;
            }
        }
    }
}

/// The storage that the queue is given.
#[derive(Clone)]
pub(crate) struct Server(pub(crate) Arc<World>, pub(crate) Capabilities);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

#[async_trait]
impl QueueStorage for Server {
    fn name(&self) -> &'static str {
        "schedules"
    }
    fn capabilities(&self) -> &Capabilities {
        &self.1
    }
    async fn init(&self) -> Result<()> {
        self.0.memory.init().await
    }
    async fn check(&self) -> Result<Health> {
        self.0.memory.check().await
    }
    async fn close(&self) -> Result<()> {
        Ok(()) // the account is read after it
    }
}

#[async_trait]
impl PushQueueStorage for Server {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        self.0.memory.encoded_len(message)
    }
    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let mut pushed = Vec::new();
        let effect = async {
            let answers = self.0.memory.push(partition, messages).await;
            pushed.extend(messages.iter().map(MessageData::id));
            answers
        };
        let made = self.0.call(effect).await;
        if made.is_err() {
            self.0.state().unsure.extend(pushed);
        }
        made.unwrap_or_else(|error| vec![Err(error); messages.len()])
    }
}

#[async_trait]
impl PullQueueStorage for Server {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let lease = request.lease;
        let effect = async {
            let answer = self.0.memory.pull(partition, request).await;
            answer.map(|deliveries| self.0.delivered(lease, deliveries))
        };
        self.0.call(effect).await?
    }
    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let effect = async {
            let answers = self.0.memory.settle(settlements).await;
            self.0.settled(settlements, &answers);
            answers
        };
        self.0.call(effect).await.unwrap_or_else(|error| vec![Err(error); settlements.len()])
    }
    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let effect = async {
            let answers = self.0.memory.extend(extensions).await;
            let (mut state, now) = (self.0.state(), self.0.clock.clock().now());
            for (extension, answer) in extensions.iter().zip(&answers) {
                if matches!(answer, Ok(ExtendOutcome::Extended)) {
                    let number = state.deliveries[&(extension.lease.id, extension.lease.token.clone())];
                    state.ends.insert(number, now + extension.duration);
                }
            }
            answers
        };
        self.0.call(effect).await.unwrap_or_else(|error| vec![Err(error); extensions.len()])
    }
    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        let lease = request.lease;
        let effect = async {
            let (answers, pulled) = self.0.memory.exchange(settlements, partition, request).await;
            self.0.settled(settlements, &answers);
            (answers, pulled.map(|deliveries| self.0.delivered(lease, deliveries)))
        };
        let made = self.0.call(effect).await;
        made.unwrap_or_else(|error| (vec![Err(error.clone()); settlements.len()], Err(error)))
    }
}

impl Storage for Server {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        self.0.memory.inspect()
    }
    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        self.0.memory.pause()
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        None
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        None
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        None
    }
}
