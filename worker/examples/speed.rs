//! How fast a worker drains a queue, and how soon it starts a task, beside the bare `Queue`: `speed [BACKEND] [MESSAGES]`.
//!
//! Both sides run in turns, in one process, on queues of their own; medians of five rounds are printed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program for measuring may stop at anything"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::{Bytes, MessageData, Queue, Storage};
use anyqueue_postgres::PostgresQueue;
use anyqueue_sqlite::SqliteQueue;
use anyqueue_testkit::{Postgres, Server};
use anyqueue_worker::{Partition, TaskContext, Worker, task};
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

const SLOTS: usize = 64;
const ROUNDS: usize = 5;
const PINGS: usize = 200;

#[tokio::main]
async fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_else(|| "memory".to_owned());
    let messages = std::env::args().nth(2).and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let folder = tempfile::tempdir_in(".").unwrap();
    let server =
        if wanted == "postgres" { Some(Server::start(Postgres::new()).await.unwrap()) } else { None };
    let open = async |number: usize| -> Queue {
        let storage: Arc<dyn Storage> = match (wanted.as_str(), &server) {
            ("memory", _) => Arc::new(anyqueue_memory::MemoryQueue::new()),
            ("sqlite", _) => {
                Arc::new(SqliteQueue::open(folder.path().join(format!("{number}.db"))).await.unwrap())
            }
            (_, Some(server)) => {
                let url = format!("{}?schema=speed_{number}", server.url());
                Arc::new(PostgresQueue::open(&url).await.unwrap())
            }
            _ => panic!("memory, sqlite or postgres, not {wanted:?}"),
        };
        let queue = Queue::new(storage).unwrap();
        queue.init().await.unwrap();
        queue
    };
    let (mut bare, mut worked) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS * 2 {
        let queue = open(round).await;
        fill(&queue, messages).await;
        // On a worker thread, where applications' tasks are.
        if round % 4 == 0 || round % 4 == 3 {
            bare.push(tokio::spawn(drain(queue.clone(), messages)).await.unwrap());
        } else {
            worked.push(tokio::spawn(work(queue.clone(), messages)).await.unwrap());
        }
        let counts = queue.counts("speed").await.unwrap();
        assert_eq!((counts.ready, counts.leased), (Some(0), Some(0)));
        queue.close().await.unwrap();
    }
    let (bare, worked) = (rate(messages, &mut bare), rate(messages, &mut worked));
    println!(
        "{wanted}: drain {messages}: bare {bare:.0}/s, worker {worked:.0}/s, ratio {:.3}",
        worked / bare
    );
    let bare = tokio::spawn(bare_pings(open(100).await)).await.unwrap();
    let worked = tokio::spawn(worker_pings(open(101).await)).await.unwrap();
    println!("{wanted}: push to begin, p50: bare {bare:?}, worker {worked:?}");
}

fn message(payload: &str) -> MessageData {
    task("noop", &payload).unwrap()
}

async fn fill(queue: &Queue, messages: usize) {
    for start in (0..messages).step_by(1000) {
        let batch = (start..messages.min(start + 1000)).map(|_| message("x")).collect();
        for answer in queue.push_many("speed", batch).await.unwrap() {
            answer.unwrap();
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn rate(messages: usize, times: &mut [Duration]) -> f64 {
    times.sort();
    messages as f64 / times[times.len() / 2].as_secs_f64()
}

/// One stream feeds as many tasks as there would be slots; each settles on its own.
async fn drain(queue: Queue, messages: usize) -> Duration {
    let begin = Instant::now();
    let mut stream = queue.stream("speed").window(SLOTS).build().unwrap();
    let mut tasks = JoinSet::new();
    let hands: Vec<_> = (0..SLOTS)
        .map(|_| {
            let (hand, mut taken) = mpsc::channel::<anyqueue::QueueMessageHandler>(1);
            tasks.spawn(async move {
                while let Some(mut delivery) = taken.recv().await {
                    delivery.settle(Processed).await.unwrap();
                }
            });
            hand
        })
        .collect();
    for hand in hands.iter().cycle().take(messages) {
        hand.send(stream.next().await.unwrap().unwrap()).await.unwrap();
    }
    drop(hands);
    while tasks.join_next().await.is_some() {}
    begin.elapsed()
}

fn worker(queue: Queue, begun: impl Fn() + Clone + Send + Sync + 'static) -> Worker {
    let handler = move |_: Bytes, _: TaskContext| {
        begun();
        async { Ok(()) }
    };
    let builder = Worker::builder(queue).partition(Partition::new("speed")).slots(SLOTS);
    builder.raw_handler("noop", handler).build().unwrap()
}

async fn work(queue: Queue, messages: usize) -> Duration {
    let left = Arc::new(AtomicUsize::new(messages));
    let done = Arc::new(Notify::new());
    let worker = worker(queue, {
        let done = done.clone();
        move || {
            if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                done.notify_one();
            }
        }
    });
    let begin = Instant::now();
    let summary = worker.run_until(async move { done.notified().await }).await.unwrap();
    assert_eq!(summary.processed, messages as u64);
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Between a push and the next, so that everybody sleeps again.
const PAUSE: Duration = Duration::from_millis(5);

async fn bare_pings(queue: Queue) -> Duration {
    let (begun, mut begins) = mpsc::channel(1);
    let puller = queue.clone();
    tokio::spawn(async move {
        for _ in 0..PINGS {
            let mut held = puller.pull("speed").wait(Duration::from_secs(20)).await.unwrap();
            begun.send(Instant::now()).await.unwrap();
            held[0].settle(Processed).await.unwrap();
        }
    });
    ping(&queue, &mut begins).await
}

async fn worker_pings(queue: Queue) -> Duration {
    let (begun, mut begins) = mpsc::channel(1);
    let worker = worker(queue.clone(), move || begun.try_send(Instant::now()).unwrap());
    let run = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run_until(std::future::pending()).await }
    });
    let median = ping(&queue, &mut begins).await;
    worker.shutdown();
    run.await.unwrap().unwrap();
    median
}

async fn ping(queue: &Queue, begins: &mut mpsc::Receiver<Instant>) -> Duration {
    let mut times = Vec::new();
    for _ in 0..PINGS {
        tokio::time::sleep(PAUSE).await;
        let pushed_at = Instant::now();
        queue.push("speed", message("ping")).await.unwrap();
        times.push(begins.recv().await.unwrap() - pushed_at);
    }
    median(times)
}
