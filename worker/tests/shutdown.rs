//! How a run ends: within its times, with nothing lost and no attempt burnt.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Forward, PullRequest, RawDelivery, Settlement, Storage, async_trait};
use anyqueue::{Delivery, ErrorKind, PartitionId, Queue, Result, SettleOutcome};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{
    CancelReason, Partition, Stage, Summary, TaskContext, TaskError, Worker, WorkerBuilder, task,
};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_hours(1);
const SHORT: Duration = Duration::from_millis(100);
/// No test takes as long; one that does has hung.
const PATIENCE: Duration = Duration::from_mins(1);

fn queue() -> Queue {
    Queue::new(MemoryQueue::new()).unwrap()
}

async fn push(queue: &Queue, count: u32) {
    for number in 0..count {
        queue.push("p", task("k", &number).unwrap()).await.unwrap();
    }
}

fn builder(queue: &Queue) -> WorkerBuilder {
    Worker::builder(queue.clone()).partition(Partition::new("p"))
}

fn run(worker: &Worker) -> JoinHandle<Summary> {
    let worker = worker.clone();
    tokio::spawn(async move { worker.run_until(std::future::pending()).await.unwrap() })
}

async fn end(run: JoinHandle<Summary>) -> Summary {
    tokio::time::timeout(PATIENCE, run).await.expect("the shutdown does not end").unwrap()
}

#[tokio::test]
async fn a_shutdown_lets_running_tasks_end_and_releases_the_rest() {
    let queue = queue();
    let (begun, mut begins) = mpsc::channel(9);
    let open = Arc::new(Semaphore::new(0));
    let gate = open.clone();
    let handler = move |_: u32, _| {
        let (begun, gate) = (begun.clone(), gate.clone());
        async move {
            begun.send(()).await?;
            gate.acquire().await?.forget();
            Ok(())
        }
    };
    let worker =
        builder(&queue).slots(2).prefetch(3).drain(LONG, LONG).handler("k", handler).build().unwrap();
    push(&queue, 9).await;
    let run = run(&worker);
    begins.recv().await.unwrap();
    begins.recv().await.unwrap();
    worker.shutdown();
    open.add_permits(9);
    let summary = end(run).await;
    assert_eq!((summary.processed, summary.abandoned), (2, 0));
    assert!(begins.try_recv().is_err(), "something started after the shutdown");
    let held = queue.pull("p").max(9).await.unwrap();
    assert_eq!(held.iter().map(Delivery::delivery_count).collect::<Vec<_>>(), [Some(1); 7], "uncounted");
}

/// A queue whose exchanges have taken effect, but do not return before they may.
#[derive(Debug)]
struct Gated {
    memory: MemoryQueue,
    exchanged: mpsc::Sender<()>,
    gate: Arc<Semaphore>,
}

#[async_trait]
impl Forward for Gated {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        let done = self.inner().exchange(settlements, partition, request).await;
        let _ = self.exchanged.try_send(());
        self.gate.acquire().await.unwrap().forget();
        done
    }
}

#[tokio::test]
async fn what_a_settlement_brings_after_the_shutdown_is_released_while_tasks_go_on() {
    let (memory, gate) = (MemoryQueue::new(), Arc::new(Semaphore::new(0)));
    let (did_one, mut exchanges) = mpsc::channel(9);
    let queue =
        Queue::new(Gated { memory: memory.client(), exchanged: did_one, gate: gate.clone() }).unwrap();
    let (begun, mut begins) = mpsc::channel(9);
    let ends = [Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0))];
    let handler = {
        let ends = ends.clone();
        move |number: u32, _| {
            let (begun, end) = (begun.clone(), ends[number as usize].clone());
            async move {
                begun.send(()).await?;
                end.acquire().await?.forget();
                Ok(())
            }
        }
    };
    let worker = builder(&queue).slots(2).drain(LONG, LONG).handler("k", handler).build().unwrap();
    push(&queue, 3).await;
    let run = run(&worker);
    begins.recv().await.unwrap();
    begins.recv().await.unwrap();
    ends[0].add_permits(1);
    tokio::time::timeout(PATIENCE, exchanges.recv()).await.expect("its settlement brings the next").unwrap();
    worker.shutdown();
    // The shutdown has looked for what has not started; only then the settlement brings something.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(9);
    let other = Queue::new(memory).unwrap();
    let third = other.pull("p").wait(PATIENCE / 2).await.unwrap();
    assert_eq!(third.iter().map(Delivery::delivery_count).collect::<Vec<_>>(), [Some(1)], "uncounted");
    ends[1].add_permits(1);
    let summary = end(run).await;
    assert_eq!((summary.processed, summary.released), (2, 1));
}

#[tokio::test]
async fn what_does_not_end_in_time_is_interrupted_and_no_attempt_is_burnt() {
    let queue = queue();
    let (begun, mut begins) = mpsc::channel(9);
    let handler = move |number: u32, task: TaskContext| {
        let begun = begun.clone();
        async move {
            begun.send(task.clone()).await?;
            if number == 0 {
                std::future::pending::<()>().await; // deaf: its future is dropped
            }
            Err(TaskError::retry(task.cancelled().await.as_str()))
        }
    };
    let worker = builder(&queue).drain(SHORT, SHORT).handler("k", handler).build().unwrap();
    push(&queue, 2).await;
    let run = run(&worker);
    let tasks = [begins.recv().await.unwrap(), begins.recv().await.unwrap()];
    worker.shutdown();
    let summary = end(run).await;
    assert_eq!((summary.interrupted, summary.retried, summary.abandoned), (2, 0, 0));
    assert_eq!(tasks.map(|task| task.cancel_reason()), [Some(CancelReason::Shutdown); 2]);
    let held = queue.pull("p").max(9).await.unwrap();
    assert_eq!(held.iter().map(Delivery::delivery_count).collect::<Vec<_>>(), [Some(1); 2], "uncounted");
    assert!(held.iter().all(|held| held.headers().len() == 1), "no attempt is noted");
}

