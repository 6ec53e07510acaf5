//! Real workers that share a limit.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyqueue::{MessageData, Queue};
use anyqueue_control::limits::{Limit, Limits, PermitOptions};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Partition, TaskContext, TaskError, TaskResult, Worker, task};
use tokio::sync::watch;

use crate::bed::millis;
use crate::servers::PATIENCE;

/// How many run, and the most that ever did.
#[derive(Clone, Debug, Default)]
struct Meter(Arc<(AtomicUsize, AtomicUsize, AtomicUsize)>);

struct Run<'a>(&'a Meter);

impl Meter {
    fn begin(&self) -> Run<'_> {
        let (runs, most, begun) = &*self.0;
        most.fetch_max(runs.fetch_add(1, SeqCst) + 1, SeqCst);
        begun.fetch_add(1, SeqCst);
        Run(self)
    }

    fn most(&self) -> usize {
        self.0.1.load(SeqCst)
    }

    fn begun(&self) -> usize {
        self.0.2.load(SeqCst)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, SeqCst);
    }
}

fn often() -> PermitOptions {
    PermitOptions::default().with_every(millis(100))
}

fn worker(memory: &MemoryQueue, name: &str, meter: &Meter) -> Worker {
    let queue = Queue::new(memory.client()).unwrap();
    let permits = Limits::new(queue.control().unwrap()).permits(often()).unwrap();
    let meter = meter.clone();
    let run = move |how: String, _: TaskContext| {
        let meter = meter.clone();
        async move {
            let _run = meter.begin();
            tokio::time::sleep(millis(fastrand::u64(0..5))).await;
            end(&how)
        }
    };
    let builder = Worker::builder(queue).partition(Partition::new("mail")).handler("run", run);
    builder.name(name.to_owned()).slots(10).permits(permits).build().unwrap()
}

fn end(how: &str) -> TaskResult {
    match how {
        "panics" => panic!("as it was told"),
        "fails" => Err(TaskError::permanent("as it was told")),
        _ => Ok(()),
    }
}

