//! A server that dies under load, keeps what it acknowledged, and finds the same clients at work again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, Settlement,
};
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome, RetryClass};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Fault, Proxy, Redis};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::common::{Bed, part};

const MESSAGES: usize = 50_000;
const BATCH: usize = 100;
/// Short, so that what a killed claim took comes back soon.
const LEASE: Duration = Duration::from_secs(2);
/// What a busy machine adds. Handles that do not go on by themselves never do.
const LATE: Duration = Duration::from_secs(10);
const RECOVERY: Duration = Duration::from_secs(5).saturating_add(LATE);
const CALL: Duration = Duration::from_mins(1);

/// What the last answer was, for whoever restarts the server.
#[derive(Default)]
pub(crate) struct Progress {
    answered: std::sync::Mutex<Option<Instant>>,
    pub(crate) count: AtomicUsize,
}

impl Progress {
    fn note(&self, count: usize) {
        self.count.fetch_add(count, Ordering::Relaxed);
        *self.answered.lock().unwrap() = Some(Instant::now());
    }

    pub(crate) fn since(&self, time: Instant) -> bool {
        self.answered.lock().unwrap().is_some_and(|at| at > time)
    }
}

/// One partition under load: messages are pushed in batches, and each batch again until it is acknowledged, while another handle
/// takes and removes them until nothing comes any more.
pub(crate) struct Load {
    pub(crate) stored: Arc<Progress>,
    pub(crate) taken: Arc<Progress>,
    pushing: JoinHandle<HashSet<MessageId>>,
    pulling: JoinHandle<HashSet<MessageId>>,
}

impl Load {
    pub(crate) fn start(from: &RedisQueue, to: &RedisQueue, partition: &PartitionId, count: usize) -> Self {
        let (stored, taken) = (Arc::<Progress>::default(), Arc::<Progress>::default());
        let pushing = push_all(from.clone(), partition.clone(), Arc::clone(&stored), count);
        let (pushed, done) = tokio::sync::watch::channel(false);
        let pushing = tokio::spawn(async move {
            let acknowledged = pushing.await;
            let _ = pushed.send(true);
            acknowledged
        });
        let pulling = tokio::spawn(pull_all(to.clone(), partition.clone(), Arc::clone(&taken), done));
        Self { stored, taken, pushing, pulling }
    }

    pub(crate) fn is_pushed(&self) -> bool {
        self.pushing.is_finished()
    }

    /// Whether all was pushed, and taken.
    pub(crate) fn is_over(&self) -> bool {
        self.is_pushed() && self.pulling.is_finished()
    }

    /// Those that were acknowledged, and those that came.
    pub(crate) async fn end(self) -> (HashSet<MessageId>, HashSet<MessageId>) {
        (self.pushing.await.unwrap(), self.pulling.await.unwrap())
    }
}

async fn push_all(
    queue: RedisQueue,
    partition: PartitionId,
    progress: Arc<Progress>,
    count: usize,
) -> HashSet<MessageId> {
    let mut acknowledged = HashSet::new();
    for _ in 0..count / BATCH {
        let mut left: Vec<_> = (0..BATCH).map(|_| MessageData::new("load")).collect();
        while !left.is_empty() {
            let pushed = tokio::time::timeout(CALL, queue.push(&partition, &left));
            let mut stored = HashSet::new();
            for (message, answer) in left.iter().zip(pushed.await.expect("a push hangs")) {
                match answer {
                    Ok(
                        PushOutcome::Stored(id)
                        | PushOutcome::Duplicate(Some(id))
                        | PushOutcome::Replaced(id),
                    ) => drop(stored.insert(id)),
                    Ok(PushOutcome::Duplicate(None)) => drop(stored.insert(message.id())),
                    Err(error) => assert_ne!(error.retry(), RetryClass::Never, "{error}"),
                }
            }
            match stored.len() {
                0 => tokio::time::sleep(Duration::from_millis(1)).await,
                count => progress.note(count),
            }
            left.retain(|message| !stored.contains(&message.id()));
            acknowledged.extend(stored);
        }
    }
    acknowledged
}

