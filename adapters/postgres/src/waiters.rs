//! Waking waiting pulls: as many as there are messages, and none for nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::PartitionId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long it takes until a pull looks again for what is due but was not to be had: somebody has it locked.
const LOCKED_PAUSE: Duration = Duration::from_millis(5);
/// It doubles up to this, which is within the slack.
const LOCKED_PAUSE_MAX: Duration = Duration::from_millis(100);

/// What became of a partition, as far as waiting pulls are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// So many messages can be pulled.
    pub(crate) ready: usize,
    /// In this time one becomes available by itself.
    pub(crate) due: Option<Duration>,
}

impl Hint {
    pub(crate) fn ready(ready: usize) -> Self {
        Self { ready, due: None }
    }

    pub(crate) fn due(due: Duration) -> Self {
        Self { ready: 0, due: Some(due) }
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.ready = self.ready.saturating_add(other.ready);
        self.due = self.due.into_iter().chain(other.due).min();
    }
}

/// The waiting pulls of one handle, by partition.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    // A std mutex: it is held for a few instructions and never across an await.
    lines: Mutex<HashMap<PartitionId, Line>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Line {
    waiters: VecDeque<Arc<Waiter>>,
    /// When the next message of the partition becomes available by itself; `None` if unknown or never.
    due: Option<Instant>,
    /// Whether somebody found nothing, and so does not know what comes next.
    unseen: bool,
    /// How long the next who is told of what is overdue waits: nothing unless it was told before.
    pause: Duration,
}

#[derive(Debug, Default)]
struct Waiter {
    notify: Notify,
    woken: AtomicBool,
}

/// A place in the line. Whoever leaves without having used its wake-up passes it on.
#[derive(Debug)]
pub(crate) struct Waiting {
    wake: Arc<Wake>,
    partition: PartitionId,
    waiter: Arc<Waiter>,
    spent: bool,
}

impl Wake {
    fn lines(&self) -> MutexGuard<'_, HashMap<PartitionId, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the line. Do it before looking for messages, so that none can come unnoticed between looking and waiting.
    pub(crate) fn join(self: &Arc<Self>, partition: &PartitionId) -> Waiting {
        let waiter = Arc::new(Waiter::default());
        self.lines().entry(partition.clone()).or_default().waiters.push_back(Arc::clone(&waiter));
        Waiting { wake: Arc::clone(self), partition: partition.clone(), waiter, spent: false }
    }

    /// Wakes up to as many waiters as there are messages, those first that came first.
    pub(crate) fn hint(&self, partition: &PartitionId, hint: Hint) {
        let due = hint.due.and_then(|due| Instant::now().checked_add(due));
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(partition) else { return };
        line.wake(hint.ready);
        if due.is_some() && line.due.is_none_or(|known| due < Some(known)) {
            line.due = due;
            self.changed.notify_one();
        }
    }

    /// What the server says of when something is due. What is overdue wakes somebody at once; if it still is when looked at again, somebody
    /// else has it locked, and asking for it without a pause would be a busy loop.
    pub(crate) fn look(&self, partition: &PartitionId, ready: usize, due: Option<Duration>) {
        let mut pause = Duration::ZERO;
        if let Some(line) = self.lines().get_mut(partition) {
            let is_overdue = due.is_some_and(|due| due.is_zero());
            pause = line.pause;
            let longer = (pause * 2).clamp(LOCKED_PAUSE, LOCKED_PAUSE_MAX);
            line.pause = if is_overdue { longer } else { Duration::ZERO };
        }
        self.hint(partition, Hint { ready, due: due.map(|due| due.max(pause)) });
    }

    /// Wakes one waiter of each partition where something is due; it will learn of what comes next, and pass on what it leaves.
    pub(crate) fn fire(&self, now: Instant) {
        for line in self.lines().values_mut() {
            if line.due.is_some_and(|due| due <= now) {
                line.due = None;
                line.wake(1);
            }
        }
    }

