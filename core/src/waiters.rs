//! Waiting pulls, and waking exactly as many as there are messages.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::partition::PartitionId;
use crate::storage::RawDelivery;

/// What happened in a partition that waiting pulls should know of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// How many messages can be pulled now.
    pub ready: usize,
    /// After how long a message becomes available by itself.
    pub due: Option<Duration>,
}

impl Hint {
    /// Creates a hint that this many messages can be pulled now.
    #[must_use]
    pub const fn ready(ready: usize) -> Self {
        Self { ready, due: None }
    }

    /// Creates a hint that a message becomes available by itself after this time.
    #[must_use]
    pub const fn due(due: Duration) -> Self {
        Self { ready: 0, due: Some(due) }
    }

    /// Returns whether the hint says nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Merges another hint about the same partition into this one.
    pub fn add(&mut self, other: Self) {
        self.ready = self.ready.saturating_add(other.ready);
        self.due = self.due.into_iter().chain(other.due).min();
    }
}

/// The waiting pulls of one handle, by partition, and when the next message becomes available in each.
///
/// For adapters whose server does not hold a pull open by itself. A pull [joins](Self::join) before it looks
/// for messages, so that no message goes unnoticed between looking and waiting. Whoever pushes or releases
/// messages [wakes](Self::wake) as many waiters as there are messages, in the order in which they joined; a
/// waiter that leaves without having used its wake-up passes it on. So no wake-up is lost.
///
/// `T` is a time type of the adapter's choice. With tokio's there is [`watch`](Self::watch), the task that
/// wakes waiters when a message becomes due. Nothing here blocks for longer than it takes to go through the
/// partitions that have waiters.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use anyqueue::PartitionId;
/// use anyqueue::adapter::Waiters;
///
/// let (waiters, mail) = (Arc::new(Waiters::<tokio::time::Instant>::new()), PartitionId::new("mail")?);
/// let waiting = waiters.join(&mail);
/// // Here the pull looks for messages and finds none. Somebody pushes one:
/// waiters.wake(&mail, 1);
/// waiting.woken().await;
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
pub struct Waiters<T = Instant> {
    // A std mutex: it is held for a few instructions and never across an await.
    lines: Mutex<HashMap<PartitionId, Line<T>>>,
    /// A waiter found nothing, and does not know what comes next.
    is_unseen: AtomicBool,
    changed: Notify,
}

struct Line<T> {
    waiters: VecDeque<Arc<Waiter>>,
    /// When the next message of the partition becomes available by itself; `None` if unknown or never.
    due: Option<T>,
}

#[derive(Default)]
struct Waiter {
    notify: Notify,
    woken: AtomicBool,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self { lines: Mutex::default(), is_unseen: AtomicBool::new(false), changed: Notify::new() }
    }
}

impl<T> fmt::Debug for Waiters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters").field("partitions", &self.lines().len()).finish_non_exhaustive()
    }
}

impl<T> Waiters<T> {
    /// Creates an empty set of waiters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<PartitionId, Line<T>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the line of the partition. Call this before looking for messages.
    #[must_use = "dropped, it leaves the line"]
    pub fn join(self: &Arc<Self>, partition: &PartitionId) -> Waiting<T> {
        let waiter = Arc::new(Waiter::default());
        let mut lines = self.lines();
        if let Some(line) = lines.get_mut(partition) {
            line.waiters.push_back(waiter.clone());
        } else {
            let line = Line { waiters: VecDeque::from([waiter.clone()]), due: None };
            lines.insert(partition.clone(), line);
        }
        drop(lines);
        Waiting { waiters: self.clone(), partition: partition.clone(), waiter, is_spent: false }
    }

    /// Wakes up to `count` waiters of the partition, in the order in which they joined.
    pub fn wake(&self, partition: &PartitionId, count: usize) {
        if let Some(line) = self.lines().get_mut(partition) {
            line.wake(count);
        }
    }

    /// Wakes up to `count` waiters of every partition: for when events there may have been missed.
    pub fn wake_each(&self, count: usize) {
        self.lines().values_mut().for_each(|line| line.wake(count));
    }

