//! Joins simultaneous pulls from one queue into few calls: a claim of twenty costs a backend little more than
//! a claim of one.
//!
//! Only pulls that do not wait are joined, so no pull waits for a message that belongs to another. Each line
//! has one call under way at a time; pulls that arrive meanwhile join the next.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Delivery, Error, ErrorKind, PartitionId, Queue, Result};
use tokio::sync::oneshot;

use crate::wire::MAX_ITEMS;

/// For this long after a pull has found something, messages are said to flow: a new pull first looks at once,
/// together with others, before it waits. Where nothing flows, that would cost one more call for each pull.
const FLOWS: Duration = Duration::from_millis(250);

/// The pulls that can share a call: same queue, same lease.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) partition: PartitionId,
    pub(crate) lease: Option<Duration>,
}

/// A pull that does not wait, for at most `max` deliveries.
struct Asked {
    max: usize,
    answer: oneshot::Sender<Result<Vec<Delivery>>>,
}

#[derive(Default)]
struct Standing {
    asked: VecDeque<Asked>,
    is_served: bool,
    found_at: Option<Instant>,
}

/// The place where pulls wait for their turn.
#[derive(Clone)]
pub(crate) struct Desk {
    queue: Queue,
    // A std mutex: it is held for a few instructions and never across an await.
    lines: Arc<Mutex<HashMap<Line, Standing>>>,
}

impl Desk {
    pub(crate) fn of(queue: Queue) -> Self {
        Self { queue, lines: Arc::default() }
    }

    /// Whether messages flow in this line, so that looking before waiting is worth it.
    pub(crate) fn flows(&self, line: &Line) -> bool {
        self.lines().get(line).is_some_and(Standing::flows)
    }

    /// Takes what is there now, together with all others who ask at this moment. If the future is dropped,
    /// its share goes to others, or back.
    pub(crate) async fn take(&self, line: &Line, max: usize) -> Result<Vec<Delivery>> {
        let (answer, answered) = oneshot::channel();
        if self.stand(line, Asked { max, answer }) {
            // Not in this request: if it were dropped, the others would be dropped with it.
            tokio::spawn(self.clone().serve(line.clone()));
        }
        let over = || Error::new(ErrorKind::Closed, "the service is shutting down");
        answered.await.unwrap_or_else(|_| Err(over()))
    }

    /// Joins the line, and returns whether nobody serves it yet.
    fn stand(&self, line: &Line, asked: Asked) -> bool {
        let mut lines = self.lines();
        let standing = lines.entry(line.clone()).or_default();
        standing.asked.push_back(asked);
        !std::mem::replace(&mut standing.is_served, true)
    }

    /// Waits until something is there. Such a pull is not joined with others, because what arrives belongs to
    /// the one that has waited longest.
    pub(crate) async fn wait(&self, line: &Line, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let got = self.pull(line, max, wait).await?;
        if !got.is_empty() {
            self.found(line);
        }
        Ok(got)
    }

    /// Forgets lines in which nobody stands and nothing flows.
    pub(crate) fn sweep(&self) {
        self.lines().retain(|_, standing| standing.is_served || standing.flows());
    }

    /// Serves a line until nobody stands in it.
    async fn serve(self, line: Line) {
        let serving = Serving { desk: &self, line: &line };
        while let Some(group) = self.next_group(&line) {
            let wanted = group.iter().map(|asked| asked.max).sum();
            let got = self.pull(&line, wanted, Duration::ZERO).await;
            if got.as_ref().is_ok_and(|got| !got.is_empty()) {
                self.found(&line);
            }
            hand_out(group, got);
        }
        std::mem::forget(serving);
    }

    fn found(&self, line: &Line) {
        self.lines().entry(line.clone()).or_default().found_at = Some(Instant::now());
    }

