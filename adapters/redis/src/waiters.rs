//! Waking waiting pulls: as many as there are messages, and none for nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyqueue::PartitionId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::hint::Hint;

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
        let mut lines = self.lines();
        lines.entry(partition.clone()).or_default().waiters.push_back(Arc::clone(&waiter));
        if lines.len() == 1 {
            self.changed.notify_one(); // perhaps the first that waits at all
        }
        drop(lines);
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

    /// Wakes one waiter of each partition where something is due; it will learn of what comes next, and pass on what it leaves.
    pub(crate) fn fire(&self, now: Instant) {
        for line in self.lines().values_mut() {
            if line.due.is_some_and(|due| due <= now) {
                line.due = None;
                line.wake(1);
            }
        }
    }

    /// Wakes one waiter of each partition: hints may have been missed.
    pub(crate) fn look_at_all(&self) {
        for line in self.lines().values_mut() {
            line.wake(1);
        }
    }

    /// The next time at which something is due anywhere.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.lines().values().filter_map(|line| line.due).min()
    }

    /// Whether somebody waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.lines().is_empty()
    }

    /// Whether somebody waits for messages of this partition.
    pub(crate) fn is_waited_at(&self, partition: &PartitionId) -> bool {
        self.lines().contains_key(partition)
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

    /// The messages it was woken for were looked for, and others are told of what was left.
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
    use std::time::Duration;

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
        let due = |after: Duration| Hint { ready: 0, due: Some(after) };
        wake.hint(&partition, due(hour));
        wake.hint(&partition, due(2 * hour));
        wake.fire(start);
        assert!(!woken(&first));
        wake.fire(start + 2 * hour);
        assert_eq!((woken(&first), woken(&second)), (true, false));
        assert_eq!(wake.next_due(), None);
        drop((first, second));
        assert!(!wake.is_waited_for());
    }
}
