//! Joins simultaneous pulls from one queue into few calls: a claim of twenty costs a backend little more than
//! a claim of one.
//!
//! Only pulls that do not wait are joined, so no pull waits for a message that belongs to another. Pulls that
//! can share a call have one under way at a time; those that arrive meanwhile join the next.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Delivery, Error, ErrorKind, PartitionId, Queue, Result};
use tokio::sync::oneshot;

use crate::wire::MAX_ITEMS;

/// For this long after a pull has found something, messages are said to flow: a new pull first looks at once,
/// together with others, before it waits. Where nothing flows, that would cost one more call for each pull.
const FLOWS: Duration = Duration::from_millis(250);

/// What pulls have in common that can share a call.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PullKey {
    pub(crate) partition: PartitionId,
    pub(crate) lease: Option<Duration>,
}

/// A pull that does not wait, for at most `max` deliveries.
struct Asked {
    max: usize,
    answer: oneshot::Sender<Result<Vec<Delivery>>>,
}

/// The pulls that wait for the next call.
#[derive(Default)]
struct PendingPulls {
    asked: VecDeque<Asked>,
    is_served: bool,
    found_at: Option<Instant>,
}

/// Joins pulls into calls.
#[derive(Clone)]
pub(crate) struct PullCoalescer {
    queue: Queue,
    // A std mutex: it is held for a few instructions and never across an await.
    pending: Arc<Mutex<HashMap<PullKey, PendingPulls>>>,
}

impl PullCoalescer {
    pub(crate) fn of(queue: Queue) -> Self {
        Self { queue, pending: Arc::default() }
    }

    /// Whether messages flow here, so that looking before waiting is worth it.
    pub(crate) fn flows(&self, key: &PullKey) -> bool {
        self.pending().get(key).is_some_and(PendingPulls::flows)
    }

    /// Takes what is there now, together with all others who ask at this moment. If the future is dropped,
    /// its share goes to others, or back.
    pub(crate) async fn take(&self, key: &PullKey, max: usize) -> Result<Vec<Delivery>> {
        let (answer, answered) = oneshot::channel();
        if self.join(key, Asked { max, answer }) {
            // Not in this request: if it were dropped, the others would be dropped with it.
            tokio::spawn(self.clone().serve(key.clone()));
        }
        let over = || Error::new(ErrorKind::Closed, "the service is shutting down");
        answered.await.unwrap_or_else(|_| Err(over()))
    }

    /// Joins the others, and returns whether nobody serves them yet.
    fn join(&self, key: &PullKey, asked: Asked) -> bool {
        let mut pending = self.pending();
        let pulls = pending.entry(key.clone()).or_default();
        pulls.asked.push_back(asked);
        !std::mem::replace(&mut pulls.is_served, true)
    }

    /// Waits until something is there. Such a pull is not joined with others, because what arrives belongs to
    /// the one that has waited longest.
    pub(crate) async fn wait(&self, key: &PullKey, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let got = self.pull(key, max, wait).await?;
        if !got.is_empty() {
            self.found(key);
        }
        Ok(got)
    }

    /// Forgets where no pull waits and nothing flows.
    pub(crate) fn sweep(&self) {
        self.pending().retain(|_, pulls| pulls.is_served || pulls.flows());
    }

    /// Makes calls until no pull waits.
    async fn serve(self, key: PullKey) {
        let serving = Serving { coalescer: &self, key: &key };
        while let Some(group) = self.next_group(&key) {
            let wanted = group.iter().map(|asked| asked.max).sum();
            let got = self.pull(&key, wanted, Duration::ZERO).await;
            if got.as_ref().is_ok_and(|got| !got.is_empty()) {
                self.found(&key);
            }
            hand_out(group, got);
        }
        std::mem::forget(serving);
    }

    fn found(&self, key: &PullKey) {
        self.pending().entry(key.clone()).or_default().found_at = Some(Instant::now());
    }

    /// Takes the next pulls, as many as one call can serve. If there are none, returns `None`, and they are no
    /// longer served.
    fn next_group(&self, key: &PullKey) -> Option<Vec<Asked>> {
        let mut pending = self.pending();
        let pulls = pending.get_mut(key)?;
        pulls.asked.retain(|asked| !asked.answer.is_closed());
        let mut room = MAX_ITEMS;
        let fit = pulls.asked.iter().take_while(|asked| {
            let fits = asked.max <= room;
            room = room.saturating_sub(asked.max);
            fits
        });
        let fit = fit.count();
        let group: Vec<Asked> = pulls.asked.drain(..fit).collect();
        pulls.is_served = !group.is_empty();
        pulls.is_served.then_some(group)
    }