async fn pull_all(
    queue: RedisQueue,
    partition: PartitionId,
    progress: Arc<Progress>,
    pushed: watch::Receiver<bool>,
) -> HashSet<MessageId> {
    let mut seen = HashSet::new();
    let mut last = Instant::now();
    loop {
        let is_pushed = *pushed.borrow();
        // Until nothing is left. What is lost is not left, either, and is missed later.
        if is_pushed && last.elapsed() >= 2 * LEASE && is_empty(&queue, &partition).await {
            return seen;
        }
        let request = PullRequest::new(BATCH, Duration::from_millis(500), LEASE);
        let pulled = tokio::time::timeout(CALL, queue.pull(&partition, request)).await.expect("a pull hangs");
        let held = pulled.unwrap_or_else(|error| {
            assert_ne!(error.retry(), RetryClass::Never, "{error}");
            Vec::new()
        });
        if held.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        last = Instant::now();
        progress.note(held.len());
        seen.extend(held.iter().map(|delivery| delivery.lease.id));
        let settlements: Vec<_> =
            held.iter().map(|delivery| Settlement::new(delivery.lease.clone(), Action::Remove)).collect();
        let settled =
            tokio::time::timeout(CALL, queue.settle(&settlements)).await.expect("a settlement hangs");
        for error in settled.into_iter().filter_map(Result::err) {
            assert_ne!(error.retry(), RetryClass::Never, "{error}");
        }
    }
}

async fn is_empty(queue: &RedisQueue, partition: &PartitionId) -> bool {
    let counts = queue.counts(partition).await;
    counts.is_ok_and(|counts| (counts.ready, counts.leased) == (Some(0), Some(0)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_twice_under_load_it_loses_nothing_and_the_same_handles_go_on() {
    let Some(bed) = Bed::with(Redis::new().setting("appendfsync", "always")).await else { return };
    let (first, second) = (bed.open().await, bed.open().await);
    let load = Load::start(&first, &second, &part("p"), MESSAGES);
    for part in [5, 2] {
        while load.stored.count.load(Ordering::Relaxed) < MESSAGES / part {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!load.is_pushed(), "the load was over before the server was killed");
        bed.server.kill().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        bed.server.restart().await.unwrap();
        let back = Instant::now();
        while !(load.stored.since(back) && load.taken.since(back)) {
            assert!(back.elapsed() < RECOVERY, "the handles do not go on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let (acknowledged, seen) = load.end().await;
    assert_eq!(acknowledged.len(), MESSAGES);
    assert_eq!(acknowledged.difference(&seen).count(), 0, "acknowledged messages were lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_for_ten_seconds_under_load_it_loses_nothing_and_no_call_hangs() {
    let Some(bed) = Bed::find().await else { return };
    let builder =
        || bed.builder().call_timeout(Duration::from_secs(2)).connect_timeout(Duration::from_secs(2));
    let (first, second) = (builder().open().await.unwrap(), builder().open().await.unwrap());
    let load = Load::start(&first, &second, &part("p"), MESSAGES);
    while load.stored.count.load(Ordering::Relaxed) < MESSAGES / 10 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bed.server.freeze().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!load.is_pushed(), "the load was over before the server was frozen");
    bed.server.thaw().await.unwrap();
    let back = Instant::now();
    while !(load.stored.since(back) && load.taken.since(back)) {
        assert!(back.elapsed() < RECOVERY, "the handles do not go on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (acknowledged, seen) = load.end().await;
    assert_eq!(acknowledged.len(), MESSAGES);
    assert_eq!(acknowledged.difference(&seen).count(), 0, "acknowledged messages were lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_thirty_times_in_the_middle_of_calls_it_loses_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let proxy = Proxy::start(bed.server.addr()).unwrap();
    let url = bed.url().replace(&bed.server.addr().to_string(), &proxy.addr().to_string());
    let (first, second) = (RedisQueue::open(&url).await.unwrap(), RedisQueue::open(&url).await.unwrap());
    let load = Load::start(&first, &second, &part("p"), 4 * MESSAGES);
    for cut in 1..=30 {
        let before = Instant::now();
        while !(load.stored.since(before) && load.taken.since(before)) {
            assert!(
                before.elapsed() < RECOVERY,
                "the handles do not go on before cut {cut}: pushes {}, pulls {}",
                load.stored.since(before),
                load.taken.since(before),
            );
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        assert!(!load.is_pushed(), "the load was over after {cut} cuts");
        // Now and then the call is done and nobody is told.
        let fault = if cut % 3 == 0 { Fault::DropReplies } else { Fault::Pass };
        proxy.set(fault).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        proxy.reset_all();
        proxy.set(Fault::Pass).await.unwrap();
        // Whoever connected meanwhile has lost the beginning of the server's answers, and would wait for it.
        proxy.reset_all();
    }
    let (acknowledged, seen) = load.end().await;
    assert_eq!(acknowledged.len(), 4 * MESSAGES);
    assert_eq!(acknowledged.difference(&seen).count(), 0, "acknowledged messages were lost");
}
