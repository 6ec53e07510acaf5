//! A server that dies under load, keeps what it acknowledged, and finds the same clients at work again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::{
    Action, MessageData, MessageId, PullQueueStorage, PullRequest, PushOutcome, PushQueueStorage, Settlement,
};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::Redis;

use crate::common::{Bed, part};

const MESSAGES: usize = 50_000;
const BATCH: usize = 100;
/// Short, so that what a killed claim took comes back soon.
const LEASE: Duration = Duration::from_secs(2);
const RECOVERY: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(10);

/// What the last answer was, for whoever restarts the server.
#[derive(Default)]
struct Progress {
    answered: std::sync::Mutex<Option<Instant>>,
    count: AtomicUsize,
}

impl Progress {
    fn note(&self, count: usize) {
        self.count.fetch_add(count, Ordering::Relaxed);
        *self.answered.lock().unwrap() = Some(Instant::now());
    }

    fn since(&self, time: Instant) -> bool {
        self.answered.lock().unwrap().is_some_and(|at| at > time)
    }
}

async fn push_all(queue: RedisQueue, progress: Arc<Progress>, pushed: Arc<AtomicBool>) -> HashSet<MessageId> {
    let mut acknowledged = HashSet::new();
    for _ in 0..MESSAGES / BATCH {
        let mut left: Vec<_> = (0..BATCH).map(|_| MessageData::new("load")).collect();
        while !left.is_empty() {
            let answers =
                tokio::time::timeout(CALL, queue.push(&part("p"), &left)).await.expect("a push hangs");
            let mut stored = HashSet::new();
            for (message, answer) in left.iter().zip(answers) {
                match answer {
                    Ok(PushOutcome::Stored(id) | PushOutcome::Duplicate(Some(id))) => drop(stored.insert(id)),
                    Ok(PushOutcome::Duplicate(None)) => drop(stored.insert(message.id())),
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
            if !stored.is_empty() {
                progress.note(stored.len());
            }
            left.retain(|message| !stored.contains(&message.id()));
            acknowledged.extend(stored);
        }
    }
    pushed.store(true, Ordering::Release);
    acknowledged
}

async fn pull_all(queue: RedisQueue, progress: Arc<Progress>, pushed: Arc<AtomicBool>) -> HashSet<MessageId> {
    let mut seen = HashSet::new();
    let mut last = Instant::now();
    while !pushed.load(Ordering::Acquire) || last.elapsed() < 2 * LEASE {
        let request = PullRequest::new(BATCH, Duration::from_millis(500), LEASE);
        let pulled = tokio::time::timeout(CALL, queue.pull(&part("p"), request)).await.expect("a pull hangs");
        let held = pulled.unwrap_or_default();
        if held.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        last = Instant::now();
        progress.note(held.len());
        seen.extend(held.iter().map(|delivery| delivery.lease.id));
        let settlements: Vec<_> = held
            .iter()
            .map(|delivery| Settlement { lease: delivery.lease.clone(), action: Action::Remove })
            .collect();
        tokio::time::timeout(CALL, queue.settle(&settlements)).await.expect("a settlement hangs");
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_twice_under_load_it_loses_nothing_and_the_same_handles_go_on() {
    let Some(bed) = Bed::with(Redis::new().setting("appendfsync", "always")).await else { return };
    let (first, second) = (bed.open().await, bed.open().await);
    let (stored, taken) = (Arc::new(Progress::default()), Arc::new(Progress::default()));
    let pushed = Arc::new(AtomicBool::new(false));
    let pushing = tokio::spawn(push_all(first, Arc::clone(&stored), Arc::clone(&pushed)));
    let pulling = tokio::spawn(pull_all(second, Arc::clone(&taken), Arc::clone(&pushed)));
    for part in [5, 2] {
        while stored.count.load(Ordering::Relaxed) < MESSAGES / part {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!pushing.is_finished(), "the load was over before the server was killed");
        bed.server.kill().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        bed.server.restart().await.unwrap();
        let back = Instant::now();
        while !(stored.since(back) && taken.since(back)) {
            assert!(back.elapsed() < RECOVERY, "the handles do not go on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let (acknowledged, seen) = (pushing.await.unwrap(), pulling.await.unwrap());
    assert_eq!(acknowledged.len(), MESSAGES);
    assert_eq!(acknowledged.difference(&seen).count(), 0, "acknowledged messages were lost");
}
