//! Runs that end as nobody would wish: what becomes of the task, and of those beside it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may stop at anything")]

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyqueue::{MessageData, Page, Queue};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use anyqueue_worker::testing::Harness;
use anyqueue_worker::{MAX_SLOTS, Partition, Retry, TaskContext, TaskError, Worker, header, task};
use tokio::sync::Semaphore;

const PATIENCE: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(20);

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a panic in Drop");
    }
}

#[tokio::test]
async fn a_handler_that_panics_when_it_is_dropped_has_timed_out_all_the_same() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    let worker = Worker::builder(queue.clone())
        .name("w")
        .partition(Partition::new("p").timeout(SHORT).retry(Retry::never()))
        .drain(PATIENCE, SHORT)
        .handler("bomb", move |(): (), _| {
            count.fetch_add(1, SeqCst);
            async {
                let _bomb = Bomb;
                pending::<()>().await;
                Ok(())
            }
        })
        .handler("good", |(): (), _| async { Ok(()) })
        .build()
        .unwrap();
    for kind in ["good", "bomb", "good", "good"] {
        queue.push("p", task(kind, &()).unwrap()).await.unwrap();
    }
    let summary = worker.run_once().await.unwrap();
    assert_eq!((summary.dead, summary.processed, runs.load(SeqCst)), (1, 3, 1), "{summary:?}");
    let dead = queue.dead_letters("p").unwrap().list(Page::of(9)).await.unwrap();
    let letter = dead.first().unwrap();
    let reason = letter.reason.clone().unwrap();
    assert!(reason.contains("timed_out") && reason.contains("a panic in Drop"), "{reason}");
    // Though no ends are kept.
    assert!(letter.worker.as_deref() == Some("w") && letter.ran >= Some(SHORT), "{letter:?}");
}

/// What a message may have beside its headers and payload.
const LIMIT_BYTES: u64 = 64 * 1024;

#[tokio::test]
async fn a_task_with_no_room_for_its_history_reaches_its_limit_or_dies_at_once() {
    // Room for the count but not for the errors; for neither. Envelope and reserve are less than 600 bytes.
    for (spare, attempts) in [(100, 4), (8, 1)] {
        let config = MemoryConfig::default().with_max_message_bytes(LIMIT_BYTES);
        let queue = Queue::new(MemoryQueue::with_config(config)).unwrap();
        let most = largest(&queue).await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = seen.clone();
        let worker = Worker::builder(queue.clone())
            .partition(Partition::new("p"))
            .retry(Retry::exponential(Duration::from_millis(1)).max(3).jitter(0.0))
            .raw_handler("bad", move |_, task: TaskContext| {
                notes.lock().unwrap().push(task.attempt());
                async { Err(TaskError::retry("connection refused")) }
            })
            .build()
            .unwrap();
        queue.push("p", of_bytes(most - spare)).await.unwrap();
        let ended = async {
            while queue.counts("p").await.unwrap().dead != Some(1) {
                assert!(seen.lock().unwrap().len() <= 10, "it is tried without end");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let summary = worker.run_until(ended).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), (1..=attempts).collect::<Vec<u32>>());
        assert_eq!((summary.retried, summary.dead), (u64::from(attempts) - 1, 1));
        let dead = queue.dead_letters("p").unwrap().list(Page::of(9)).await.unwrap();
        let reason = dead.first().unwrap().reason.clone().unwrap();
        assert!(reason.starts_with(&format!("failed in attempt {attempts}: connection refused")), "{reason}");
    }
}

fn of_bytes(payload_bytes: usize) -> MessageData {
    MessageData::from_bytes(vec![b'x'; payload_bytes]).with_header(header::KIND, "bad")
}

/// The largest payload of such a task.
async fn largest(queue: &Queue) -> usize {
    let (mut fits, mut too_large) = (0, usize::try_from(LIMIT_BYTES).unwrap());
    while fits + 1 < too_large {
        let bytes = usize::midpoint(fits, too_large);
        match queue.push("elsewhere", of_bytes(bytes)).await {
            Ok(_) => fits = bytes,
            Err(_) => too_large = bytes,
        }
    }
    fits
}

