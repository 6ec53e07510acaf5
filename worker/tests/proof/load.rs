//! Work as it comes: each task once, in order when it ends, retries, cancellation.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyqueue::adapter::{DeliveryCount, Strictness};
use anyqueue::{Page, Queue};
use anyqueue_worker::{
    CancelReason, FailureKind, Partition, Retry, Summary, TaskContext, TaskError, Worker, WorkerBuilder,
    history, task,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::grounds::{Ground, LEASE, PARTITION};

/// How often each task ran.
pub(crate) type Runs = Arc<Mutex<HashMap<u32, u32>>>;

pub(crate) async fn push(queue: &Queue, numbers: impl Iterator<Item = u32>) {
    let messages = numbers.map(|number| task("k", &number).unwrap()).collect();
    for answer in queue.push_many(PARTITION, messages).await.unwrap() {
        answer.unwrap();
    }
}

pub(crate) fn run(worker: &Worker) -> JoinHandle<Summary> {
    let worker = worker.clone();
    tokio::spawn(async move { worker.run_until(std::future::pending()).await.unwrap() })
}

pub(crate) fn builder(queue: &Queue) -> WorkerBuilder {
    Worker::builder(queue.clone()).partition(Partition::new(PARTITION))
}

/// A worker that counts runs, each of which takes a while.
pub(crate) fn counting(builder: WorkerBuilder, runs: &Runs, takes: Duration) -> Worker {
    let runs = runs.clone();
    let handler = move |number: u32, _: TaskContext| {
        *runs.lock().unwrap().entry(number).or_default() += 1;
        async move {
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            Ok(())
        }
    };
    builder.handler("k", handler).build().unwrap()
}

/// Waits until nothing is left in the queue. Where its counts do not tell, these many runs must have come, and then none for so
/// long that whatever was still held would have come again.
pub(crate) async fn empty(queue: &Queue, tasks: usize, came: impl Fn() -> usize) {
    let capabilities = queue.capabilities();
    let inspect = capabilities.inspect;
    let tells = inspect.ready && inspect.delayed && inspect.leased && inspect.staleness.is_zero();
    let quiet = LEASE * 2 + capabilities.slack;
    let (mut last, mut since) = (came(), Instant::now());
    loop {
        if tells {
            let counts = queue.counts(PARTITION).await.unwrap();
            if (counts.ready, counts.leased, counts.delayed) == (Some(0), Some(0), Some(0)) {
                return;
            }
        } else if came() != last {
            (last, since) = (came(), Instant::now());
        } else if last >= tasks && since.elapsed() >= quiet {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many runs there were.
pub(crate) fn total(runs: &Runs) -> usize {
    runs.lock().unwrap().values().map(|runs| *runs as usize).sum()
}

pub(crate) async fn two_workers_do_each_task_once(ground: Ground) {
    const TASKS: u32 = 2000;
    let queue = ground.open().await;
    let other = if queue.capabilities().reach == anyqueue::adapter::Reach::Process {
        queue.clone()
    } else {
        ground.open().await
    };
    let runs = Runs::default();
    let workers = [&queue, &other].map(|queue| counting(builder(queue).slots(16), &runs, Duration::ZERO));
    let ends = workers.each_ref().map(run);
    push(&queue, 0..TASKS).await;
    empty(&queue, TASKS as usize, || total(&runs)).await;
    let mut processed = 0;
    for (worker, end) in workers.iter().zip(ends) {
        worker.shutdown();
        processed += end.await.unwrap().processed;
    }
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), TASKS as usize);
    assert!(processed >= u64::from(TASKS), "{processed} were processed");
    // Where one holder at a time is not promised, a server that is slow to renew can give a message to both.
    if queue.capabilities().exclusive == Strictness::Strict {
        assert!(runs.values().all(|runs| *runs == 1), "something ran twice");
        assert_eq!(processed, u64::from(TASKS));
    }
}

pub(crate) async fn a_shutdown_under_load_loses_nothing_and_burns_no_attempt(ground: Ground) {
    const TASKS: u32 = 400;
    /// What its calls may take on a busy machine; without an interruption it would be minutes.
    const LATE: Duration = Duration::from_secs(20);
    let drain = Duration::from_millis(200);
    let queue = ground.open().await;
    push(&queue, 0..TASKS).await;
    let attempts = Arc::new(Mutex::new(Vec::<(u32, u32, Option<u32>)>::new()));
    let done = Runs::default();
    let mut left = true;
    while left {
        let (attempts, done_by) = (attempts.clone(), done.clone());
        let handler = move |number: u32, task: TaskContext| {
            attempts.lock().unwrap().push((number, task.attempt(), task.delivery_count()));
            let done = done_by.clone();
            async move {
                // Some take longer than a shutdown waits, and are interrupted at first.
                let long = number.is_multiple_of(20) && !done.lock().unwrap().contains_key(&(number + 1));
                let takes = if long { Duration::from_mins(2) } else { Duration::from_millis(5) };
                tokio::time::sleep(takes).await;
                *done.lock().unwrap().entry(number).or_default() += 1;
                Ok(())
            }
        };
        let builder = builder(&queue).slots(16).prefetch(8).drain(drain, drain);
        let worker = builder.handler("k", handler).build().unwrap();
        let run = run(&worker);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let asked = Instant::now();
        worker.shutdown();
        let summary = run.await.unwrap();
        assert!(asked.elapsed() < drain * 2 + LATE, "the shutdown took {:?}", asked.elapsed());
        assert_eq!((summary.abandoned, summary.lost, summary.unsettled, summary.retried), (0, 0, 0, 0));
        let counts = queue.counts(PARTITION).await.unwrap();
        assert_eq!(counts.leased.unwrap_or(0), 0, "something is still held after the shutdown");
        left = done.lock().unwrap().len() < TASKS as usize;
    }
    let done = done.lock().unwrap();
    assert_eq!(done.len(), TASKS as usize);
    assert!(done.values().all(|times| *times == 1), "something was done twice");
    // Some count a delivery though it was released.
    let counts = queue.capabilities().delivery_count == DeliveryCount::ExceptReleases;
    let burnt: Vec<_> = attempts
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, attempt, count)| *attempt > 1 || (counts && *count > Some(1)))
        .copied()
        .collect();
    assert_eq!(burnt, [], "attempts were burnt");
}