    /// Notes that a waiter found nothing: what comes next there, and when, should be looked up now.
    pub fn found_nothing(&self) {
        self.is_unseen.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Returns the partitions that have waiters, and how many.
    #[must_use]
    pub fn partitions(&self) -> Vec<(PartitionId, usize)> {
        self.lines().iter().map(|(partition, line)| (partition.clone(), line.waiters.len())).collect()
    }

    /// Returns whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    /// Returns whether somebody waits for messages of this partition.
    #[must_use]
    pub fn has(&self, partition: &PartitionId) -> bool {
        self.lines().contains_key(partition)
    }

    /// Ends when a pull begins to wait, when something is due earlier than known before, or when a waiter
    /// [found nothing](Self::found_nothing). If that happened before the call, it ends at once.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl<T: Copy + Ord> Waiters<T> {
    /// Notes that a message of the partition becomes available by itself at this time.
    pub fn due(&self, partition: &PartitionId, at: T) {
        if let Some(line) = self.lines().get_mut(partition)
            && line.due.is_none_or(|known| at < known)
        {
            line.due = Some(at);
            self.changed.notify_one();
        }
    }

    /// Wakes one waiter of each partition where something is due. The waiter learns what comes next, and
    /// passes on what it leaves.
    pub fn fire(&self, now: T) {
        for line in self.lines().values_mut() {
            if line.due.is_some_and(|due| due <= now) {
                line.due = None;
                line.wake(1);
            }
        }
    }

    /// Returns the next time at which something is due in any partition.
    #[must_use]
    pub fn next_due(&self) -> Option<T> {
        self.lines().values().filter_map(|line| line.due).min()
    }
}

impl Waiters<Instant> {
    /// Wakes the waiters that the hint concerns. A due time beyond what the clock can represent counts as
    /// never.
    pub fn hint(&self, partition: &PartitionId, hint: Hint) {
        self.wake(partition, hint.ready);
        if let Some(at) = hint.due.and_then(|due| Instant::now().checked_add(due)) {
            self.due(partition, at);
        }
    }

    /// Wakes waiters for messages that become due, and looks now and then for what no hint announced; never
    /// ends. While nobody waits it sleeps.
    ///
    /// `look` is called first after `first`, and at once after a waiter [found nothing](Self::found_nothing).
    /// It returns the time until its next call.
    pub async fn watch<F: Future<Output = Duration>>(&self, first: Duration, mut look: impl FnMut() -> F) {
        let mut next_look = Instant::now() + first;
        loop {
            let is_waited_for = !self.is_empty();
            if self.is_unseen.load(Ordering::Acquire) {
                next_look = Instant::now();
            }
            tokio::select! {
                () = self.changed() => {}
                () = until(self.next_due()), if is_waited_for => self.fire(Instant::now()),
                () = tokio::time::sleep_until(next_look), if is_waited_for => {
                    self.is_unseen.store(false, Ordering::Release); // before it looks: what comes meanwhile is not seen by it
                    next_look = Instant::now() + look().await;
                }
            }
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

impl<T> Line<T> {
    fn wake(&mut self, count: usize) {
        for _ in 0..count {
            let Some(waiter) = self.waiters.pop_front() else { break };
            waiter.woken.store(true, Ordering::Release);
            waiter.notify.notify_one();
        }
    }
}

/// A place in the line of a partition. If it is dropped after it was woken, and not [spent](Self::spend), it
/// wakes the next waiter.
#[must_use = "dropped, it leaves the line"]
pub struct Waiting<T = Instant> {
    waiters: Arc<Waiters<T>>,
    partition: PartitionId,
    waiter: Arc<Waiter>,
    is_spent: bool,
}

impl<T> fmt::Debug for Waiting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("partition", &self.partition).finish_non_exhaustive()
    }
}

impl<T> Waiting<T> {
    /// Waits until woken.
    pub async fn woken(&self) {
        self.waiters.changed.notify_one(); // when the next message is due may not be known
        self.waiter.notify.notified().await;
    }

    /// Notes that the messages that it was woken for have been looked for: no other waiter need be woken for
    /// them.
    pub fn spend(&mut self) {
        self.is_spent = true;
    }

