//! How fast a worker drains a queue, and how soon it starts a task, beside the bare `Queue`: `speed [BACKEND] [MESSAGES] [ROUNDS]`.
//!
//! Both sides run in turns, in one process, on queues of their own; medians of all rounds are printed, as one line of JSON, and for
//! the start of a task also the least and the most of the rounds' differences.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program for measuring may stop at anything"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::{Bytes, MessageData, Queue};
use anyqueue_testkit::{Postgres, RabbitMq, Redis, Server};
use anyqueue_worker::{Partition, TaskContext, Worker, task};
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

const SLOTS: usize = 64;
const PINGS: usize = 200;

/// Where the queues are.
struct Place<'a> {
    backend: &'a str,
    server: Option<Server>,
    folder: &'a Path,
}

impl<'a> Place<'a> {
    async fn prepare(backend: &'a str, folder: &'a Path) -> Self {
        let server = match backend {
            "postgres" => Some(Server::start(Postgres::new()).await.unwrap()),
            "redis" => Some(Server::start(Redis::new().setting("appendfsync", "everysec")).await.unwrap()),
            "rabbitmq" => Some(Server::start(RabbitMq::new()).await.unwrap()),
            _ => None,
        };
        Self { backend, server, folder }
    }

    fn url(&self, number: usize) -> String {
        let server = self.server.as_ref().map(Server::url).unwrap_or_default();
        match self.backend {
            "memory" => "memory:".to_owned(),
            "sqlite" => format!("sqlite:{}", self.folder.join(format!("{number}.db")).display()),
            "postgres" => format!("{server}?schema=speed_{number}"),
            "redis" => format!("{server}?prefix=speed_{number}"),
            "rabbitmq" => format!("{server}?prefix=speed_{number}&prefetch=64"),
            other => panic!("memory, sqlite, postgres, redis or rabbitmq, not {other:?}"),
        }
    }

    async fn open(&self, number: usize) -> Queue {
        let queue = Queue::new(anyqueue_backends::open(&self.url(number)).await.unwrap()).unwrap();
        queue.init().await.unwrap();
        queue
    }
}

#[tokio::main]
async fn main() {
    let backend = std::env::args().nth(1).unwrap_or_else(|| "memory".to_owned());
    let number = |place| std::env::args().nth(place).and_then(|number| number.parse().ok());
    let (messages, rounds) = (number(2).unwrap_or(60_000), number(3).unwrap_or(9));
    let folder = tempfile::tempdir_in(".").unwrap();
    let place = Place::prepare(&backend, folder.path()).await;
    let (mut bare, mut worked) = (Vec::new(), Vec::new());
    for round in 0..rounds * 2 {
        let queue = place.open(round).await;
        fill(&queue, messages).await;
        // On a worker thread, where applications' tasks are.
        if round % 4 == 0 || round % 4 == 3 {
            bare.push(tokio::spawn(drain(queue.clone(), messages)).await.unwrap());
        } else {
            worked.push(tokio::spawn(work(queue.clone(), messages)).await.unwrap());
        }
        assert!(queue.pull("speed").await.unwrap().is_empty(), "something is left");
        queue.close().await.unwrap();
    }
    let (bare, worked) = (rate(messages, &mut bare), rate(messages, &mut worked));
    let (mut bare_ping, mut worker_ping) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        bare_ping.push(tokio::spawn(bare_pings(place.open(1000 + round).await)).await.unwrap());
        worker_ping.push(tokio::spawn(worker_pings(place.open(2000 + round).await)).await.unwrap());
    }
    let pairs = worker_ping.iter().zip(&bare_ping);
    let mut above: Vec<_> = pairs.map(|(worker, bare)| milliseconds(*worker) - milliseconds(*bare)).collect();
    above.sort_by(f64::total_cmp);
    let cores = std::thread::available_parallelism().unwrap();
    let line = serde_json::json!({
        "hardware": format!("{cores} cores, {}", std::env::consts::ARCH),
        "server": place.server.as_ref().map(Server::version),
        "backend": backend, "messages": messages, "rounds": rounds, "slots": SLOTS,
        "bare_per_s": bare.round(), "worker_per_s": worked.round(), "ratio": worked / bare,
        "bare_p50_ms": milliseconds(median(bare_ping)), "worker_p50_ms": milliseconds(median(worker_ping)),
        "above_p50_ms": {"median": above[rounds / 2], "least": above[0], "most": above[rounds - 1]},
    });
    println!("{line}");
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
            let (hand, mut taken) = mpsc::channel::<anyqueue::Delivery>(1);
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

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
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
