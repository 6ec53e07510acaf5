//! Facts about living tasks on their way to the ledger: merged, and without anybody waiting for them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::said::Said;
use super::waiting::{Fact, OfTask, Waiting};
use crate::clock::Clock;
use crate::error::RetryClass;
use crate::ledger::TaskEnd;
use crate::partition::PartitionId;
use crate::storage::Storage;
use crate::telemetry;

/// How long one call to the ledger may take.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);
/// The pause after a call that failed. It doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long closing waits for facts in flight.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// Sends facts: one call at a time, with as many as have gathered meanwhile. So a single fact is sent at
/// once.
pub(super) struct Facts {
    sender: Arc<Sender>,
    /// Without a close, dropping this ends the sender, which would otherwise retry forever.
    _gone: DropGuard,
}

struct Sender {
    ledger: Arc<dyn Storage>,
    /// The name of the queue's backend, for metrics.
    name: &'static str,
    waiting: Mutex<Waiting>,
    /// Whether facts that could not be sent at the first attempt are dropped, except those that a task is
    /// gone.
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

    /// Sets whether facts that could not be sent at the first attempt are dropped, except those that a task
    /// is gone; otherwise they wait until they can be sent.
    pub(super) fn set_drops(&self, drops: bool) {
        self.sender.drops.store(drops, Ordering::Relaxed);
    }

    /// Queues facts for sending. Never waits, and never fails.
    pub(super) fn note(&self, facts: impl IntoIterator<Item = Fact>) {
        let mut waiting = self.sender.lock();
        let mut refused = 0;
        for fact in facts {
            refused += usize::from(!waiting.join(fact));
        }
        // Outside a runtime they wait for one, or for the close.
        let runtime = Handle::try_current().ok().filter(|_| waiting.claim());
        drop(waiting);
        self.sender.dropped(refused);
        if let Some(runtime) = runtime {
            runtime.spawn(Arc::clone(&self.sender).send());
        }
    }

    /// Waits a while until nothing is in flight; what is left then is dropped.
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

    /// Sends waiting facts until there are none. The caller must have claimed the turn.
    async fn send(self: Arc<Self>) {
        let mut turn = Turn { sender: &self, last: None, taken: Vec::new(), is_over: false };
        let mut pause = PAUSE;
        while turn.take() {
            if !turn.record().await {
                pause = PAUSE;
                continue;
            }
            let clock = Clock::system();
            tokio::select! { biased; () = self.closing.cancelled() => {}, () = clock.sleep(pause) => {} }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Returns the facts that the ledger may accept later.
    async fn record(&self, partition: &PartitionId, facts: &[OfTask]) -> Vec<OfTask> {
        let Some(ledger) = self.ledger.ledger() else { return Vec::new() };
        let answers = within(RECORDED_WITHIN, ledger.record_ended(partition, facts)).await;
        let Some(answers) = answers else { return facts.to_vec() };
        let (mut left, mut refused) = (Vec::new(), 0);
        for (fact, answer) in facts.iter().zip(answers) {
            match answer {
                Ok(()) => {}
                Err(error) if error.retry() == RetryClass::Never => refused += 1,
                Err(_) => left.push(fact.clone()),
            }
        }
        self.dropped(refused);
        left
    }

    /// Whether a fact that could not be sent is tried again.
    fn tries_again(&self, fact: &TaskEnd) -> bool {
        let drops = self.drops.load(Ordering::Relaxed) && Said::of(fact) != Said::Gone;
        !drops && !self.closing.is_cancelled() && Handle::try_current().is_ok()
    }

    fn dropped(&self, facts: usize) {
        if facts > 0 {
            telemetry::count("anyqueue_ledger_dropped_total", self.name, facts as u64);
            tracing::warn!(facts, "the ledger was not told of tasks that wait");
        }
    }

    async fn all_sent(&self) {
        loop {
            // Register before looking, so that the last call cannot end in between.
            let mut notified = std::pin::pin!(self.idle.notified());
            notified.as_mut().enable();
            if !self.lock().is_sending {
                return;
            }
            notified.await;
        }
    }
}

/// The turn of sending. If it is dropped with its runtime, another sender may take over.
struct Turn<'s> {
    sender: &'s Sender,
    /// The partition that had its turn last.
    last: Option<PartitionId>,
    /// Facts of that partition that are in flight.
    taken: Vec<OfTask>,
    is_over: bool,
}

impl Turn<'_> {
    /// Takes what to send next. If there is nothing, the turn is over, in the same step: whoever comes then
    /// begins another.
    fn take(&mut self) -> bool {
        let mut waiting = self.sender.lock();
        let Some((partition, taken)) = waiting.take(self.last.as_ref()) else {
            waiting.is_sending = false;
            self.is_over = true;
            drop(waiting);
            self.sender.idle.notify_waiters();
            return false;
        };
        (self.last, self.taken) = (Some(partition), taken);
        true
    }

    /// Sends what was taken. Returns whether some of it is to be tried again, and so was put back.
    async fn record(&mut self) -> bool {
        let Some(partition) = &self.last else { return false };
        let left = self.sender.record(partition, &self.taken).await;
        let (again, lost): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(_, fact)| self.sender.tries_again(fact));
        self.taken.clear();
        let is_any = !again.is_empty();
        let refused = self.sender.lock().put_back(partition, again);
        self.sender.dropped(lost.len() + refused);
        is_any
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (last, taken) = (self.last.take(), std::mem::take(&mut self.taken));
        let mut waiting = self.sender.lock();
        waiting.is_sending = false;
        // The call was cut off: what it carried may or may not have arrived. Once the handle is closed, or if
        // the ledger panics, nobody will send it any more.
        let is_last = self.sender.closing.is_cancelled() || std::thread::panicking();
        let dropped = match last {
            Some(partition) if !is_last => waiting.put_back(&partition, taken),
            _ => taken.len(),
        };
        drop(waiting);
        self.sender.dropped(dropped);
        self.sender.idle.notify_waiters();
    }
}

/// Awaits this for a limited time, if there is a runtime that measures it.
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
