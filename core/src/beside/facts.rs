//! Facts of tasks that live, on their way to the ledger: joined, and awaited by nobody.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::Clock;
use crate::error::RetryClass;
use crate::ledger::TaskEnd;
use crate::message::MessageId;
use crate::partition::PartitionId;
use crate::storage::Storage;
use crate::telemetry;

/// The most facts that wait for the ledger. Beyond them new ones are dropped: the next fact of a task says all that is known of it.
const MAX_WAITING: usize = 10_000;
/// The most that one call carries. Ends that settlements wait for may have to wait until it is over.
const MAX_AT_ONCE: usize = 200;
/// How long one call to the ledger may take.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);
/// The pause after a call that failed. It doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long closing waits for what is on its way.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// A fact, and where the ledger keeps it.
pub(super) type Fact = (PartitionId, MessageId, Arc<TaskEnd>);

/// What sends facts: one call at a time, with as many as have gathered meanwhile. So a lone one goes at once.
pub(super) struct Facts {
    sender: Arc<Sender>,
    /// Whoever goes without closing leaves nobody behind who tries forever.
    _gone: DropGuard,
}

struct Sender {
    ledger: Arc<dyn Storage>,
    /// The queue's, for metrics.
    name: &'static str,
    waiting: Mutex<Waiting>,
    /// Whether facts are dropped that could not be sent once.
    drops: AtomicBool,
    idle: Notify,
    closing: CancellationToken,
}

impl Facts {
    pub(super) fn new(ledger: Arc<dyn Storage>, name: &'static str) -> Self {
        let closing = CancellationToken::new();
        let (waiting, drops, idle) = (Mutex::default(), AtomicBool::new(false), Notify::new());
        let sender = Sender { ledger, name, waiting, drops, idle, closing: closing.clone() };
        Self { sender: Arc::new(sender), _gone: closing.drop_guard() }
    }

    /// Sets whether facts are dropped that could not be sent once; else they wait until they can.
    pub(super) fn set_drops(&self, drops: bool) {
        self.sender.drops.store(drops, Ordering::Relaxed);
    }

    /// Has them sent. Never waits, and never fails.
    pub(super) fn note(&self, facts: impl IntoIterator<Item = Fact>) {
        let mut waiting = self.sender.lock();
        let mut refused = 0;
        for fact in facts {
            refused += usize::from(!waiting.join(fact));
        }
        // Elsewhere than on a runtime they wait for one, or for the end.
        let runtime = Handle::try_current().ok().filter(|_| waiting.claim());
        drop(waiting);
        self.sender.dropped(refused);
        if let Some(runtime) = runtime {
            runtime.spawn(Arc::clone(&self.sender).send());
        }
    }

    /// Waits until nothing is on its way, for a while; what is left then is dropped.
    pub(super) async fn close(&self) {
        let sender = &self.sender;
        let is_mine = sender.lock().claim();
        let sent = async {
            if is_mine {
                Arc::clone(sender).send().await;
            }
            sender.all_sent().await;
        };
        let _ = within(CLOSED_WITHIN, sent).await;
        sender.closing.cancel();
        let left = sender.lock().clear();
        sender.dropped(left);
    }
}

impl Sender {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits until nothing does. Whoever calls it has claimed that.
    async fn send(self: Arc<Self>) {
        let mut turn = Turn { sender: &self, is_over: false };
        let (mut last, mut pause) = (None, PAUSE);
        loop {
            let Some((partition, facts)) = turn.take(last.as_ref()) else { return };
            let left = self.record(&partition, facts).await;
            if left.is_empty() {
                pause = PAUSE;
            } else if self.tries_again() {
                let refused = self.lock().put_back(&partition, left);
                self.dropped(refused);
                let clock = Clock::system();
                tokio::select! { biased; () = self.closing.cancelled() => {}, () = clock.sleep(pause) => {} }
                pause = (pause * 2).min(LONGEST_PAUSE);
            } else {
                self.dropped(left.len());
            }
            last = Some(partition);
        }
    }

    /// Returns those that the ledger may keep later.
    async fn record(&self, partition: &PartitionId, facts: Vec<OfTask>) -> Vec<OfTask> {
        let Some(ledger) = self.ledger.ledger() else { return Vec::new() };
        let answers = within(RECORDED_WITHIN, ledger.record_ended(partition, &facts)).await;
        let Some(answers) = answers else { return facts };
        let (mut left, mut refused) = (Vec::new(), 0);
        for (fact, answer) in facts.into_iter().zip(answers) {
            match answer {
                Ok(()) => {}
                Err(error) if error.retry() == RetryClass::Never => refused += 1,
                Err(_) => left.push(fact),
            }
        }
        self.dropped(refused);
        left
    }

    fn tries_again(&self) -> bool {
        let drops = self.drops.load(Ordering::Relaxed) || self.closing.is_cancelled();
        !drops && Handle::try_current().is_ok()
    }

    fn dropped(&self, facts: usize) {
        if facts > 0 {
            telemetry::count("anyqueue_ledger_dropped_total", self.name, facts as u64);
            tracing::warn!(facts, "the ledger was not told of tasks that wait");
        }
    }

    async fn all_sent(&self) {
        loop {
            // Registered before looking, so that the last call cannot end in between.
            let mut notified = std::pin::pin!(self.idle.notified());
            notified.as_mut().enable();
            if !self.lock().is_sending {
                return;
            }
            notified.await;
        }
    }
}

