//! Waking waiting pulls: as many as there are messages, and none for nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyqueue::PartitionId;
use tokio::sync::Notify;

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
    /// When the next message of the partition becomes available by itself, in Unix milliseconds; `None` if unknown or never.
    due_ms: Option<i64>,
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
        if !lines.contains_key(partition) {
            lines.insert(partition.clone(), Line::default());
            self.changed.notify_one();
        }
        if let Some(line) = lines.get_mut(partition) {
            line.waiters.push_back(Arc::clone(&waiter));
        }
        drop(lines);
        Waiting { wake: Arc::clone(self), partition: partition.clone(), waiter, spent: false }
    }

    /// Wakes up to `count` waiters of the partition, those first that came first.
    pub(crate) fn ready(&self, partition: &PartitionId, count: usize) {
        if let Some(line) = self.lines().get_mut(partition) {
            line.wake(count);
        }
    }

    /// Learns that something becomes available at this time.
    pub(crate) fn due(&self, partition: &PartitionId, at_ms: i64) {
        if let Some(line) = self.lines().get_mut(partition)
            && line.due_ms.is_none_or(|known| at_ms < known)
        {
            line.due_ms = Some(at_ms);
            self.changed.notify_one();
        }
    }

    /// Wakes one waiter of each partition where something is due; it will learn of what comes next, and pass on what it leaves.
    pub(crate) fn fire(&self, now_ms: i64) {
        for line in self.lines().values_mut() {
            if line.due_ms.is_some_and(|due_ms| due_ms <= now_ms) {
                line.due_ms = None;
                line.wake(1);
            }
        }
    }

    /// Wakes everybody.
    pub(crate) fn all(&self) {
        for line in self.lines().values_mut() {
            line.wake(usize::MAX);
        }
    }

    /// The next time at which something is due anywhere.
    pub(crate) fn next_due_ms(&self) -> Option<i64> {
        self.lines().values().filter_map(|line| line.due_ms).min()
    }

    /// The partitions somebody waits for, and how many.
    pub(crate) fn waiting(&self) -> Vec<(PartitionId, usize)> {
        self.lines().iter().map(|(partition, line)| (partition.clone(), line.waiters.len())).collect()
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
        wake.ready(&partition, 2);
        assert_eq!(waiters.iter().map(woken).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn a_waiter_that_leaves_woken_passes_it_on_unless_spent() {
        let wake = Arc::new(Wake::default());
        let partition = PartitionId::new("p").unwrap();
        let (first, mut second, third) =
            (wake.join(&partition), wake.join(&partition), wake.join(&partition));
        wake.ready(&partition, 1);
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
        wake.due(&partition, 20);
        wake.due(&partition, 30);
        wake.fire(19);
        assert!(!woken(&first));
        assert_eq!(wake.next_due_ms(), Some(20));
        wake.fire(20);
        assert_eq!((woken(&first), woken(&second)), (true, false));
        drop((first, second));
        assert!(!wake.is_waited_for());
    }
}
