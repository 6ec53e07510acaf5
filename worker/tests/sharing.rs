//! How partitions and kinds share the slots while all of them have work.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::Queue;
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Kind, Partition, TaskContext, Worker, task};
use tokio::sync::{Notify, Semaphore};

const PATIENCE: Duration = Duration::from_mins(1);

async fn fill(queue: &Queue, partition: &str, kind: &str, count: usize) {
    let messages = (0..count).map(|number| task(kind, &number).unwrap()).collect();
    for answer in queue.push_many(partition, messages).await.unwrap() {
        answer.unwrap();
    }
}

/// Runs a worker with these weights on full partitions until `count` tasks have begun; returns how many of each.
async fn served(weights: &[u32], slots: usize, count: usize, pause: Duration) -> Vec<usize> {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let begun: Arc<Vec<AtomicUsize>> = Arc::new(weights.iter().map(|_| AtomicUsize::new(0)).collect());
    let mut builder = Worker::builder(queue.clone()).slots(slots);
    for (index, weight) in weights.iter().enumerate() {
        let name = index.to_string();
        fill(&queue, &name, "k", count + slots).await;
        builder = builder.partition(Partition::new(name).weight(*weight));
    }
    let (all, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counts, done) = (begun.clone(), enough.clone());
    let handler = move |_: usize, task: TaskContext| {
        if all.fetch_add(1, SeqCst) < count {
            counts[task.partition().name().parse::<usize>().unwrap()].fetch_add(1, SeqCst);
        } else {
            done.notify_one();
        }
        async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            Ok(())
        }
    };
    let worker = builder.handler("k", handler).build().unwrap();
    let run = worker.run_until(async move { enough.notified().await });
    tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
    begun.iter().map(|count| count.load(SeqCst)).collect()
}

fn within_ten_percent(served: &[usize], weights: &[u32]) {
    let (all, weight): (usize, u32) = (served.iter().sum(), weights.iter().sum());
    for (served_one, weight_one) in served.iter().zip(weights) {
        #[allow(clippy::cast_precision_loss, reason = "small counts")]
        let (share, due) = (*served_one as f64 / all as f64, f64::from(*weight_one) / f64::from(weight));
        assert!((share / due - 1.0).abs() <= 0.1, "{served:?} for {weights:?}");
    }
}

#[tokio::test]
async fn shares_are_within_ten_percent_of_the_weights_with_instant_tasks() {
    let weights = [5, 3, 2];
    within_ten_percent(&served(&weights, 16, 5000, Duration::ZERO).await, &weights);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_are_within_ten_percent_of_the_weights_with_tasks_that_take_time() {
    let weights = [3, 1];
    within_ten_percent(&served(&weights, 8, 2000, Duration::from_millis(1)).await, &weights);
}

#[tokio::test]
async fn shares_are_within_ten_percent_of_the_weights_with_fewer_slots_than_partitions() {
    let weights = [4, 1, 1, 1, 1, 1, 1];
    within_ten_percent(&served(&weights, 3, 2000, Duration::ZERO).await, &weights);
}

#[tokio::test]
async fn a_flood_in_one_partition_does_not_starve_another() {
    const SLOTS: usize = 4;
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    fill(&queue, "flood", "k", 20_000).await;
    let floods = Arc::new(AtomicUsize::new(0));
    let (count, calm) = (floods.clone(), Arc::new(Notify::new()));
    let begun = calm.clone();
    let handler = move |_: usize, task: TaskContext| {
        if task.partition().name() == "flood" {
            count.fetch_add(1, SeqCst);
        } else {
            begun.notify_one();
        }
        async {
            tokio::task::yield_now().await;
            Ok(())
        }
    };
    let builder = Worker::builder(queue.clone()).slots(SLOTS).handler("k", handler);
    let worker =
        builder.partition(Partition::new("flood")).partition(Partition::new("calm")).build().unwrap();
    let run = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run_until(std::future::pending()).await }
    });
    let mut longest = 0;
    for number in 0..50 {
        let before = floods.load(SeqCst);
        queue.push("calm", task("k", &number).unwrap()).await.unwrap();
        tokio::time::timeout(PATIENCE, calm.notified()).await.expect("starved");
        longest = longest.max(floods.load(SeqCst) - before);
    }
    assert!(floods.load(SeqCst) > 0, "there was no flood");
    // It takes a few turns of the slots, and while the pull is woken others go by. Starved would be all of them.
    assert!(longest <= 100 * SLOTS, "{longest} tasks of the flood went before one of the calm partition");
    worker.shutdown_now();
    run.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_kind_that_is_full_does_not_hold_up_the_others() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let slow = {
        let (gate, now, most) = (gate.clone(), now.clone(), most.clone());
        move |_: usize, _| {
            let (gate, now, most) = (gate.clone(), now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                gate.acquire().await?.forget();
                now.fetch_sub(1, SeqCst);
                Ok(())
            }
        }
    };
    let quick_done = Arc::new(Semaphore::new(0));
    let done = quick_done.clone();
    let quick = move |_: usize, _| {
        done.add_permits(1);
        async { Ok(()) }
    };
    fill(&queue, "p", "slow", 20).await;
    fill(&queue, "p", "quick", 3).await;
    let builder = Worker::builder(queue.clone()).partition(Partition::new("p")).slots(4);
    let builder =
        builder.kind(Kind::new("slow").concurrency(1)).handler("slow", slow).handler("quick", quick);
    let worker = builder.build().unwrap();
    let run = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run_until(std::future::pending()).await }
    });
    tokio::time::timeout(PATIENCE, quick_done.acquire_many(3)).await.expect("held up").unwrap().forget();
    gate.add_permits(20);
    let all = async {
        while queue.counts("p").await.unwrap() != anyqueue::Counts::known(0, 0, 0, 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("not all were processed");
    assert_eq!(most.load(SeqCst), 1);
    worker.shutdown();
    assert_eq!(run.await.unwrap().unwrap().processed, 23);
}

#[tokio::test]
async fn a_hundred_kinds_in_fifty_partitions_are_worked_each_once() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let mut builder = Worker::builder(queue.clone()).slots(32);
    for kind in 0..100 {
        let seen = seen.clone();
        builder = builder.handler(&format!("kind-{kind}"), move |_: usize, task: TaskContext| {
            seen.lock().unwrap().push((task.partition().to_string(), task.kind().to_owned()));
            async { Ok(()) }
        });
    }
    for partition in 0..50 {
        let name = format!("partition-{partition}");
        let messages = (0..100).map(|kind| task(&format!("kind-{kind}"), &kind).unwrap()).collect();
        for answer in queue.push_many(&name, messages).await.unwrap() {
            answer.unwrap();
        }
        builder = builder.partition(Partition::new(name));
    }
    let run = builder.build().unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, run.run_once()).await.unwrap().unwrap().processed, 5000);
    let mut seen = seen.lock().unwrap();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5000);
}