    /// Calls `claim` whenever woken, until it returns something. Returns nothing once the handle is `closed`,
    /// the pull is asked to `stop`, or its wait is `over`; a waiter that is woken at the very end of the wait
    /// still claims. If dropped, it leaves the line and passes its wake-up on.
    ///
    /// # Errors
    /// The first error of `claim`.
    pub async fn claim<F>(
        mut self,
        closed: &CancellationToken,
        stop: &CancellationToken,
        over: impl Future<Output = ()>,
        claim: impl Fn() -> F,
    ) -> Result<Vec<RawDelivery>>
    where
        F: Future<Output = Result<Vec<RawDelivery>>>,
    {
        let mut over = std::pin::pin!(over);
        loop {
            tokio::select! {
                biased;
                () = closed.cancelled() => return Ok(Vec::new()),
                () = stop.cancelled() => return Ok(Vec::new()),
                () = self.woken() => {}
                () = &mut over => return Ok(Vec::new()),
            }
            // Join before looking, so that a wake-up for what comes meanwhile is not taken for the earlier
            // one.
            let next = self.waiters.join(&self.partition);
            let deliveries = claim().await?;
            self.spend();
            self = next;
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
        }
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        let mut lines = self.waiters.lines();
        let Some(line) = lines.get_mut(&self.partition) else { return };
        line.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        if self.waiter.woken.load(Ordering::Acquire) && !self.is_spent {
            line.wake(1);
        }
        if line.waiters.is_empty() {
            lines.remove(&self.partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicUsize;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::error::{Error, ErrorKind};

    fn parts() -> (Arc<Waiters<Instant>>, PartitionId) {
        (Arc::new(Waiters::new()), PartitionId::new("p").unwrap())
    }

    fn is_woken(waiting: &Waiting<Instant>) -> bool {
        waiting.woken().now_or_never().is_some()
    }

    #[test]
    fn n_messages_wake_n_waiters_in_the_order_they_came() {
        let (waiters, p) = parts();
        let line: Vec<_> = (0..3).map(|_| waiters.join(&p)).collect();
        waiters.wake(&p, 2);
        assert_eq!(line.iter().map(is_woken).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn a_waiter_that_leaves_woken_passes_it_on_unless_spent() {
        let (waiters, p) = parts();
        let (first, mut second, third) = (waiters.join(&p), waiters.join(&p), waiters.join(&p));
        waiters.wake(&p, 1);
        drop(first);
        assert!(is_woken(&second));
        second.spend();
        drop(second);
        assert!(!is_woken(&third));
    }

    #[test]
    fn what_is_due_wakes_one_and_an_empty_line_is_gone() {
        let (waiters, p) = parts();
        let (first, second) = (waiters.join(&p), waiters.join(&p));
        let (start, hour) = (Instant::now(), Duration::from_hours(1));
        waiters.due(&p, start + hour);
        waiters.due(&p, start + 2 * hour);
        waiters.fire(start);
        assert!(!is_woken(&first));
        assert_eq!(waiters.next_due(), Some(start + hour));
        waiters.fire(start + 2 * hour);
        assert_eq!((is_woken(&first), is_woken(&second)), (true, false));
        assert_eq!(waiters.next_due(), None);
        drop((first, second));
        assert!(waiters.is_empty() && !waiters.has(&p));
    }

    #[test]
    fn hints_add_up_to_all_that_is_ready_and_the_earliest_time() {
        let mut hint = Hint::default();
        assert!(hint.is_empty());
        for other in [Hint::ready(usize::MAX), Hint::due(Duration::from_secs(2)), Hint::ready(1)] {
            hint.add(other);
        }
        hint.add(Hint::due(Duration::from_secs(1)));
        assert_eq!(hint, Hint { ready: usize::MAX, due: Some(Duration::from_secs(1)) });
        let (waiters, p) = parts();
        let waiting = waiters.join(&p);
        waiters.hint(&p, Hint::due(Duration::MAX));
        assert_eq!((waiters.next_due(), is_woken(&waiting)), (None, false), "that is never");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_claims_when_woken_until_there_is_something_and_a_failed_claim_passes_the_wake_up_on() {
        let (waiters, p) = parts();
        let (first, second, never) = (waiters.join(&p), waiters.join(&p), CancellationToken::new());
        waiters.wake(&p, 1);
        let failed = first
            .claim(&never, &never, pending(), || async { Err(Error::new(ErrorKind::Unavailable, "gone")) });
        assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(is_woken(&second), "what the failed one was woken for is still there");

        let (third, claims) = (waiters.join(&p), AtomicUsize::new(0));
        let over = tokio::time::sleep(Duration::from_secs(5));
        let claim = || async {
            claims.fetch_add(1, Ordering::Relaxed);
            Ok(Vec::new())
        };
        drop(second);
        assert_eq!(third.claim(&never, &never, over, claim).await.unwrap().len(), 0);
        assert_eq!(claims.into_inner(), 1, "woken once, it looked once, and waited on");
        assert!(waiters.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_watch_fires_what_is_due_looks_in_its_turn_and_at_once_after_nothing_was_found() {
        let (waiters, p) = parts();
        let looks = AtomicUsize::new(0);
        let look = || async {
            looks.fetch_add(1, Ordering::Relaxed);
            Duration::from_secs(10)
        };
        let seen = || looks.load(Ordering::Relaxed);
        let check = async {
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!(seen(), 0, "nobody waits");
            let waiting = waiters.join(&p);
            waiters.hint(&p, Hint::due(Duration::from_secs(3)));
            waiting.woken().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let before = seen();
            waiters.found_nothing();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(seen(), before + 1, "at once, and once");
            let _waiting = waiters.join(&p);
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert_eq!(seen(), before + 4, "every ten seconds");
        };
        tokio::select! {
            () = waiters.watch(Duration::from_secs(10), look) => unreachable!("it never ends"),
            () = check => {}
        }
    }
}
