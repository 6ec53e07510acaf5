//! Handlers that end at once share a task; what that must never cost.

#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyqueue::{Queue, QueueMessageStatus};
use anyqueue_worker::{Partition, TaskContext, TaskResult, Worker, WorkerBuilder, task};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

const SLOTS: usize = 64;
/// More than a runtime runs before it looks after whoever blocks on it.
const MANY: usize = 500;
const PATIENCE: Duration = Duration::from_mins(1);
/// Before the fetch loop goes round, which it does once a second in any case.
const SOON: Duration = Duration::from_millis(800);

/// A queue with a task for each slot, numbered from 0, and a worker to be.
async fn full(slots: usize) -> (Queue, WorkerBuilder) {
    let queue = Queue::new(anyqueue_memory::MemoryQueue::new()).unwrap();
    let tasks = (0..slots).map(|number| task("k", &number).unwrap()).collect();
    for answer in queue.push_many("p", tasks).await.unwrap() {
        answer.unwrap();
    }
    (queue.clone(), Worker::builder(queue).partition(Partition::new("p")).slots(slots))
}

/// Threads that meet.
#[derive(Default)]
struct Meeting(Mutex<usize>, Condvar);

impl Meeting {
    /// Blocks until as many are here; `false` if they do not come.
    fn of(&self, all: usize) -> bool {
        let mut here = self.0.lock().unwrap();
        *here += 1;
        self.1.notify_all();
        let (here, _) = self.1.wait_timeout_while(here, PATIENCE, |here| *here < all).unwrap();
        *here >= all
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_in_place_run_side_by_side_in_every_slot() {
    let (_queue, builder) = full(SLOTS).await;
    let meeting = Arc::new(Meeting::default());
    let handler = move |_: usize, _: TaskContext| {
        let meeting = meeting.clone();
        async move {
            assert!(tokio::task::block_in_place(|| meeting.of(SLOTS)), "some slots were left empty");
            TaskResult::Ok(())
        }
    };
    let summary = builder.handler("k", handler).build().unwrap().run_once().await.unwrap();
    assert_eq!(summary.processed, SLOTS as u64, "{summary:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_has_ended_is_settled_while_the_last_handler_blocks_its_thread() {
    // On a busy machine it can take longer. Where it is left to the fetch loop it does each time.
    let mut took = Vec::new();
    while took.last().is_none_or(|took| *took >= SOON) {
        assert!(took.len() < 10, "the others are held beside the one that blocks for {took:?}");
        took.push(settled_beside_one_that_blocks().await);
    }
}

/// After how long all have been settled but one, whose handler blocks.
async fn settled_beside_one_that_blocks() -> Duration {
    let (queue, builder) = full(SLOTS).await;
    let open = Arc::new(Meeting::default());
    let last = open.clone();
    let handler = move |number: usize, _: TaskContext| {
        let last = last.clone();
        async move {
            assert!(number + 1 < SLOTS || last.of(2), "not let go");
            TaskResult::Ok(())
        }
    };
    let worker = builder.handler("k", handler).build().unwrap();
    let since = Instant::now();
    let run = tokio::spawn(async move { worker.run_once().await.unwrap() });
    while held(&queue).await != 1 {
        assert!(since.elapsed() < PATIENCE, "{} are held beside the one that blocks", held(&queue).await - 1);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = since.elapsed();
    open.of(2);
    assert_eq!(run.await.unwrap().processed, SLOTS as u64);
    took
}

#[tokio::test]
async fn what_took_its_time_is_settled_before_the_next_begins() {
    let (queue, builder) = full(SLOTS).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let handler = move |_: usize, _: TaskContext| {
        let (queue, notes) = (queue.clone(), notes.clone());
        async move {
            let left = held(&queue).await;
            notes.lock().unwrap().push(left);
            std::thread::sleep(Duration::from_millis(1));
            TaskResult::Ok(())
        }
    };
    builder.handler("k", handler).build().unwrap().run_once().await.unwrap();
    let left: Vec<u64> = (1..=SLOTS as u64).rev().collect();
    assert_eq!(*seen.lock().unwrap(), left, "each sees those before it gone");
}

/// What is in the partition, ready or held.
async fn held(queue: &Queue) -> u64 {
    let counts = queue.counts("p").await.unwrap();
    counts.ready.unwrap() + counts.leased.unwrap()
}

#[test]
fn what_has_a_slot_and_was_not_begun_goes_back_when_its_runtime_ends() {
    let home = Runtime::new().unwrap();
    let (queue, builder) = home.block_on(full(MANY));
    let begun = Arc::new(Notify::new());
    let handler = {
        let begun = begun.clone();
        move |_: usize, _: TaskContext| {
            begun.notify_one();
            // Nearly as much as a task may do at a time: the runner then lets others go first.
            async {
                for _ in 0..120 {
                    tokio::task::consume_budget().await;
                }
                TaskResult::Ok(())
            }
        }
    };
    let worker = builder.handler("k", handler).build().unwrap();
    let brief = Builder::new_current_thread().enable_all().build().unwrap();
    brief.block_on(async {
        tokio::select! { _ = worker.run_until(std::future::pending()) => {}, () = begun.notified() => {} }
    });
    drop(brief);
    home.block_on(async {
        let mut left = 0;
        loop {
            let back = queue.pull("p").max(MANY).wait(PATIENCE).await.unwrap();
            assert!(!back.is_empty(), "only {left} came back");
            left += back.len();
            for mut delivery in back {
                delivery.settle(QueueMessageStatus::Processed).await.unwrap();
            }
            if held(&queue).await == 0 {
                break;
            }
        }
        assert!(left > 1, "nothing waited to be begun: this proves nothing");
    });
}
