//! A partition under load, for tests that harm the broker meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, PushQueueStorage, Settlement};
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome, RetryClass};
use anyqueue_rabbitmq::RabbitMqQueue;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::common::{LEASE, messages, push, settle, take};

const BATCH: usize = 100;
/// No call takes longer: its own limit is 10 seconds at most, for connecting and for each answer.
const CALL: Duration = Duration::from_secs(30);
/// Until a failed call is tried again. A call fails at once while there is no broker, and trying takes processor time from its start.
const PAUSE: Duration = Duration::from_millis(10);
/// For a load on a busy machine.
const LONG: Duration = Duration::from_mins(3);
/// One load at a time: each keeps the machine busy, and limits are of a broker that has it.
static TURN: Semaphore = Semaphore::const_new(1);
/// What has not come is lost when nothing has come for so long: longer than any lease, reconnection or stalled machine takes.
const LOST_AFTER: Duration = Duration::from_secs(45);

/// How many there were, and when the last was.
#[derive(Default)]
pub(crate) struct Progress {
    last: Mutex<Option<Instant>>,
    count: AtomicUsize,
}

impl Progress {
    fn note(&self, count: usize) {
        self.count.fetch_add(count, Ordering::Relaxed);
        *self.last.lock().unwrap() = Some(Instant::now());
    }

    fn since(&self, time: Instant) -> bool {
        self.last.lock().unwrap().is_some_and(|at| at > time)
    }
}

/// One partition under load: messages are pushed in batches, and each again until it is acknowledged, while another handle takes
/// and removes them; until it is enough, and all that was acknowledged has come and nothing else does.
pub(crate) struct Load {
    stored: Arc<Progress>,
    taken: Arc<Progress>,
    enough: CancellationToken,
    pushing: JoinHandle<HashSet<MessageId>>,
    pulling: JoinHandle<HashSet<MessageId>>,
    _turn: SemaphorePermit<'static>,
}

impl Load {
    /// Begins once the partition's queue is old enough to survive a `kill -9`.
    pub(crate) async fn start(from: &RabbitMqQueue, to: &RabbitMqQueue, partition: &PartitionId) -> Self {
        let turn = TURN.acquire().await.unwrap();
        push(from, partition, &messages(1)).await;
        let first = take(to, partition, 1).await;
        settle(to, &first, Action::Remove).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let (stored, taken) = (Arc::<Progress>::default(), Arc::<Progress>::default());
        let enough = CancellationToken::new();
        let pushing = push_all(from.clone(), partition.clone(), Arc::clone(&stored), enough.clone());
        let (pushed, done) = watch::channel(None);
        let pushing = tokio::spawn(async move {
            let acknowledged = pushing.await;
            let _ = pushed.send(Some(acknowledged.clone()));
            acknowledged
        });
        let pulling = tokio::spawn(pull_all(to.clone(), partition.clone(), Arc::clone(&taken), done));
        Self { stored, taken, enough, pushing, pulling, _turn: turn }
    }

    /// Waits until so many are stored.
    pub(crate) async fn reach(&self, count: usize) {
        let start = Instant::now();
        while self.stored.count.load(Ordering::Relaxed) < count {
            assert!(!self.pushing.is_finished(), "the load ended early");
            assert!(start.elapsed() < LONG, "{count} messages are not stored");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until pushes and pulls have gone on from now, and tells how long that took.
    pub(crate) async fn go_on(&self, limit: Duration) -> Duration {
        let start = Instant::now();
        while !(self.stored.since(start) && self.taken.since(start)) {
            let (stored, taken) = (self.stored.since(start), self.taken.since(start));
            assert!(start.elapsed() < limit, "the handles do not go on: pushed {stored}, pulled {taken}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        start.elapsed()
    }

    /// Ends the load once so many are stored, and checks that all that was acknowledged came, and nothing else.
    pub(crate) async fn account(self, least: usize) {
        self.reach(least).await;
        self.enough.cancel();
        let acknowledged = self.pushing.await.unwrap();
        let seen = self.pulling.await.unwrap();
        assert!(acknowledged.len() >= least);
        let lost = acknowledged.difference(&seen).count();
        assert_eq!(lost, 0, "acknowledged messages were lost");
        assert_eq!(seen.len(), acknowledged.len(), "messages came that nobody pushed");
    }
}

async fn push_all(
    queue: RabbitMqQueue,
    partition: PartitionId,
    progress: Arc<Progress>,
    enough: CancellationToken,
) -> HashSet<MessageId> {
    let mut acknowledged = HashSet::new();
    while !enough.is_cancelled() {
        let mut left: Vec<_> = (0..BATCH).map(|_| MessageData::new("load")).collect();
        while !left.is_empty() {
            let pushed = tokio::time::timeout(CALL, queue.push(&partition, &left));
            let mut stored = HashSet::new();
            for answer in pushed.await.expect("a push hangs") {
                match answer {
                    Ok(PushOutcome::Stored(id)) => drop(stored.insert(id)),
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => assert_ne!(error.retry(), RetryClass::Never, "{error:?}"),
                }
            }
            match stored.len() {
                0 => tokio::time::sleep(PAUSE).await,
                count => progress.note(count),
            }
            left.retain(|message| !stored.contains(&message.id()));
            acknowledged.extend(stored);
        }
    }
    acknowledged
}

async fn pull_all(
    queue: RabbitMqQueue,
    partition: PartitionId,
    progress: Arc<Progress>,
    pushed: watch::Receiver<Option<HashSet<MessageId>>>,
) -> HashSet<MessageId> {
    let mut seen = HashSet::new();
    let (mut last, mut is_empty) = (Instant::now(), false);
    let is_all = |seen: &HashSet<_>| pushed.borrow().as_ref().is_some_and(|pushed| pushed.is_subset(seen));
    let is_lost = |last: Instant| pushed.borrow().is_some() && last.elapsed() > LOST_AFTER;
    loop {
        if (is_empty && is_all(&seen)) || is_lost(last) {
            return seen;
        }
        let request = PullRequest::new(BATCH, Duration::from_millis(500), LEASE);
        let pulled = tokio::time::timeout(CALL, queue.pull(&partition, request)).await.expect("a pull hangs");
        let held = match pulled {
            Ok(held) => held,
            Err(error) => {
                assert_ne!(error.retry(), RetryClass::Never, "{error:?}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        is_empty = held.is_empty();
        if is_empty {
            continue;
        }
        last = Instant::now();
        progress.note(held.len());
        seen.extend(held.iter().map(|delivery| delivery.lease.id));
        let settlements: Vec<_> =
            held.iter().map(|delivery| Settlement::new(delivery.lease.clone(), Action::Remove)).collect();
        tokio::time::timeout(CALL, queue.settle(&settlements)).await.expect("a settlement hangs");
    }
}