#[tokio::test]
async fn what_was_lost_while_the_process_stood_still_does_not_start_before_it_comes_again() {
    let begun = Arc::new(Mutex::new(Vec::new()));
    let (notes, let_go) = (begun.clone(), Arc::new(Semaphore::new(0)));
    let gate = let_go.clone();
    let harness = Harness::new(|worker| {
        worker
            .partition(Partition::new("p"))
            .slots(1)
            .prefetch(1)
            .prefetch_ttl(Duration::from_hours(1))
            .handler("k", move |number: u32, task: TaskContext| {
                notes.lock().unwrap().push((number, task.delivery_count()));
                let gate = gate.clone();
                async move {
                    gate.acquire().await?.forget();
                    Ok(())
                }
            })
    })
    .unwrap();
    for number in 0..2_u32 {
        harness.push("p", "k", &number).await.unwrap();
    }
    let watch = async {
        harness.advance(Duration::from_secs(1)).await; // the first runs, the second is held
        assert_eq!(harness.counts("p").await.unwrap().leased, Some(2));
        harness.stall(Duration::from_mins(2));
        let_go.add_permits(9);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    let begun = begun.lock().unwrap();
    assert!(begun.contains(&(1, Some(2))), "{begun:?}");
    assert!(!begun.contains(&(1, Some(1))), "it was somebody else's by then: {begun:?}");
    assert!(summary.unwrap().lost >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_has_ended_at_a_shutdown_is_settled_though_a_handler_blocks_its_thread() {
    for _ in 0..10 {
        let queue = Queue::new(MemoryQueue::new()).unwrap();
        let cell = Arc::new(OnceLock::<Worker>::new());
        let (free, blocked) = std::sync::mpsc::sync_channel::<()>(1);
        let (own, blocked) = (cell.clone(), Arc::new(Mutex::new(blocked)));
        let worker = Worker::builder(queue.clone())
            .partition(Partition::new("p"))
            .drain(PATIENCE, PATIENCE)
            .slots(2)
            .handler("block", move |(): (), _| {
                let blocked = blocked.clone();
                async move {
                    let _ = blocked.lock().unwrap().recv_timeout(PATIENCE);
                    Ok(())
                }
            })
            .handler("last", move |(): (), _| {
                let own = own.clone();
                async move {
                    own.get().unwrap().shutdown();
                    Ok(())
                }
            })
            .build()
            .unwrap();
        cell.set(worker.clone()).unwrap();
        for kind in ["block", "last"] {
            queue.push("p", task(kind, &()).unwrap()).await.unwrap();
        }
        let run = tokio::spawn(async move { worker.run_until(pending()).await.unwrap() });
        let since = Instant::now();
        while queue.counts("p").await.unwrap().leased != Some(1) {
            assert!(since.elapsed() < PATIENCE / 2, "what has ended is held still");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        free.send(()).unwrap();
        assert_eq!(run.await.unwrap().processed, 2);
    }
}

#[test]
fn more_slots_than_any_machine_has_are_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let builder = || {
        let queue = Queue::new(MemoryQueue::new()).unwrap();
        let worker = Worker::builder(queue).partition(Partition::new("a")).partition(Partition::new("b"));
        worker.handler("k", |(): (), _| async { Ok(()) })
    };
    for builder in [builder().slots(usize::MAX), builder().slots(1).prefetch(usize::MAX)] {
        let text = builder.build().unwrap_err().to_string();
        assert!(text.contains(&MAX_SLOTS.to_string()), "{text}");
    }
    let worker = builder().slots(MAX_SLOTS).prefetch(MAX_SLOTS).drain(Duration::MAX, Duration::MAX).build();
    let end = async { tokio::time::timeout(PATIENCE, worker.unwrap().run_once()).await };
    assert_eq!(runtime.block_on(end).expect("it never ends").unwrap().processed, 0);
}