    async fn pull(&self, key: &PullKey, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let pull = self.queue.pull(&key.partition).max(max).wait(wait).keep_alive(false);
        match key.lease {
            Some(lease) => pull.lease(lease),
            None => pull,
        }
        .into_future()
        .await
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<PullKey, PendingPulls>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever makes the calls. If it is cut off, the pulls that wait end with an error, and the next to arrive
/// makes calls again.
struct Serving<'a> {
    coalescer: &'a PullCoalescer,
    key: &'a PullKey,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.coalescer.pending().remove(self.key);
    }
}

impl PendingPulls {
    fn flows(&self) -> bool {
        self.found_at.is_some_and(|at| at.elapsed() < FLOWS)
    }
}

/// Gives each its share, in the order of arrival. What nobody takes is dropped, and goes back as it was.
fn hand_out(group: Vec<Asked>, got: Result<Vec<Delivery>>) {
    let mut got = got.map(VecDeque::from);
    for Asked { max, answer } in group {
        let part = got.as_mut().map_err(|error| error.clone());
        let part = part.map(|got| got.drain(..max.min(got.len())).collect::<Vec<_>>());
        // If a receiver has left meanwhile, its share goes to the next.
        if let (Err(Ok(unwanted)), Ok(got)) = (answer.send(part), &mut got) {
            unwanted.into_iter().rev().for_each(|delivery| got.push_front(delivery));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use anyqueue::adapter::{Forward, PullQueueStorage as _, PullRequest, RawDelivery, Storage, async_trait};
    use anyqueue::{MessageData, MessageId};
    use anyqueue_memory::MemoryQueue;
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    use super::*;

    /// Each pull waits for a permit.
    #[derive(Debug)]
    struct Gated {
        inner: MemoryQueue,
        gate: Semaphore,
        begun: AtomicUsize,
        asked: Mutex<Vec<usize>>,
    }

    #[async_trait]
    impl Forward for Gated {
        fn inner(&self) -> &dyn Storage {
            &self.inner
        }

        async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
            self.asked.lock().unwrap().push(request.max);
            self.begun.fetch_add(1, SeqCst);
            self.gate.acquire().await.unwrap().forget();
            self.inner.pull(partition, request).await
        }
    }

    struct Bed {
        storage: Arc<Gated>,
        coalescer: PullCoalescer,
        key: PullKey,
        ids: HashSet<MessageId>,
    }

    impl Bed {
        async fn with(messages: usize) -> Self {
            let (gate, begun) = (Semaphore::new(0), AtomicUsize::new(0));
            let (inner, asked) = (MemoryQueue::new(), Mutex::default());
            let storage = Arc::new(Gated { inner, gate, begun, asked });
            let shared: Arc<dyn Storage> = storage.clone();
            let queue = Queue::new(shared).unwrap();
            let messages: Vec<_> = (0..messages).map(|_| MessageData::new("x")).collect();
            let ids = messages.iter().map(MessageData::id).collect();
            for pushed in queue.push_many("jobs", messages).await.unwrap() {
                pushed.unwrap();
            }
            let key = PullKey { partition: PartitionId::new("jobs").unwrap(), lease: None };
            Self { storage, coalescer: PullCoalescer::of(queue), key, ids }
        }

        fn asks(&self, max: usize) -> JoinHandle<Result<Vec<Delivery>>> {
            let (coalescer, key) = (self.coalescer.clone(), self.key.clone());
            tokio::spawn(async move { coalescer.take(&key, max).await })
        }

        /// Asks, and returns once the pull waits behind a call that is under way.
        async fn ask(&self, max: usize) -> JoinHandle<Result<Vec<Delivery>>> {
            let before = self.waiting();
            let asks = self.asks(max);
            while self.waiting() == before {
                tokio::task::yield_now().await;
            }
            asks
        }

        /// Asks, and returns once its call has begun.
        async fn begin(&self, max: usize) -> JoinHandle<Result<Vec<Delivery>>> {
            let before = self.storage.begun.load(SeqCst);
            let asks = self.asks(max);
            self.begins(before).await;
            asks
        }

        async fn begins(&self, before: usize) {
            while self.storage.begun.load(SeqCst) == before {
                tokio::task::yield_now().await;
            }
        }

        fn waiting(&self) -> usize {
            self.coalescer.pending().get(&self.key).map_or(0, |pulls| pulls.asked.len())
        }
    }

    #[tokio::test]
    async fn who_comes_while_a_call_is_under_way_shares_the_next() {
        let bed = Bed::with(10).await;
        let mut asking = vec![bed.begin(1).await];
        for _ in 0..5 {
            asking.push(bed.ask(2).await);
        }
        bed.storage.gate.add_permits(100);
        let (mut counts, mut seen) = (Vec::new(), HashSet::new());
        for asks in asking {
            let got = asks.await.unwrap().unwrap();
            counts.push(got.len());
            seen.extend(got.iter().map(|one| one.message().id()));
        }
        assert_eq!(counts, [1, 2, 2, 2, 2, 1], "who comes first is served first");
        assert_eq!(seen, bed.ids);
        assert_eq!(*bed.storage.asked.lock().unwrap(), [1, 10]);
    }

    #[tokio::test]
    async fn the_part_of_one_who_left_goes_to_the_next_or_back() {
        let bed = Bed::with(3).await;
        let first = bed.begin(1).await;
        let before = bed.storage.begun.load(SeqCst);
        let (leaves, stays) = (bed.ask(1).await, bed.ask(1).await);
        bed.storage.gate.add_permits(1);
        bed.begins(before).await;
        leaves.abort();
        leaves.await.unwrap_err();
        bed.storage.gate.add_permits(100);
        let mut got = first.await.unwrap().unwrap();
        got.extend(stays.await.unwrap().unwrap());
        assert_eq!(got.len(), 2);
        while got.len() < 3 {
            got.extend(bed.coalescer.take(&bed.key, 1).await.unwrap());
        }
        assert_eq!(got.iter().map(|one| one.message().id()).collect::<HashSet<_>>(), bed.ids);
    }

    #[tokio::test]
    async fn who_left_before_the_call_began_is_not_asked_for() {
        let bed = Bed::with(3).await;
        let (first, leaves) = (bed.begin(1).await, bed.ask(2).await);
        leaves.abort();
        leaves.await.unwrap_err();
        bed.storage.gate.add_permits(100);
        let held = first.await.unwrap().unwrap();
        assert_eq!(held.len(), 1);
        assert_eq!(bed.coalescer.take(&bed.key, 5).await.unwrap().len(), 2);
        assert_eq!(*bed.storage.asked.lock().unwrap(), [1, 5]);
    }

    #[tokio::test]
    async fn pulls_whose_call_was_cut_off_end_and_the_next_are_served_again() {
        let bed = Bed::with(1).await;
        let (answer, answered) = oneshot::channel();
        assert!(bed.coalescer.join(&bed.key, Asked { max: 1, answer }));
        let serving = tokio::spawn(bed.coalescer.clone().serve(bed.key.clone()));
        bed.begins(0).await;
        let waits = bed.ask(1).await;
        serving.abort();
        serving.await.unwrap_err();
        answered.await.unwrap_err();
        waits.await.unwrap().unwrap_err();
        bed.storage.gate.add_permits(100);
        while bed.coalescer.take(&bed.key, 1).await.unwrap().is_empty() {}
    }

    #[tokio::test]
    async fn what_is_pulled_in_another_way_does_not_share_a_call() {
        let bed = Bed::with(2).await;
        let first = bed.begin(1).await;
        let before = bed.storage.begun.load(SeqCst);
        let other = PullKey { lease: Some(Duration::from_secs(7)), ..bed.key.clone() };
        let (coalescer, key) = (bed.coalescer.clone(), other.clone());
        let second = tokio::spawn(async move { coalescer.take(&key, 1).await });
        bed.begins(before).await;
        bed.storage.gate.add_permits(100);
        assert_eq!(first.await.unwrap().unwrap().len() + second.await.unwrap().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn messages_flow_for_a_moment_after_one_was_found_and_then_the_place_is_forgotten() {
        let bed = Bed::with(1).await;
        bed.storage.gate.add_permits(100);
        assert!(!bed.coalescer.flows(&bed.key), "nothing was found yet");
        assert_eq!(bed.coalescer.wait(&bed.key, 1, Duration::from_secs(9)).await.unwrap().len(), 1);
        bed.coalescer.sweep();
        assert!(bed.coalescer.flows(&bed.key));
        let past = Instant::now().checked_sub(FLOWS);
        bed.coalescer.pending().get_mut(&bed.key).unwrap().found_at = past;
        assert!(!bed.coalescer.flows(&bed.key));
        bed.coalescer.sweep();
        assert!(bed.coalescer.pending().is_empty());
    }
}