#[tokio::test]
async fn a_second_shutdown_asks_at_once() {
    let queue = queue();
    let (begun, mut begins) = mpsc::channel(9);
    let handler = move |_: u32, task: TaskContext| {
        let begun = begun.clone();
        async move {
            begun.send(()).await?;
            Err(TaskError::retry(task.cancelled().await.as_str()))
        }
    };
    let worker = builder(&queue).drain(LONG, LONG).handler("k", handler).build().unwrap();
    push(&queue, 1).await;
    let run = run(&worker);
    begins.recv().await.unwrap();
    worker.shutdown();
    worker.shutdown_now();
    assert_eq!(end(run).await.interrupted, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_is_told_as_stuck_and_left_behind_in_bounded_time() {
    let queue = queue();
    let (begun, mut begins) = mpsc::channel(9);
    let (free, blocked) = std::sync::mpsc::sync_channel::<()>(1);
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let handler = move |_: u32, _| {
        let (begun, blocked) = (begun.clone(), blocked.clone());
        async move {
            begun.send(()).await?;
            let _ = blocked.lock().map(|blocked| blocked.recv());
            Ok(())
        }
    };
    let builder = builder(&queue).timeout(SHORT).drain(SHORT, SHORT).handler("k", handler);
    let worker = builder.build().unwrap();
    push(&queue, 1).await;
    let run = run(&worker);
    begins.recv().await.unwrap();
    let since = Instant::now();
    while worker.health().stuck == 0 {
        assert!(since.elapsed() < PATIENCE, "not told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.shutdown();
    assert_eq!(end(run).await.abandoned, 1);
    free.send(()).unwrap();
}

#[tokio::test]
async fn dropping_the_run_releases_what_has_not_started_and_running_tasks_go_on() {
    let queue = queue();
    let (begun, mut begins) = mpsc::channel(9);
    let (ended, mut ends) = mpsc::channel(9);
    let open = Arc::new(Semaphore::new(0));
    let gate = open.clone();
    let handler = move |_: u32, _| {
        let (begun, ended, gate) = (begun.clone(), ended.clone(), gate.clone());
        async move {
            begun.send(()).await?;
            gate.acquire().await?.forget();
            ended.send(()).await?;
            Ok(())
        }
    };
    let worker = builder(&queue).slots(1).prefetch(2).handler("k", handler).build().unwrap();
    push(&queue, 3).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let run = tokio::spawn({
        let worker = worker.clone();
        async move {
            tokio::select! { _ = worker.run_once() => {}, _ = stopped => {} }
        }
    });
    begins.recv().await.unwrap();
    stop.send(()).unwrap();
    run.await.unwrap();
    open.add_permits(1);
    ends.recv().await.unwrap();
    let mut back = 0;
    while back < 2 {
        back +=
            queue.pull("p").max(9).wait(PATIENCE).await.unwrap().into_iter().map(std::mem::forget).count();
    }
}

#[tokio::test]
async fn a_worker_runs_once_at_a_time_and_again_afterwards() {
    let queue = queue();
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    let handler = move |_: u32, _| {
        count.fetch_add(1, SeqCst);
        async { Ok(()) }
    };
    let worker = builder(&queue).handler("k", handler).build().unwrap();
    let first = run(&worker);
    tokio::task::yield_now().await;
    assert_eq!(worker.run_once().await.unwrap_err().kind(), ErrorKind::InvalidInput);
    worker.shutdown();
    end(first).await;
    push(&queue, 2).await;
    assert_eq!(worker.run_once().await.unwrap().processed, 2);
    assert_eq!(runs.load(SeqCst), 2);
}

#[tokio::test]
async fn a_run_that_is_refused_does_not_end_the_one_that_goes_on() {
    let queue = queue();
    let worker = builder(&queue).handler("k", |_: u32, _| async { Ok(()) }).build().unwrap();
    let first = run(&worker);
    tokio::task::yield_now().await;
    for _ in 0..20 {
        let refused = worker.run_until(std::future::ready(())).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(worker.health().stage, Stage::Working);
    }
    worker.shutdown();
    end(first).await;
}

#[tokio::test]
async fn a_shutdown_that_comes_before_the_run_is_not_forgotten() {
    let queue = queue();
    push(&queue, 1).await;
    let worker = builder(&queue).handler("k", |_: u32, _| async { Ok(()) }).build().unwrap();
    worker.shutdown();
    assert_eq!(end(run(&worker)).await.processed, 0);
    assert_eq!(worker.run_once().await.unwrap().processed, 1, "it holds for one run");
}

#[tokio::test]
async fn a_closed_queue_ends_the_run_with_an_error() {
    let queue = queue();
    let worker = builder(&queue).handler("k", |_: u32, _| async { Ok(()) }).build().unwrap();
    let run = tokio::spawn(async move { worker.run_until(std::future::pending()).await });
    tokio::task::yield_now().await;
    queue.close().await.unwrap();
    let end = tokio::time::timeout(PATIENCE, run).await.expect("it never ends").unwrap();
    assert_eq!(end.unwrap_err().kind(), ErrorKind::Closed);
}