async fn push(queue: &Queue, tasks: usize) {
    for batch in 0..tasks / 100 {
        let how = ["done", "done", "done", "panics", "fails"];
        let one = |n| task("run", &how[(batch + n) % 5]).unwrap().with_max_retries(0);
        let all: Vec<MessageData> = (0..100).map(one).collect();
        for pushed in queue.push_many("mail", all).await.unwrap() {
            pushed.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_never_exceed_a_cap_and_do_everything() {
    const TASKS: usize = 2_000;
    let memory = MemoryQueue::new();
    let queue = Queue::new(memory.client()).unwrap();
    let limits = Limits::new(queue.control().unwrap());
    limits.put("l", &Limit::partition("mail").unwrap().cap(7)).await.unwrap();
    push(&queue, TASKS).await;
    let meter = Meter::default();
    let workers: Vec<_> = ["a", "b", "c"].map(|name| worker(&memory, name, &meter)).into();
    let runs: Vec<_> = workers
        .iter()
        .map(|worker| {
            let worker = worker.clone();
            tokio::spawn(async move { worker.run_once().await.unwrap() })
        })
        .collect();
    let mut ended = 0;
    for run in runs {
        let summary = run.await.unwrap();
        ended += summary.processed + summary.dead + summary.retried;
    }
    assert!(ended >= TASKS as u64, "{ended}");
    assert_eq!(queue.counts("mail").await.unwrap().ready, Some(0));
    assert!((5..=7).contains(&meter.most()), "{}", meter.most());
    assert!(limits.get("l").await.unwrap().unwrap().holders.is_empty(), "nothing leaks");
}

/// Unlike `run_once`, `run` lets settlements bring the next tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_never_exceed_a_cap_whose_permits_pass_on() {
    const TASKS: usize = 2_000;
    let memory = MemoryQueue::new();
    let queue = Queue::new(memory.client()).unwrap();
    let limits = Limits::new(queue.control().unwrap());
    limits.put("l", &Limit::partition("mail").unwrap().cap(7)).await.unwrap();
    push(&queue, TASKS).await;
    let meter = Meter::default();
    let mut runs = Vec::new();
    for name in ["a", "b", "c"] {
        let worker = worker(&memory, name, &meter);
        runs.push((worker.clone(), tokio::spawn(async move { worker.run_until(pending()).await.unwrap() })));
    }
    let since = Instant::now();
    while meter.begun() < TASKS {
        assert!(since.elapsed() < PATIENCE, "{} have begun", meter.begun());
        tokio::time::sleep(millis(20)).await;
    }
    let mut ended = 0;
    for (worker, run) in runs {
        worker.shutdown();
        let summary = run.await.unwrap();
        ended += summary.processed + summary.dead;
        assert_eq!((summary.retried, summary.lost), (0, 0), "{summary:?}");
    }
    assert_eq!((ended, meter.begun()), (TASKS as u64, TASKS), "each once");
    assert!((5..=7).contains(&meter.most()), "{}", meter.most());
    assert!(limits.get("l").await.unwrap().unwrap().holders.is_empty(), "nothing leaks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_do_not_start_faster_than_a_rate_and_do_everything() {
    let memory = MemoryQueue::new();
    let queue = Queue::new(memory.client()).unwrap();
    let limits = Limits::new(queue.control().unwrap());
    limits.put("l", &Limit::partition("mail").unwrap().rate(100.0, 10)).await.unwrap();
    push(&queue, 100).await;
    let meter = Meter::default();
    let workers: Vec<_> = ["a", "b"].map(|name| worker(&memory, name, &meter)).into();
    let began = Instant::now();
    let runs: Vec<_> = workers
        .iter()
        .map(|worker| {
            let worker = worker.clone();
            tokio::spawn(async move { worker.run_once().await.unwrap() })
        })
        .collect();
    for run in runs {
        run.await.unwrap();
    }
    assert!(meter.begun() >= 100);
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_customer_holds_up_no_other_and_never_exceeds_its_cap() {
    const FULL: usize = 40;
    const OTHERS: usize = 200;
    const CAP: u64 = 2;
    let memory = MemoryQueue::new();
    let queue = Queue::new(memory.client()).unwrap();
    let limits = Limits::new(queue.control().unwrap());
    limits.put("l", &Limit::each("customer").unwrap().cap(CAP)).await.unwrap();
    let message = |customer: String| task("run", &customer).unwrap().with_header("customer", customer);
    // All of the full one stand first in the queue.
    let all = (0..FULL).map(|_| message("full".to_owned()));
    let all = all.chain((0..OTHERS).map(|number| message(format!("c{number}"))));
    for pushed in queue.push_many("mail", all.collect()).await.unwrap() {
        pushed.unwrap();
    }
    let (full, others) = (Meter::default(), Meter::default());
    // Those of the full one wait for the last of the others: held up by them, it would never come.
    let others_begun = watch::Sender::new(0);
    let mut runs = Vec::new();
    for name in ["a", "b", "c"] {
        let queue = Queue::new(memory.client()).unwrap();
        let permits = Limits::new(queue.control().unwrap()).permits(often()).unwrap();
        let (full, others, begun) = (full.clone(), others.clone(), others_begun.clone());
        let run = move |customer: String, _: TaskContext| {
            let (full, others, begun) = (full.clone(), others.clone(), begun.clone());
            async move {
                if customer == "full" {
                    let _run = full.begin();
                    begun.subscribe().wait_for(|begun| *begun == OTHERS).await?;
                    tokio::time::sleep(millis(10)).await;
                } else {
                    let _run = others.begin();
                    begun.send_modify(|begun| *begun += 1);
                    tokio::time::sleep(millis(1)).await;
                }
                TaskResult::Ok(())
            }
        };
        let builder = Worker::builder(queue).partition(Partition::new("mail")).handler("run", run);
        let worker = builder.name(name).slots(8).permits(permits).build().unwrap();
        runs.push((worker.clone(), tokio::spawn(async move { worker.run().await.unwrap() })));
    }
    let since = Instant::now();
    while full.begun() < FULL || others.begun() < OTHERS {
        assert!(since.elapsed() < PATIENCE, "{} and {}", full.begun(), others.begun());
        tokio::time::sleep(millis(20)).await;
    }
    for (worker, run) in runs {
        worker.shutdown();
        let summary = run.await.unwrap();
        assert_eq!((summary.retried, summary.dead), (0, 0), "waiting is not counted: {summary:?}");
    }
    assert!((1..=usize::try_from(CAP).unwrap()).contains(&full.most()), "{} ran at once", full.most());
    assert_eq!(limits.get("l").await.unwrap().unwrap().held, 0, "nothing leaks");
}
