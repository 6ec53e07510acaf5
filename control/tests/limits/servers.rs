//! Workers with connections of their own share limits in real stores.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyqueue::{MessageData, Queue};
use anyqueue_control::limits::{Limit, Limits, PermitOptions};
use anyqueue_testkit::{Postgres, Provided, Redis, provide};
use anyqueue_worker::{Partition, TaskContext, Worker, task};
use tokio::sync::watch;

use crate::bed::millis;

const CAP: usize = 7;
const CAPPED_TASKS: usize = 600;
/// So many of them run at once before any may end: however slow the machine is, they meet.
const MEET: usize = CAP - 2;
/// A second, and at once.
const RATE: (f64, u64) = (50.0, 10);
const RATED_TASKS: usize = 150;
/// How much closer together tasks may start than they were granted: a busy machine lets some of them start late.
pub(crate) const LATE: Duration = Duration::from_millis(500);
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// What ran: how many do, the most that ever did, and when each began.
#[derive(Debug, Default)]
struct Seen {
    running: AtomicUsize,
    most: watch::Sender<usize>,
    begun: Mutex<Vec<(String, Instant)>>,
}

impl Seen {
    /// Runs a task that ends once so many have run at once.
    async fn run(&self, who: String, meet: usize) {
        let running = self.running.fetch_add(1, SeqCst) + 1;
        self.most.send_if_modified(|most| {
            let is_more = running > *most;
            *most = running.max(*most);
            is_more
        });
        self.begun.lock().unwrap().push((who, Instant::now()));
        self.most.subscribe().wait_for(|most| *most >= meet).await.unwrap();
        tokio::time::sleep(millis(fastrand::u64(1..20))).await;
        self.running.fetch_sub(1, SeqCst);
    }
}

pub(crate) async fn open(url: &str) -> Queue {
    let queue = Queue::new(anyqueue_backends::open(url).await.unwrap()).unwrap();
    queue.init().await.unwrap();
    queue
}

async fn worker(url: &str, name: &'static str, seen: Arc<Seen>, meet: usize) -> Worker {
    let queue = open(url).await;
    let options = PermitOptions::default().with_every(millis(100));
    let permits = Limits::new(queue.control().unwrap()).permits(options).unwrap();
    let run = move |(): (), _: TaskContext| {
        let seen = seen.clone();
        async move {
            seen.run(name.to_owned(), meet).await;
            Ok(())
        }
    };
    let builder = Worker::builder(queue).partition(Partition::new("mail")).handler("run", run);
    builder.name(name).slots(10).permits(permits).build().unwrap()
}

/// Three workers do all tasks under a limit, and hold nothing of it at the end.
async fn work(url: &str, limit: &Limit, tasks: usize, meet: usize) -> Arc<Seen> {
    let queue = open(url).await;
    let limits = Limits::new(queue.control().unwrap());
    limits.put("l", limit).await.unwrap();
    let all: Vec<MessageData> = (0..tasks).map(|_| task("run", &()).unwrap()).collect();
    for pushed in queue.push_many("mail", all).await.unwrap() {
        pushed.unwrap();
    }
    let seen = Arc::new(Seen::default());
    let mut runs = tokio::task::JoinSet::new();
    for name in ["a", "b", "c"] {
        let worker = worker(url, name, seen.clone(), meet).await;
        runs.spawn(async move { worker.run_once().await.unwrap() });
    }
    let summaries = tokio::time::timeout(PATIENCE, runs.join_all()).await.unwrap();
    assert_eq!(summaries.iter().map(|summary| summary.processed).sum::<u64>(), tasks as u64);
    assert!(limits.get("l").await.unwrap().unwrap().holders.is_empty(), "nothing leaks");
    queue.close().await.unwrap();
    seen
}

async fn a_cap_holds(url: &str) {
    let limit = Limit::partition("mail").unwrap().cap(CAP as u64);
    let seen = work(url, &limit, CAPPED_TASKS, MEET).await;
    let most = *seen.most.borrow();
    assert!((MEET..=CAP).contains(&most), "{most} ran at once");
}

/// From whichever moment counted, not more start than the burst and the rate allow.
async fn a_rate_holds(url: &str) {
    let (per_second, burst) = RATE;
    let limit = Limit::partition("mail").unwrap().rate(per_second, burst);
    let seen = work(url, &limit, RATED_TASKS, 1).await;
    let begun = seen.begun.lock().unwrap();
    assert_eq!(begun.len(), RATED_TASKS);
    for (place, (_, from)) in begun.iter().enumerate() {
        for (count, (_, until)) in begun[place..].iter().enumerate() {
            let time = (until.saturating_duration_since(*from) + LATE).as_secs_f64();
            let most = burst as f64 + per_second * time;
            assert!((count + 1) as f64 <= most, "{} started in {time} s", count + 1);
        }
    }
}

/// A place of a test's own on a server; none: the machine is told to do without it.
pub(crate) fn place(server: &Provided, option: &str, what: &str) -> Option<String> {
    let url = server.url()?;
    let separator = if url.contains('?') { '&' } else { '?' };
    Some(format!("{url}{separator}{option}=limits_{what}_{}", std::process::id()))
}

#[tokio::test]
async fn a_cap_holds_on_postgres() {
    let server = provide(Postgres::new()).await.unwrap();
    let Some(url) = place(&server, "schema", "cap") else { return };
    a_cap_holds(&url).await;
}

#[tokio::test]
async fn a_cap_holds_on_redis() {
    let server = provide(Redis::new()).await.unwrap();
    let Some(url) = place(&server, "prefix", "cap") else { return };
    a_cap_holds(&url).await;
}

#[tokio::test]
async fn a_rate_holds_on_postgres() {
    let server = provide(Postgres::new()).await.unwrap();
    let Some(url) = place(&server, "schema", "rate") else { return };
    a_rate_holds(&url).await;
}

#[tokio::test]
async fn a_rate_holds_on_redis() {
    let server = provide(Redis::new()).await.unwrap();
    let Some(url) = place(&server, "prefix", "rate") else { return };
    a_rate_holds(&url).await;
}
