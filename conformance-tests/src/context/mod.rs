//! What a case works with: clients, partitions, messages and judgements.

mod altered;
mod amend;
mod client;
mod failure;
mod idle;
mod opening;
mod queue;
mod timing;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Capabilities, RawDelivery, Storage};
use anyqueue::{Clock, Error, ErrorKind, MessageData, MessageId, PartitionId, PushOutcome, Result};
use futures_util::future::join_all;

use crate::child::{Child, Role};
use crate::clause::Clause;
use crate::fault_target::{DISRUPTED, Disruption, FaultTarget};
use crate::harness::Harness;
use crate::history::{History, Op, Ticket};
use crate::need::Need;
use crate::options::{Options, Tier};
use crate::recorder::Recorder;
use crate::verdict::{CaseResult, Outcome, Stop};

pub(crate) use altered::Altered;
pub use client::Client;
pub(crate) use client::settlement;
use failure::fail;
use opening::open_storage;
pub(crate) use queue::{handler_ids, polled};
pub(crate) use timing::CLOCK_GRAIN;
pub use timing::{Timing, scheduling};

/// The environment of one running case: its namespace in the backend, its first client, and judgements.
pub struct Context {
    harness: Arc<dyn Harness>,
    /// The case's own server, if it needs one: then all its clients connect to that.
    target: Option<Arc<dyn FaultTarget>>,
    namespace: String,
    case: &'static str,
    options: Options,
    capabilities: Capabilities,
    timing: Timing,
    history: Arc<History>,
    first: Client,
    clients: Mutex<Vec<Client>>,
}

impl Context {
    /// Creates the context of the case with this id, with a server of its own if it wants one.
    pub(crate) async fn open(
        harness: Arc<dyn Harness>,
        case: &'static str,
        wants_target: bool,
        options: &Options,
    ) -> Result<Arc<Self>> {
        let namespace = namespace(case);
        let history = Arc::new(History::new());
        let target = if wants_target { harness.fault_target().await? } else { None };
        let storage = open_storage(&*harness, target.as_deref(), &namespace).await?;
        let first = client(storage, "A".into(), &history);
        let capabilities = first.storage().capabilities().clone();
        Ok(Arc::new(Self {
            timing: Timing::of(&capabilities),
            clients: Mutex::new(vec![first.clone()]),
            options: options.clone(),
            harness,
            target,
            namespace,
            case,
            capabilities,
            history,
            first,
        }))
    }

    /// Returns the first client.
    pub fn client(&self) -> &Client {
        &self.first
    }

    /// Opens another client, independent of those before.
    ///
    /// # Errors
    /// Fails the case if it cannot be opened.
    pub async fn fresh(&self) -> CaseResult<Client> {
        let opened = open_storage(&*self.harness, self.fault_target(), &self.namespace).await;
        self.join(opened)
    }

    /// Opens another client, which runs on this clock. Only for cases that need [`Need::SkewedClient`].
    ///
    /// # Errors
    /// Fails the case if it cannot be opened.
    pub async fn fresh_skewed(&self, clock: Clock) -> CaseResult<Client> {
        let opening = self.harness.open_skewed(&self.namespace, clock);
        let opening = opening.ok_or_else(|| Stop::NotApplicable(Need::SkewedClient.what().to_owned()))?;
        let opened = match opening.await {
            Ok(storage) => storage.init().await.map(|()| storage),
            Err(error) => Err(error),
        };
        self.join(opened)
    }

    /// Adds a new client to the case's clients.
    fn join(&self, opened: Result<Arc<dyn Storage>>) -> CaseResult<Client> {
        let storage = opened
            .map_err(|error| self.failed(Clause::Init, &[], "another client to open", error.to_string()))?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let client = client(storage, client_name(clients.len()), &self.history);
        clients.push(client.clone());
        Ok(client)
    }

    /// Opens another client whose calls the history does not see, for more messages than a history should
    /// hold. The case judges what it does with it, leaves none of its messages in the queue, and closes it.
    ///
    /// # Errors
    /// Fails the case if it cannot be opened.
    pub(crate) async fn unseen(&self) -> CaseResult<Arc<dyn Storage>> {
        let opened = open_storage(&*self.harness, self.fault_target(), &self.namespace).await;
        opened.map_err(|error| self.failed(Clause::Init, &[], "another client to open", error.to_string()))
    }

