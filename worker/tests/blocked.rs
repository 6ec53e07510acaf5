//! Handlers that block their thread beyond the deadline: their tasks end without them, on memory and SQLite.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at anything"
)]

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use anyqueue::adapter::Storage;
use anyqueue::{
    Keep, MessageData, Page, Queue, QueueMessageStatus, SettleOutcome, Successors, TaskReport, TaskState,
};
use anyqueue_worker::{
    BatchContext, CancelReason, Partition, Retry, Task, TaskContext, TaskResult, Worker, WorkerBuilder, task,
};

const PATIENCE: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(50);

/// A thread that is blocked until the test lets it go, and never for longer than the test waits for anything.
#[derive(Clone)]
struct Block(Arc<Mutex<mpsc::Receiver<()>>>);

impl Block {
    fn new() -> (mpsc::SyncSender<()>, Self) {
        let (free, blocked) = mpsc::sync_channel(1);
        (free, Self(Arc::new(Mutex::new(blocked))))
    }

    fn wait(&self) {
        let _ = self.0.lock().unwrap().recv_timeout(PATIENCE);
    }
}

/// A queue on each backend of which one has no server.
async fn queues() -> (Vec<Queue>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("q.db").display());
    let stores: [Arc<dyn Storage>; 2] =
        [Arc::new(anyqueue_memory::MemoryQueue::new()), anyqueue_backends::open(&url).await.unwrap()];
    let queues = stores.map(|storage| Queue::builder(storage).ledger(Keep::default()).build().unwrap());
    for queue in &queues {
        queue.init().await.unwrap();
    }
    (queues.into(), folder)
}

/// A worker whose tasks may take a moment, and as long again to stop.
fn hasty(queue: &Queue) -> WorkerBuilder {
    Worker::builder(queue.clone()).partition(Partition::new("p")).timeout(SHORT).drain(SHORT, SHORT)
}

