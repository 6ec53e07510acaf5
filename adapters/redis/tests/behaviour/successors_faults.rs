//! Ends with successors while servers are killed, and while connections break in the middle: both or neither, and across slots nothing
//! is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, PushQueueStorage};
use anyqueue::{MessageData, Result, RetryClass, SettleOutcome};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Fault, Proxy, Redis};
use tokio::task::JoinHandle;

use crate::common::{Bed, part, settle};
use crate::successors::bring;
use crate::successors_across_slots::Beds;

const MESSAGES: usize = 20_000;
const BATCH: usize = 20;
const PARTITIONS: [&str; 2] = ["p", "next"];
/// Short, so that what was held in a fault comes back soon.
const LEASE: Duration = Duration::from_secs(2);

/// For the servers of a cluster to know each other again, on a busy machine.
const BACK: Duration = Duration::from_mins(2);

/// Ends deliveries of one partition, each with a successor in another that has the number of what it follows, until it is stopped.
struct Work {
    settled: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Work {
    fn start(queue: RedisQueue, [from, to]: [&str; 2]) -> Self {
        let [from, to] = [from, to].map(str::to_owned);
        let (settled, is_stopped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, stop) = (Arc::clone(&settled), Arc::clone(&is_stopped));
        let task = tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let done = hand_on(&queue, &from, &to).await.unwrap_or_else(|error| {
                    assert_ne!(error.retry(), RetryClass::Never, "{error}");
                    0
                });
                count.fetch_add(done, Ordering::Relaxed);
                if done == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
        Self { settled, is_stopped, task }
    }

    async fn reach(&self, count: usize) {
        let started = Instant::now();
        while self.settled.load(Ordering::Relaxed) < count {
            assert!(started.elapsed() < BACK, "the handle does not go on");
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }

    /// Ends it in the middle of a call.
    async fn die(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    async fn stop(self) -> usize {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        self.settled.load(Ordering::Relaxed)
    }
}

/// Returns how many were settled.
async fn hand_on(queue: &RedisQueue, from: &str, to: &str) -> Result<usize> {
    let held = queue.pull(&part(from), PullRequest::new(BATCH, Duration::ZERO, LEASE)).await?;
    let settlements: Vec<_> = held
        .iter()
        .map(|held| {
            let next = MessageData::new(held.message.payload());
            bring(held, Action::Remove, [(to, next)])
        })
        .collect();
    if settlements.is_empty() {
        return Ok(0);
    }
    let outcomes = queue.settle(&settlements).await;
    Ok(outcomes.into_iter().flatten().filter(|outcome| *outcome == SettleOutcome::Settled).count())
}

async fn fill_with_numbers(queue: &RedisQueue, name: &str) {
    let numbers: Vec<_> = (0..MESSAGES).map(|number| MessageData::new(number.to_string())).collect();
    for some in numbers.chunks(1000) {
        assert!(queue.push(&part(name), some).await.iter().all(Result::is_ok));
    }
}

/// Counts how often each number is there, in both partitions together, when all leases are over.
async fn count_all(queue: &RedisQueue, names: [&str; 2]) -> HashMap<String, usize> {
    tokio::time::sleep(LEASE).await;
    let mut seen = HashMap::new();
    for name in names {
        loop {
            let request = PullRequest::new(1000, Duration::ZERO, Duration::from_mins(1));
            let held = queue.pull(&part(name), request).await.unwrap();
            if held.is_empty() {
                break;
            }
            for held in &held {
                *seen.entry(String::from_utf8_lossy(held.message.payload()).into_owned()).or_default() += 1;
            }
            settle(queue, &held, Action::Remove).await;
        }
    }
    seen
}

fn check(seen: &HashMap<String, usize>) {
    let twice = seen.values().filter(|count| **count != 1).count();
    assert_eq!((seen.len(), twice), (MESSAGES, 0), "messages, and those that are there twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_has_an_end_and_its_successor_or_neither() {
    let Some(bed) = Bed::with(Redis::new().setting("appendfsync", "always")).await else { return };
    let queue = bed.open().await;
    fill_with_numbers(&queue, "p").await;
    let work = Work::start(bed.open().await, PARTITIONS);
    for kill in 1..=4 {
        work.reach(kill * MESSAGES / 10).await;
        bed.server.kill().await.unwrap();
        bed.server.restart().await.unwrap();
    }
    let settled = work.stop().await;
    assert!(settled < MESSAGES, "the work was over before the server was killed");
    check(&count_all(&bed.open().await, PARTITIONS).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_connections_break_in_the_middle_there_is_an_end_and_its_successor_or_neither() {
    let Some(bed) = Bed::find().await else { return };
    let proxy = Proxy::start(bed.server.addr()).unwrap();
    let url = bed.url().replace(&bed.server.addr().to_string(), &proxy.addr().to_string());
    let queue = bed.open().await;
    fill_with_numbers(&queue, "p").await;
    let work = Work::start(RedisQueue::open(&url).await.unwrap(), PARTITIONS);
    for cut in 1..=20 {
        work.reach(cut * MESSAGES / 40).await;
        // Now and then the call is done and nobody is told.
        proxy.set(if cut % 2 == 0 { Fault::DropReplies } else { Fault::Pass }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
        proxy.reset_all();
        proxy.set(Fault::Pass).await.unwrap();
        proxy.reset_all();
    }
    let settled = work.stop().await;
    assert!(settled < MESSAGES, "the work was over before all cuts");
    check(&count_all(&bed.open().await, PARTITIONS).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn across_slots_nothing_is_lost_where_a_server_and_the_worker_are_killed_between_the_steps() {
    // What a killed server forgot could be ends, or successors.
    let Some(beds) = Beds::with(Redis::new().setting("appendfsync", "always")).await else { return };
    let [p, next, _] = beds.names();
    let queue = beds.open().await;
    fill_with_numbers(&queue, p).await;
    for kill in 0..8 {
        let work = Work::start(beds.open().await, [p, next]);
        work.reach(MESSAGES / 20).await;
        let server = &beds.cluster.nodes()[kill % 2];
        server.kill().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await; // it goes on to where it needs that server
        work.die().await;
        server.restart().await.unwrap();
    }
    let seen = count_all(&beds.open().await, [p, next]).await;
    let twice = seen.values().filter(|count| **count != 1).count();
    println!("{twice} of {MESSAGES} were there twice");
    assert_eq!(seen.len(), MESSAGES, "the others are lost");
}