    pub(crate) fn clients(&self) -> Vec<Client> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what the backend declares.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns durations that fit the backend.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Returns random numbers that repeat with the run's seed.
    pub fn random(&self) -> fastrand::Rng {
        let salt = self.case.bytes().fold(0_u64, |salt, byte| salt.wrapping_mul(31) + u64::from(byte));
        fastrand::Rng::with_seed(self.options.seed ^ salt)
    }

    /// Returns the run's seed itself.
    pub(crate) fn seed(&self) -> u64 {
        self.options.seed
    }

    pub(crate) fn harness(&self) -> Arc<dyn Harness> {
        self.harness.clone()
    }

    /// Returns `quick`, or `thorough` in the thorough tier.
    pub fn size(&self, quick: usize, thorough: usize) -> usize {
        if self.options.tier == Tier::Thorough { thorough } else { quick }
    }

    /// Returns `quick`, `thorough` in the thorough tier, and the configured time in the soak tier.
    pub fn lasting(&self, quick: Duration, thorough: Duration) -> Duration {
        match self.options.tier {
            Tier::Quick => quick,
            Tier::Thorough => thorough,
            Tier::Soak => self.options.soak,
        }
    }

    /// Returns a partition in the case's own namespace. Only for valid names.
    ///
    /// # Errors
    /// Inconclusive if the name is not valid.
    pub fn partition(&self, name: &str) -> CaseResult<PartitionId> {
        PartitionId::new(name).map_err(|error| Stop::Inconclusive(error.to_string()))
    }

    /// Creates a message with a body that no other message has.
    pub fn message(&self) -> MessageData {
        self.maker().message()
    }

    /// Returns a maker, which creates messages in a task of its own.
    pub(crate) fn maker(&self) -> Maker {
        Maker { case: self.case, history: self.history.clone() }
    }

    /// Creates `n` messages, each refined according to its number.
    pub fn messages(&self, n: usize, refine: impl Fn(usize, MessageData) -> MessageData) -> Vec<MessageData> {
        (0..n).map(|index| refine(index, self.message())).collect()
    }

    /// Returns the verdict on a case that needs something the backend does not declare.
    pub(crate) fn undeclared(&self, need: Need) -> Outcome {
        if self.harness.least().contains(&need) {
            let expected = format!("{} to be declared: this backend can have it", need.what());
            return self.failed(Clause::Unsupported, &[], expected, "it is not declared").into();
        }
        let rule = self.harness.rule(need);
        Outcome::NotApplicable { needs: need.what().to_owned(), declared: true, rule }
    }

    /// Returns the case's own server.
    pub(crate) fn fault_target(&self) -> Option<&dyn FaultTarget> {
        self.target.as_deref()
    }

    /// Disrupts the case's own server.
    ///
    /// # Errors
    /// Inconclusive if that cannot be done.
    pub async fn disrupt(&self, disruption: Disruption) -> CaseResult {
        let target = self
            .fault_target()
            .ok_or_else(|| Stop::Inconclusive("there is no server to disrupt".to_owned()))?;
        self.first.note(format!("{DISRUPTED}{disruption:?}"));
        target
            .disrupt(disruption)
            .await
            .map_err(|error| Stop::Inconclusive(format!("{disruption:?} did not work: {error}")))
    }