/// Waits until something is so.
async fn until<Fut: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> Fut) {
    let since = Instant::now();
    while !is_so().await {
        assert!(since.elapsed() < PATIENCE, "{what} does not come about");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn dead(queue: &Queue) -> Vec<String> {
    let found = queue.dead_letters("p").unwrap().list(Page::of(10)).await.unwrap();
    found.into_iter().map(|letter| letter.reason.unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_task_that_blocks_its_thread_times_out_and_what_its_handler_does_later_changes_nothing() {
    let (queues, _folder) = queues().await;
    for queue in queues {
        let (free, block) = Block::new();
        let handler = move |_: u32, task: TaskContext| {
            let block = block.clone();
            async move {
                block.wait();
                task.set_result("late")?;
                task.then("later", MessageData::new("x"))?;
                TaskResult::Ok(())
            }
        };
        let worker = hasty(&queue).handler("k", handler).build().unwrap();
        let message = task("k", &1).unwrap();
        let id = message.id();
        queue.push("p", message).await.unwrap();
        let run = tokio::spawn({
            let worker = worker.clone();
            async move { worker.run().await.unwrap() }
        });
        until("the end", || async { dead(&queue).await.len() == 1 }).await;
        let reason = "timed_out in attempt 1: it ran longer than it may, and blocks its thread";
        assert_eq!(dead(&queue).await, [reason]);
        let ended = queue.task("p", id).await.unwrap().map(|task| task.state);
        assert_ne!(ended, Some(TaskState::Succeeded));
        assert!(worker.health().stuck > 0, "its thread is still blocked");

        free.send(()).unwrap();
        until("the handler's end", || async { worker.health().running == 0 }).await;
        worker.shutdown();
        let summary = run.await.unwrap();
        assert_eq!((summary.dead, summary.lost, summary.processed), (1, 1, 0), "{summary:?}");
        assert_eq!(dead(&queue).await, [reason]);
        assert_eq!(queue.task("p", id).await.unwrap().map(|task| task.state), ended);
        assert!(queue.pull("later").await.unwrap().is_empty(), "what should follow was stored");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn another_worker_runs_it_again_where_time_outs_are_retried() {
    let (queues, _folder) = queues().await;
    for queue in queues {
        for as_new_message in [false, true] {
            let (free, block) = Block::new();
            let slow = move |_: u32, _: TaskContext| {
                let block = block.clone();
                async move {
                    block.wait();
                    TaskResult::Ok(())
                }
            };
            let retry = Retry::exponential(Duration::from_millis(1)).max(3);
            let retry = if as_new_message { retry.as_new_message() } else { retry };
            // Its only slot is taken until the handler ends: it cannot take the next attempt itself.
            let stuck = hasty(&queue).slots(1).retry(retry).retry_timeouts(true).handler("k", slow);
            let stuck = stuck.build().unwrap();
            queue.push("p", task("k", &1).unwrap()).await.unwrap();
            let run = tokio::spawn({
                let stuck = stuck.clone();
                async move { stuck.run().await.unwrap() }
            });
            until("the beginning", || async { stuck.health().running == 1 }).await;
            stuck.set_quiet(true);

            let (attempts, mut seen) = tokio::sync::mpsc::channel(9);
            let quick = move |_: u32, task: TaskContext| {
                let attempts = attempts.clone();
                async move {
                    attempts.send(task.attempt()).await?;
                    TaskResult::Ok(())
                }
            };
            // With the usual times: what is quick takes longer than a moment on a busy machine.
            let other = Worker::builder(queue.clone()).partition(Partition::new("p"));
            let other = other.handler("k", quick).build().unwrap();
            let beside = tokio::spawn({
                let other = other.clone();
                async move { other.run().await.unwrap() }
            });
            assert_eq!(tokio::time::timeout(PATIENCE, seen.recv()).await.unwrap(), Some(2));
            free.send(()).unwrap();
            until("the handler's end", || async { stuck.health().running == 0 }).await;
            stuck.shutdown();
            other.shutdown();
            let (first, second) = (run.await.unwrap(), beside.await.unwrap());
            assert_eq!((first.retried, first.lost, second.processed), (1, 1, 1), "{first:?} {second:?}");
            assert_eq!(queue.counts("p").await.unwrap().ready, Some(0));
            assert!(dead(&queue).await.is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn each_task_of_a_blocked_batch_times_out() {
    let (queues, _folder) = queues().await;
    for queue in queues {
        let (free, block) = Block::new();
        let handler = move |tasks: Vec<Task<u32>>, _: BatchContext| {
            let block = block.clone();
            async move {
                block.wait();
                tasks.iter().map(|_| TaskResult::Ok(())).collect::<Vec<_>>()
            }
        };
        let partition = Partition::new("p").whole_groups(2);
        let builder = Worker::builder(queue.clone()).partition(partition).timeout(SHORT).drain(SHORT, SHORT);
        let worker = builder.batch_handler("k", handler).build().unwrap();
        for number in 0..2 {
            queue.push("p", task("k", &number).unwrap().with_group("g")).await.unwrap();
        }
        let run = tokio::spawn({
            let worker = worker.clone();
            async move { worker.run().await.unwrap() }
        });
        until("the end", || async { dead(&queue).await.len() == 2 }).await;
        free.send(()).unwrap();
        until("the handler's end", || async { worker.health().running == 0 }).await;
        worker.shutdown();
        let summary = run.await.unwrap();
        assert_eq!((summary.dead, summary.lost, summary.processed), (2, 2, 0), "{summary:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_computes_without_awaiting_sees_that_its_time_is_over() {
    let (queues, _folder) = queues().await;
    for queue in queues {
        let handler = |_: u32, task: TaskContext| async move {
            let since = Instant::now();
            while task.cancel_reason().is_none() && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(task.cancel_reason(), Some(CancelReason::Timeout));
            TaskResult::Ok(())
        };
        let builder = hasty(&queue).drain(PATIENCE, PATIENCE).handler("k", handler);
        queue.push("p", task("k", &1).unwrap()).await.unwrap();
        let summary = builder.build().unwrap().run_once().await.unwrap();
        assert_eq!(summary.processed, 1, "{summary:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_awaits_after_it_has_blocked_is_dropped_in_time() {
    let (queues, _folder) = queues().await;
    for queue in queues {
        let handler = |_: u32, task: TaskContext| async move {
            let since = Instant::now();
            while task.cancel_reason().is_none() && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::future::pending::<TaskResult>().await
        };
        queue.push("p", task("k", &1).unwrap()).await.unwrap();
        let run = hasty(&queue).handler("k", handler).build().unwrap();
        let summary = tokio::time::timeout(PATIENCE, run.run_once()).await.expect("dropped").unwrap();
        assert_eq!((summary.dead, summary.processed), (1, 0), "{summary:?}");
    }
}

#[tokio::test]
async fn whoever_settles_first_has_done_it() {
    let (queues, _folder) = queues().await;
    for queue in queues {
        queue.push("p", MessageData::new("x")).await.unwrap();
        let mut delivery = queue.pull("p").await.unwrap().remove(0);
        let twin = delivery.twin();
        delivery.settle(QueueMessageStatus::Processed).await.unwrap();
        let report = TaskReport::new();
        let late = twin.settle_with(QueueMessageStatus::poisonous("x"), Successors::new(), &report).await;
        assert_eq!(late.unwrap(), SettleOutcome::Lost);
        assert!(dead(&queue).await.is_empty());
    }
}