pub(crate) async fn retries_and_deaths_carry_their_history(ground: Ground) {
    let queue = ground.open().await;
    let retry = Retry::exponential(Duration::from_millis(50)).max(2);
    let builder = builder(&queue).retry(retry);
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move |number: u32, task: TaskContext| {
        *count.lock().unwrap().entry(number).or_default() += 1;
        async move {
            assert_eq!(task.history().len() + 1, task.attempt() as usize);
            match (number, task.attempt()) {
                (0, 1..=2) | (1, _) => Err(TaskError::retry(format!("attempt {}", task.attempt()))),
                _ => Ok(()),
            }
        }
    };
    let worker = builder.handler("k", handler).build().unwrap();
    push(&queue, 0..2).await;
    let run = run(&worker);
    empty(&queue, 6, || total(&runs)).await;
    worker.shutdown();
    let summary = run.await.unwrap();
    assert_eq!((summary.processed, summary.dead, summary.retried), (1, 1, 4));
    let dead = queue.dead_letters(PARTITION).unwrap().list(Page::of(10)).await.unwrap();
    assert_eq!(dead[0].reason.as_deref(), Some("failed in attempt 3: attempt 3"));
    let kinds: Vec<_> = history(dead[0].message.headers()).iter().map(|failure| failure.kind).collect();
    assert_eq!(kinds, [FailureKind::Failed; 2]);
}

pub(crate) async fn a_hundred_kinds_in_fifty_partitions(ground: Ground) {
    const KINDS: u32 = 100;
    const PARTITIONS: u32 = 50;
    let queue = ground.open().await;
    let mut builder = Worker::builder(queue.clone()).slots(64);
    // By id: where a delivery may come twice, runs tell nothing of what has not come yet.
    let ran = Arc::new(Mutex::new(HashSet::new()));
    for kind in 0..KINDS {
        let ran = ran.clone();
        builder = builder.handler(&format!("kind-{kind}"), move |pushed: u32, task: TaskContext| {
            assert_eq!(pushed, kind);
            ran.lock().unwrap().insert(task.id());
            async { Ok(()) }
        });
    }
    for partition in 0..PARTITIONS {
        let name = format!("partition-{partition}");
        let messages = (0..KINDS).map(|kind| task(&format!("kind-{kind}"), &kind).unwrap()).collect();
        for answer in queue.push_many(&name, messages).await.unwrap() {
            answer.unwrap();
        }
        builder = builder.partition(Partition::new(name));
    }
    let worker = builder.build().unwrap();
    let run = run(&worker);
    let all_ran = async |all: u32| {
        while ran.lock().unwrap().len() < all as usize {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    all_ran(KINDS * PARTITIONS).await;
    // All is quiet now; what comes to any of them is still seen.
    for partition in [0, 17, PARTITIONS - 1] {
        queue.push(format!("partition-{partition}"), task("kind-1", &1).unwrap()).await.unwrap();
    }
    all_ran(KINDS * PARTITIONS + 3).await;
    worker.shutdown();
    let (processed, all) = (run.await.unwrap().processed, u64::from(KINDS * PARTITIONS + 3));
    assert!(
        processed == all || queue.capabilities().exclusive != Strictness::Strict,
        "{processed} were processed"
    );
}

pub(crate) async fn a_running_task_is_cancelled_by_its_id(ground: Ground) {
    let queue = ground.open().await;
    let (told, mut tells) = mpsc::channel(9);
    let handler = move |_: u32, task: TaskContext| {
        let told = told.clone();
        async move {
            told.send(None).await?;
            told.send(Some(task.cancelled().await)).await?;
            Err(TaskError::retry("cancelled"))
        }
    };
    let worker = builder(&queue).handler("k", handler).build().unwrap();
    let message = task("k", &1).unwrap();
    let id = message.id();
    queue.push(PARTITION, message).await.unwrap();
    let run = run(&worker);
    assert_eq!(tells.recv().await.unwrap(), None);
    queue.request_cancel(PARTITION, &[id]).await.unwrap();
    assert_eq!(tells.recv().await.unwrap(), Some(CancelReason::CancelRequested));
    empty(&queue, 1, || 1).await;
    worker.shutdown();
    assert_eq!(run.await.unwrap().cancelled, 1);
    assert_eq!(queue.pull(PARTITION).await.unwrap().len(), 0, "it is still there");
}
