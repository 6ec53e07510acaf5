//! Runs that end by themselves after so many tasks, or with too much memory.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Partition, RunLimit, Summary, TaskContext, Worker, WorkerBuilder, resident_memory};
use tokio::sync::Semaphore;

/// A worker whose tasks wait for the gate.
fn gated(refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> (Harness, Arc<Semaphore>, Arc<AtomicUsize>) {
    let (gate, started) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (let_in, begun) = (gate.clone(), started.clone());
    let handler = move |(): (), _: TaskContext| {
        begun.fetch_add(1, SeqCst);
        let gate = let_in.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(())
        }
    };
    let build = |worker| refine(worker).partition(Partition::new("p")).handler("k", handler);
    (Harness::new(build).unwrap(), gate, started)
}

async fn push(harness: &Harness, tasks: usize) {
    for _ in 0..tasks {
        harness.push("p", "k", &()).await.unwrap();
    }
}

/// Runs as a process does, not only until nothing is left.
async fn run(harness: &Harness) -> Summary {
    let end = harness.worker().run_until(std::future::pending());
    tokio::time::timeout(Duration::from_mins(1), end).await.unwrap().unwrap()
}

async fn left(harness: &Harness) -> [Option<u64>; 2] {
    let counts = harness.counts("p").await.unwrap();
    [counts.ready, counts.leased]
}

#[tokio::test]
async fn a_run_ends_after_exactly_so_many_tasks_and_holds_nothing() {
    for (slots, prefetch) in [(1, 0), (3, 0), (16, 0), (2, 5)] {
        let (harness, gate, started) = gated(|worker| worker.slots(slots).prefetch(prefetch).max_tasks(7));
        gate.add_permits(100);
        push(&harness, 10).await;
        let summary = run(&harness).await;
        assert_eq!((summary.processed, summary.reached), (7, Some(RunLimit::Tasks)), "{slots} slots");
        assert_eq!((started.load(SeqCst), left(&harness).await), (7, [Some(3), Some(0)]), "{slots} slots");
        let found = harness.queue().browse("p", anyqueue::Page::of(10)).await.unwrap();
        assert!(
            found.iter().all(|found| found.delivery_count == Some(0)),
            "what was released is not counted"
        );
        assert_eq!(run_next(&harness).await.processed, 3, "each run has its own count");
    }
}

async fn run_next(harness: &Harness) -> Summary {
    let summary = harness.run().await.unwrap();
    assert_eq!(summary.reached, None);
    summary
}

#[tokio::test]
async fn a_run_at_its_end_waits_for_its_tasks_longer_than_a_shutdown_would() {
    let (harness, gate, started) =
        gated(|worker| worker.slots(4).max_tasks(2).drain(Duration::from_secs(1), Duration::from_secs(1)));
    push(&harness, 5).await;
    let let_go = async {
        harness.advance(Duration::from_mins(10)).await;
        assert_eq!((started.load(SeqCst), left(&harness).await), (2, [Some(3), Some(2)]), "the rest is free");
        gate.add_permits(100);
    };
    let (summary, ()) = tokio::join!(run(&harness), let_go);
    assert_eq!((summary.processed, summary.interrupted), (2, 0));
    assert_eq!(summary.reached, Some(RunLimit::Tasks));
}

#[tokio::test]
async fn a_shutdown_ends_a_run_that_waits_for_its_last_task() {
    let (harness, _gate, _) =
        gated(|worker| worker.max_tasks(1).drain(Duration::from_secs(1), Duration::from_secs(1)));
    push(&harness, 2).await;
    let end = async {
        harness.advance(Duration::from_secs(30)).await;
        harness.worker().shutdown();
        harness.advance(Duration::from_secs(30)).await;
    };
    let (summary, ()) = tokio::join!(run(&harness), end);
    assert_eq!((summary.interrupted, summary.reached), (1, None), "it was told to end");
    assert_eq!(left(&harness).await, [Some(2), Some(0)]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_run_ends_when_the_process_has_too_much_memory_but_not_without_a_task() {
    let (harness, gate, _) = gated(|worker| worker.slots(1).max_memory(1));
    let idle = harness.run().await.unwrap();
    assert_eq!(idle.reached, None);
    push(&harness, 3).await;
    let step = async {
        harness.advance(Duration::from_secs(5)).await;
        gate.add_permits(100);
    };
    let (summary, ()) = tokio::join!(run(&harness), step);
    assert_eq!((summary.processed, summary.reached), (1, Some(RunLimit::Memory)));
    assert_eq!(left(&harness).await, [Some(2), Some(0)]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_with_little_memory_goes_on() {
    let most = resident_memory().unwrap() + (1 << 30);
    let (harness, gate, _) = gated(|worker| worker.slots(1).max_memory(most));
    gate.add_permits(3);
    push(&harness, 3).await;
    let (summary, ()) = tokio::join!(harness.run(), harness.advance(Duration::from_secs(5)));
    let summary = summary.unwrap();
    assert_eq!((summary.processed, summary.reached), (3, None));
}

#[tokio::test]
async fn a_run_of_no_tasks_is_refused() {
    let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new()).unwrap();
    let handler = |(): (), _: TaskContext| async { Ok(()) };
    let builder = Worker::builder(queue).partition(Partition::new("p")).handler("k", handler);
    let error = builder.max_tasks(0).build().unwrap_err();
    assert!(error.message().contains("allow at least 1"), "{error}");
}