    /// Takes the next pulls, as many as one call can serve. If the line is empty, returns `None`, and the
    /// line is no longer served.
    fn next_group(&self, line: &Line) -> Option<Vec<Asked>> {
        let mut lines = self.lines();
        let standing = lines.get_mut(line)?;
        standing.asked.retain(|asked| !asked.answer.is_closed());
        let mut room = MAX_ITEMS;
        let fit = standing.asked.iter().take_while(|asked| {
            let fits = asked.max <= room;
            room = room.saturating_sub(asked.max);
            fits
        });
        let fit = fit.count();
        let group: Vec<Asked> = standing.asked.drain(..fit).collect();
        standing.is_served = !group.is_empty();
        standing.is_served.then_some(group)
    }

    async fn pull(&self, line: &Line, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let pull = self.queue.pull(&line.partition).max(max).wait(wait).keep_alive(false);
        match line.lease {
            Some(lease) => pull.lease(lease),
            None => pull,
        }
        .into_future()
        .await
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Line, Standing>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever serves a line. If it is cut off, it sends away all who stand in the line, and the next to arrive
/// serves it again.
struct Serving<'a> {
    desk: &'a Desk,
    line: &'a Line,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.desk.lines().remove(self.line);
    }
}

impl Standing {
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
        desk: Desk,
        line: Line,
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
            let line = Line { partition: PartitionId::new("jobs").unwrap(), lease: None };
            Self { storage, desk: Desk::of(queue), line, ids }
        }

        fn asks(&self, max: usize) -> JoinHandle<Result<Vec<Delivery>>> {
            let (desk, line) = (self.desk.clone(), self.line.clone());
            tokio::spawn(async move { desk.take(&line, max).await })
        }

        /// Asks, and returns once the pull stands behind a call that is under way.
        async fn ask(&self, max: usize) -> JoinHandle<Result<Vec<Delivery>>> {
            let before = self.standing();
            let asks = self.asks(max);
            while self.standing() == before {
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

        fn standing(&self) -> usize {
            self.desk.lines().get(&self.line).map_or(0, |standing| standing.asked.len())
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
            got.extend(bed.desk.take(&bed.line, 1).await.unwrap());
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
        assert_eq!(bed.desk.take(&bed.line, 5).await.unwrap().len(), 2);
        assert_eq!(*bed.storage.asked.lock().unwrap(), [1, 5]);
    }

    #[tokio::test]
    async fn a_line_whose_call_was_cut_off_lets_everybody_go_and_is_served_again() {
        let bed = Bed::with(1).await;
        let (answer, answered) = oneshot::channel();
        assert!(bed.desk.stand(&bed.line, Asked { max: 1, answer }));
        let serving = tokio::spawn(bed.desk.clone().serve(bed.line.clone()));
        bed.begins(0).await;
        let stands = bed.ask(1).await;
        serving.abort();
        serving.await.unwrap_err();
        answered.await.unwrap_err();
        stands.await.unwrap().unwrap_err();
        bed.storage.gate.add_permits(100);
        while bed.desk.take(&bed.line, 1).await.unwrap().is_empty() {}
    }

    #[tokio::test]
    async fn what_is_pulled_in_another_way_does_not_share_a_call() {
        let bed = Bed::with(2).await;
        let first = bed.begin(1).await;
        let before = bed.storage.begun.load(SeqCst);
        let other = Line { lease: Some(Duration::from_secs(7)), ..bed.line.clone() };
        let (desk, line) = (bed.desk.clone(), other.clone());
        let second = tokio::spawn(async move { desk.take(&line, 1).await });
        bed.begins(before).await;
        bed.storage.gate.add_permits(100);
        assert_eq!(first.await.unwrap().unwrap().len() + second.await.unwrap().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn messages_flow_for_a_moment_after_one_was_found_and_then_the_line_is_forgotten() {
        let bed = Bed::with(1).await;
        bed.storage.gate.add_permits(100);
        assert!(!bed.desk.flows(&bed.line), "nothing was found yet");
        assert_eq!(bed.desk.wait(&bed.line, 1, Duration::from_secs(9)).await.unwrap().len(), 1);
        bed.desk.sweep();
        assert!(bed.desk.flows(&bed.line));
        let past = Instant::now().checked_sub(FLOWS);
        bed.desk.lines().get_mut(&bed.line).unwrap().found_at = past;
        assert!(!bed.desk.flows(&bed.line));
        bed.desk.sweep();
        assert!(bed.desk.lines().is_empty());
    }
}