    /// The next time at which something is due anywhere.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.lines().values().filter_map(|line| line.due).min()
    }

    /// Somebody found nothing: what comes next, and when, is to be looked at now.
    pub(crate) fn found_nothing(&self, partition: &PartitionId) {
        if let Some(line) = self.lines().get_mut(partition) {
            line.unseen = true;
            self.changed.notify_one();
        }
    }

    /// Whether there is a partition to be looked at now.
    pub(crate) fn is_unseen(&self) -> bool {
        self.lines().values().any(|line| line.unseen)
    }

    /// The partitions somebody waits for, and how many. From now on they count as seen.
    pub(crate) fn waiting(&self) -> Vec<(PartitionId, usize)> {
        let mut lines = self.lines();
        let waiting = lines.iter_mut().map(|(partition, line)| {
            line.unseen = false;
            (partition.clone(), line.waiters.len())
        });
        waiting.collect()
    }

    /// Whether somebody waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.lines().is_empty()
    }

    /// Ends when somebody begins to wait, or something is due earlier than known before.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Line {
    fn wake(&mut self, count: usize) {
        for _ in 0..count {
            let Some(waiter) = self.waiters.pop_front() else { break };
            waiter.woken.store(true, Ordering::Release);
            waiter.notify.notify_one();
        }
    }
}

impl Waiting {
    /// Ends when woken.
    pub(crate) async fn woken(&self) {
        self.waiter.notify.notified().await;
    }

    /// The messages it was woken for were looked for, and nothing was left.
    pub(crate) fn spend(&mut self) {
        self.spent = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut lines = self.wake.lines();
        let Some(line) = lines.get_mut(&self.partition) else { return };
        line.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        if self.waiter.woken.load(Ordering::Acquire) && !self.spent {
            line.wake(1);
        }
        if line.waiters.is_empty() {
            lines.remove(&self.partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn woken(waiting: &Waiting) -> bool {
        waiting.woken().now_or_never().is_some()
    }

    #[test]
    fn n_messages_wake_n_waiters_in_the_order_they_came() {
        let wake = Arc::new(Wake::default());
        let partition = PartitionId::new("p").unwrap();
        let waiters: Vec<_> = (0..3).map(|_| wake.join(&partition)).collect();
        wake.hint(&partition, Hint::ready(2));
        assert_eq!(waiters.iter().map(woken).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn a_waiter_that_leaves_woken_passes_it_on_unless_spent() {
        let wake = Arc::new(Wake::default());
        let partition = PartitionId::new("p").unwrap();
        let (first, mut second, third) =
            (wake.join(&partition), wake.join(&partition), wake.join(&partition));
        wake.hint(&partition, Hint::ready(1));
        drop(first);
        assert!(woken(&second));
        second.spend();
        drop(second);
        assert!(!woken(&third));
    }

    #[test]
    fn what_is_due_wakes_one_and_an_empty_line_is_gone() {
        let wake = Arc::new(Wake::default());
        let partition = PartitionId::new("p").unwrap();
        let (first, second) = (wake.join(&partition), wake.join(&partition));
        let start = Instant::now();
        let hour = Duration::from_hours(1);
        wake.hint(&partition, Hint::due(hour));
        wake.hint(&partition, Hint::due(2 * hour));
        wake.fire(start);
        assert!(!woken(&first));
        assert!(wake.next_due().is_some_and(|due| due < start + 2 * hour));
        wake.fire(start + 2 * hour);
        assert_eq!((woken(&first), woken(&second)), (true, false));
        drop((first, second));
        assert!(!wake.is_waited_for());
    }

    #[test]
    fn what_stays_overdue_is_looked_for_at_once_and_then_ever_more_seldom() {
        let wake = Arc::new(Wake::default());
        let partition = PartitionId::new("p").unwrap();
        let _waiting = wake.join(&partition);
        let mut pauses = Vec::new();
        let mut look = |due| {
            wake.look(&partition, 0, Some(due));
            let pause = wake.next_due().unwrap().saturating_duration_since(Instant::now());
            wake.fire(Instant::now() + LOCKED_PAUSE_MAX);
            pauses.push(pause);
        };
        (0..9).for_each(|_| look(Duration::ZERO));
        assert_eq!(pauses.first(), Some(&Duration::ZERO));
        assert!(pauses.iter().all(|pause| *pause <= LOCKED_PAUSE_MAX));
        assert!(pauses.iter().sum::<Duration>() > 3 * LOCKED_PAUSE_MAX, "{pauses:?}");
        wake.look(&partition, 0, Some(LOCKED_PAUSE_MAX));
        wake.fire(Instant::now() + LOCKED_PAUSE_MAX);
        wake.look(&partition, 0, Some(Duration::ZERO));
        assert!(
            wake.next_due().unwrap() <= Instant::now(),
            "what came to be overdue since is looked for at once"
        );
    }
}