    /// Returns what the harness says the backend must declare.
    pub(crate) fn least(&self) -> &'static [Need] {
        self.harness.least()
    }

    pub(crate) fn stores_bytes(&self) -> bool {
        self.harness.stores_bytes()
    }

    /// Writes bytes into the partition without going through the adapter. Its first delivery shows what they
    /// are: then call [`planted`](Self::planted), so that the account knows the message.
    ///
    /// # Errors
    /// Inconclusive if the harness cannot.
    pub(crate) async fn plant(&self, partition: &PartitionId, stored: &[u8]) -> CaseResult<Ticket> {
        let (ids, outcomes) = (Vec::new(), Vec::new());
        let op = Op::Push { partition: partition.clone(), ids, outcomes };
        let ticket = self.history.begin(&"planted".into(), op);
        let planted = self.harness.plant(&self.namespace, partition, stored).await;
        planted
            .map_err(|error| Stop::Inconclusive(format!("the harness could not plant a message: {error}")))?;
        Ok(ticket)
    }

    /// Records a planted message as it was first delivered.
    pub(crate) fn planted(&self, ticket: Ticket, message: &MessageData) {
        self.history.know(message);
        let id = message.id();
        self.history.end(ticket, 1, |op| {
            if let Op::Push { ids, outcomes, .. } = op {
                (*ids, *outcomes) = (vec![id], vec![Ok(PushOutcome::Stored(id))]);
            }
        });
    }

    /// Damages the stored form of a waiting message without going through the adapter.
    ///
    /// # Errors
    /// Inconclusive if the harness cannot.
    pub(crate) async fn corrupt(&self, partition: &PartitionId, id: MessageId) -> CaseResult {
        let done = self.harness.corrupt(&self.namespace, partition, id).await;
        done.map_err(|error| Stop::Inconclusive(format!("the harness could not damage a message: {error}")))
    }

    /// Returns whether the harness lets other processes open the storage.
    pub(crate) fn can_spawn(&self) -> bool {
        self.harness.address(&self.namespace).is_some()
    }

    /// Starts a child process that plays `role` on the case's storage.
    ///
    /// # Errors
    /// Not applicable if the harness cannot have any.
    pub fn spawn(&self, role: &Role) -> CaseResult<Child> {
        let address = self.harness.address(&self.namespace).filter(|_| self.options.children);
        let address = address.ok_or_else(|| Stop::NotApplicable("child processes".to_owned()))?;
        Child::spawn(&address, role, self.history.clone())
    }

    /// Fails the case with `clause` and the history of the messages in `about` (all if empty), unless `ok`.
    ///
    /// # Errors
    /// Fails the case unless `ok`.
    pub fn check(
        &self,
        clause: Clause,
        about: &[MessageId],
        ok: bool,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> CaseResult {
        self.history.observed(1);
        if ok { Ok(()) } else { Err(self.failed(clause, about, expected, seen)) }
    }

    /// Judges that two values are equal; `what` says what they describe.
    ///
    /// # Errors
    /// Fails the case unless they are.
    pub fn equal<T: PartialEq + Debug>(
        &self,
        clause: Clause,
        about: &[MessageId],
        what: &str,
        expected: &T,
        seen: &T,
    ) -> CaseResult {
        self.check(clause, about, expected == seen, format!("{what} {expected:?}"), format!("{seen:?}"))
    }

    /// Judges that exactly these messages were delivered, in this order.
    ///
    /// # Errors
    /// Fails the case unless they were.
    pub fn in_order(
        &self,
        clause: Clause,
        what: &str,
        expected: &[MessageId],
        seen: &[RawDelivery],
    ) -> CaseResult {
        let seen = ids(seen);
        let told = format!("{what}: {}", self.history.labels(expected));
        self.check(clause, &both(expected, &seen), expected == seen, told, self.history.labels(&seen))
    }

    /// Judges that exactly these messages were delivered, in any order; each once, if holding is exclusive.
    ///
    /// # Errors
    /// Fails the case unless they were.
    pub fn same(
        &self,
        clause: Clause,
        what: &str,
        expected: &[MessageId],
        seen: &[RawDelivery],
    ) -> CaseResult {
        self.same_ids(clause, what, expected, &ids(seen))
    }

    /// Judges that a call failed with an error of this kind.
    ///
    /// # Errors
    /// Fails the case unless it did.
    pub fn error<T: Debug>(
        &self,
        clause: Clause,
        what: &str,
        kind: ErrorKind,
        seen: &Result<T>,
    ) -> CaseResult {
        let ok = seen.as_ref().is_err_and(|error| error.kind() == kind);
        self.check(clause, &[], ok, format!("{what} to return {kind}"), format!("{seen:?}"))
    }

    /// Unwraps an answer that no correct backend refuses.
    ///
    /// # Errors
    /// Fails the case on an error.
    pub fn ok<T>(&self, clause: Clause, what: &str, answer: Result<T>) -> CaseResult<T> {
        self.history.observed(1);
        answer
            .map_err(|error: Error| self.failed(clause, &[], format!("{what} to succeed"), error.to_string()))
    }

    /// Judges that `elapsed` lies between `from` (strictly, apart from the clock's resolution) and `to`.
    ///
    /// # Errors
    /// Fails the case if it does not; if it is longer, only if it is so each time the case is run.
    pub fn took(
        &self,
        clause: Clause,
        about: &[MessageId],
        what: &str,
        elapsed: Duration,
        (from, to): (Duration, Duration),
    ) -> CaseResult {
        let (expected, seen) = (format!("{what} after {from:?} to {to:?}"), format!("after {elapsed:?}"));
        let (early, late) = (elapsed + CLOCK_GRAIN < from, elapsed > to);
        let judged = self.check(clause, about, !early && !late, expected, seen);
        if late { judged.map_err(Stop::late) } else { judged }
    }

    /// Ends the case without a verdict if a lease under which it wanted to act may already be over.
    ///
    /// # Errors
    /// Inconclusive if more than `lease` has passed since `start`.
    pub fn still_within(&self, start: Instant, lease: Duration) -> CaseResult {
        if start.elapsed() < lease {
            return Ok(());
        }
        Err(Stop::Inconclusive(format!("this machine was too slow to act within a lease of {lease:?}")))
    }

    /// Returns the verdict that the contract is broken.
    pub fn failed(
        &self,
        clause: Clause,
        about: &[MessageId],
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> Stop {
        fail(&self.history, clause, about, expected, seen)
    }

    /// Returns the label of a message in reports, such as `#3`.
    pub fn label(&self, id: MessageId) -> String {
        self.history.label(id)
    }

    pub(crate) fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// Releases everything. Anything that hangs here is abandoned.
    pub(crate) async fn close(&self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        const TO_REMOVE: Duration = Duration::from_mins(1);
        let clients = self.clients();
        let closing = clients.iter().map(|client| tokio::time::timeout(PATIENCE, client.storage().close()));
        join_all(closing).await;
        let _ = tokio::time::timeout(TO_REMOVE, self.harness.remove(&self.namespace)).await;
    }
}

/// Creates messages with bodies that no other message has.
pub(crate) struct Maker {
    case: &'static str,
    history: Arc<History>,
}

impl Maker {
    pub(crate) fn message(&self) -> MessageData {
        let id = MessageId::new();
        self.history.number(id);
        MessageData::with_id(id, format!("{} {id}", self.case))
    }
}

impl Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("case", &self.case)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// Returns the ids of deliveries, in their order.
pub(crate) fn ids(deliveries: &[RawDelivery]) -> Vec<MessageId> {
    deliveries.iter().map(|delivery| delivery.lease.id).collect()
}

/// Returns what is in only one of the two, for readers; both in full if they differ only in order.
fn both(expected: &[MessageId], seen: &[MessageId]) -> Vec<MessageId> {
    let odd =
        |a: &[MessageId], b: &[MessageId]| a.iter().filter(|id| !b.contains(id)).copied().collect::<Vec<_>>();
    let mut about = odd(expected, seen);
    about.extend(odd(seen, expected));
    if about.is_empty() { expected.to_vec() } else { about }
}

fn client(storage: Arc<dyn Storage>, name: Arc<str>, history: &Arc<History>) -> Client {
    let recorder = Arc::new(Recorder::new(storage, name.clone(), history.clone()));
    Client::new(recorder, name, history.clone())
}

fn client_name(index: usize) -> Arc<str> {
    match u8::try_from(index).ok().filter(|index| *index < 26) {
        Some(index) => char::from(b'A' + index).to_string().into(),
        None => format!("client {index}").into(),
    }
}

/// Unique in time and space, so that a run never meets what an earlier one left behind.
fn namespace(case: &str) -> String {
    let group: String = case.chars().filter(char::is_ascii_lowercase).take(16).collect();
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{group}_{}", random.get(..16).unwrap_or(&random))
}