/// Who sends. If it is dropped with its runtime, another may.
struct Turn<'s> {
    sender: &'s Sender,
    is_over: bool,
}

impl Turn<'_> {
    /// What to send next. With nothing the turn is over, in the same step: whoever comes then begins another.
    fn take(&mut self, last: Option<&PartitionId>) -> Option<(PartitionId, Vec<OfTask>)> {
        let mut waiting = self.sender.lock();
        let next = waiting.take(last);
        if next.is_none() {
            waiting.is_sending = false;
            self.is_over = true;
            drop(waiting);
            self.sender.idle.notify_waiters();
        }
        next
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.sender.lock().is_sending = false;
            self.sender.idle.notify_waiters();
        }
    }
}

type OfTask = (MessageId, Arc<TaskEnd>);

/// What waits: of each task the fact of the greatest rank.
#[derive(Default)]
struct Waiting {
    facts: BTreeMap<PartitionId, BTreeMap<MessageId, Arc<TaskEnd>>>,
    count: usize,
    is_sending: bool,
}

impl Waiting {
    /// `false`: there is no room for it.
    fn join(&mut self, (partition, id, fact): Fact) -> bool {
        let is_full = self.count >= MAX_WAITING;
        if is_full && !self.facts.get(&partition).is_some_and(|facts| facts.contains_key(&id)) {
            return false;
        }
        match self.facts.entry(partition).or_default().entry(id) {
            Entry::Occupied(mut there) if there.get().rank() < fact.rank() => drop(there.insert(fact)),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(fact);
                self.count += 1;
            }
        }
        true
    }

    /// Returns how many found no room.
    fn put_back(&mut self, partition: &PartitionId, facts: Vec<OfTask>) -> usize {
        facts.into_iter().filter(|(id, fact)| !self.join((partition.clone(), *id, Arc::clone(fact)))).count()
    }

    /// Makes the caller the one who sends, if something waits and nobody does.
    fn claim(&mut self) -> bool {
        let is_claimed = !self.is_sending && self.count > 0;
        self.is_sending |= is_claimed;
        is_claimed
    }

    /// As many of one partition as one call carries. Partitions take turns.
    fn take(&mut self, last: Option<&PartitionId>) -> Option<(PartitionId, Vec<OfTask>)> {
        let behind = last.and_then(|last| self.facts.range((Excluded(last.clone()), Unbounded)).next());
        let partition = behind.or_else(|| self.facts.first_key_value())?.0.clone();
        let facts = self.facts.get_mut(&partition)?;
        let taken: Vec<_> = std::iter::from_fn(|| facts.pop_first()).take(MAX_AT_ONCE).collect();
        if facts.is_empty() {
            self.facts.remove(&partition);
        }
        self.count -= taken.len();
        Some((partition, taken))
    }

    fn clear(&mut self) -> usize {
        self.facts.clear();
        std::mem::take(&mut self.count)
    }
}

/// What comes of this within a time, where there is a runtime that tells it.
async fn within<T>(longest: Duration, future: impl Future<Output = T>) -> Option<T> {
    if Handle::try_current().is_err() {
        return Some(future.await);
    }
    let clock = Clock::system();
    tokio::select! { biased; done = future => Some(done), () = clock.sleep(longest) => None }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::EndState;

    fn fact(partition: &str, id: u32, attempt: u32) -> Fact {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&id.to_be_bytes());
        let end = TaskEnd::new(EndState::Failed).with_attempt(attempt);
        (PartitionId::new(partition).unwrap(), MessageId::from_bytes(bytes), Arc::new(end))
    }

    #[test]
    fn of_each_task_the_greatest_fact_waits_in_whatever_order_they_come() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut waiting = Waiting::default();
            assert!(order.iter().chain(&order).all(|attempt| waiting.join(fact("p", 7, *attempt))));
            let (_, taken) = waiting.take(None).unwrap();
            let attempts: Vec<_> = taken.iter().map(|(_, fact)| fact.attempt).collect();
            assert_eq!((attempts, waiting.count), (vec![2], 0), "{order:?}");
        }
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let mut waiting = Waiting::default();
        let most = u32::try_from(MAX_WAITING).unwrap();
        assert!((0..most).all(|id| waiting.join(fact("p", id, 0))));
        assert!(!waiting.join(fact("p", most, 0)) && !waiting.join(fact("q", 0, 0)), "there is no room");
        assert!(waiting.join(fact("p", 0, 1)), "one that waits already takes none");
        assert_eq!((waiting.count, waiting.facts.len()), (MAX_WAITING, 1));
    }

    #[test]
    fn partitions_take_turns() {
        let mut waiting = Waiting::default();
        for id in 0..u32::try_from(2 * MAX_AT_ONCE).unwrap() {
            assert!(waiting.join(fact("a", id, 0)) && waiting.join(fact("b", id, 0)));
        }
        let (mut last, mut turns) = (None, Vec::new());
        while let Some((partition, taken)) = waiting.take(last.as_ref()) {
            assert_eq!(taken.len(), MAX_AT_ONCE);
            turns.push(partition.name().to_owned());
            last = Some(partition);
        }
        assert_eq!(turns, ["a", "b", "a", "b"]);
    }
}
