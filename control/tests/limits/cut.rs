//! Networks between a worker and its store on a real server that are cut, or a black hole: its permits and beats end in time, it loses nothing, and goes on.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyqueue::{PartitionOptions, Queue};
use anyqueue_control::limits::{Limit, Limits, PermitOptions};
use anyqueue_control::registry::{MemberOptions, Registry};
use anyqueue_testkit::{Fault, Postgres, Program, Proxy, Redis, start_if_installed};
use anyqueue_worker::{CancelReason, Partition, Summary, TaskContext, TaskError, Worker, task};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_secs(1);
/// How long permits and beats count; half of the last sixth is what a task has to stop.
const VALID: Duration = Duration::from_secs(6);
const LEASE: Duration = Duration::from_secs(5);
/// What a busy machine may add.
const LATE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_mins(2);
const CAP: usize = 2;
const TASKS: usize = 4;

/// What is cut, and how.
#[derive(Clone, Copy, Debug)]
struct Case {
    fault: Fault,
    /// Also the way to the messages, else the one to limits and registry alone.
    whole: bool,
}

const CASES: [Case; 4] = [
    Case { fault: Fault::Refuse, whole: false },
    Case { fault: Fault::Refuse, whole: true },
    Case { fault: Fault::Stall, whole: false },
    Case { fault: Fault::Stall, whole: true },
];

/// What happened to the tasks.
#[derive(Debug)]
struct Seen {
    /// Of what is limited.
    running: AtomicUsize,
    most: AtomicUsize,
    /// The workers that began one.
    begun: Mutex<Vec<String>>,
    stopped: Mutex<Vec<CancelReason>>,
    done: Mutex<Vec<usize>>,
    open: watch::Sender<bool>,
}

impl Seen {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            begun: Mutex::default(),
            stopped: Mutex::default(),
            done: Mutex::default(),
            open: watch::Sender::new(false),
        })
    }

    /// Runs a task until it is let go, or asked to stop.
    async fn hold(&self, who: &str, number: usize, context: &TaskContext) -> Result<(), TaskError> {
        let counts = usize::from(context.partition().name() == "mail");
        self.most.fetch_max(self.running.fetch_add(counts, SeqCst) + counts, SeqCst);
        self.begun.lock().unwrap().push(who.to_owned());
        let mut open = self.open.subscribe();
        let stopped = tokio::select! {
            reason = context.cancelled() => Some(reason),
            _ = open.wait_for(|is_open| *is_open) => None,
        };
        self.running.fetch_sub(counts, SeqCst);
        if let Some(reason) = stopped {
            self.stopped.lock().unwrap().push(reason);
            return Err(TaskError::retry("asked to stop"));
        }
        self.done.lock().unwrap().push(number);
        Ok(())
    }

    fn begun_by(&self, who: &str) -> usize {
        self.begun.lock().unwrap().iter().filter(|by| *by == who).count()
    }

    fn is_done(&self, tasks: std::ops::Range<usize>) -> bool {
        let mut done = self.done.lock().unwrap().clone();
        done.sort_unstable();
        assert!(done.windows(2).all(|pair| pair[0] != pair[1]), "done twice: {done:?}");
        tasks.into_iter().all(|number| done.contains(&number))
    }
}

async fn open(url: &str) -> Queue {
    let storage = anyqueue_backends::open(url).await.unwrap();
    let options = PartitionOptions::default().with_lease(LEASE);
    let queue = Queue::builder(storage).defaults(options).build().unwrap();
    queue.init().await.unwrap();
    queue
}

/// Looks until it is so. Returns after how long.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !is_so().await {
        assert!(since.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    since.elapsed()
}

/// Runs a worker in the registry, with permits, both in the store of `control`.
async fn start(
    queue: Queue,
    control: &Queue,
    (name, partitions): (&'static str, &[&str]),
    seen: &Arc<Seen>,
) -> (Worker, JoinHandle<Summary>) {
    let options = PermitOptions::default().with_every(EVERY).with_valid_for(VALID);
    let permits = Limits::new(control.control().unwrap()).permits(options).unwrap();
    let seen = seen.clone();
    let hold = move |number: usize, context: TaskContext| {
        let seen = seen.clone();
        async move { seen.hold(name, number, &context).await }
    };
    let mut builder = Worker::builder(queue).name(name).slots(8).handler("hold", hold).permits(permits);
    for partition in partitions {
        builder = builder.partition(Partition::new(*partition));
    }
    let worker = builder.build().unwrap();
    let options = MemberOptions::default().with_every(EVERY).with_valid_for(VALID);
    let member = Registry::new(control.control().unwrap()).join(&worker, options).await.unwrap();
    let run = worker.clone();
    let running =
        tokio::spawn(async move { member.during(run.run_until(std::future::pending())).await.0.unwrap() });
    (worker, running)
}

async fn push(queue: &Queue, partition: &str, tasks: std::ops::Range<usize>) {
    for number in tasks {
        queue.push(partition, task("hold", &number).unwrap()).await.unwrap();
    }
}

async fn is_empty(queue: &Queue) -> bool {
    let counts = queue.counts("mail").await.unwrap();
    [counts.ready, counts.leased, counts.delayed].iter().all(|count| *count == Some(0))
}

/// A worker is cut off while it runs two of four tasks; another one takes over, and the first one is back when the way is free.
async fn a_worker_is_cut_off(case: Case, direct: &str, through: &str, proxy: &Proxy) {
    let (queue, behind) = (open(direct).await, open(through).await);
    let (limits, registry) = (Limits::new(queue.control().unwrap()), Registry::new(queue.control().unwrap()));
    let names = async || -> Vec<String> {
        registry.list().await.unwrap().workers.into_iter().map(|worker| worker.name).collect()
    };
    limits.put("l", &Limit::partition("mail").unwrap().cap(CAP as u64)).await.unwrap();
    let seen = Seen::new();
    push(&queue, "mail", 0..TASKS).await;
    let of_a = if case.whole { behind.clone() } else { open(direct).await };
    let (a, a_running) = start(of_a, &behind, ("a", &["mail", "free"]), &seen).await;
    until("two run", async || seen.begun_by("a") == CAP).await;
    let (b, b_running) = start(open(direct).await, &queue, ("b", &["mail"]), &seen).await;
    until("both are registered", async || names().await == ["a", "b"]).await;

    proxy.set(case.fault).await.unwrap();
    if case.fault == Fault::Refuse {
        proxy.cut_all();
    }
    let took = until("its tasks are stopped", async || seen.stopped.lock().unwrap().len() >= CAP).await;
    assert!(took <= VALID + LATE, "{case:?}: stopped after {took:?}");
    until("it says why", async || a.health().permits.is_some()).await;
    until("another one has its permits", async || seen.begun_by("b") >= CAP).await;
    if !case.whole {
        assert!(seen.stopped.lock().unwrap().iter().all(|why| *why == CancelReason::PermitLost), "{seen:?}");
        push(&queue, "free", 100..101).await;
        until("what no limit is for goes on", async || seen.begun_by("a") == CAP + 1).await;
    }
    until("it is missed", async || {
        let lost = registry.lost().await.unwrap();
        lost.iter().any(|lost| lost.name == "a") && names().await == ["b"]
    })
    .await;
    assert_eq!(seen.begun_by("a"), CAP + usize::from(!case.whole), "{case:?}: it starts nothing");

    proxy.set(Fault::Pass).await.unwrap();
    until("it is back", async || names().await == ["a", "b"] && a.health().permits.is_none()).await;
    seen.open.send_replace(true);
    until("all is done", async || seen.is_done(0..TASKS) && is_empty(&queue).await).await;
    b.shutdown();
    assert_eq!(b_running.await.unwrap().dead, 0);
    push(&queue, "mail", TASKS..3 * TASKS).await;
    until("it goes on", async || seen.is_done(0..3 * TASKS) && is_empty(&queue).await).await;
    assert!(seen.most.load(SeqCst) <= CAP, "{case:?}: {seen:?}");
    a.shutdown();
    let summary = a_running.await.unwrap();
    assert_eq!((summary.retried, summary.dead), (0, 0), "{case:?}: {summary:?}");
    let (limit, left) = (limits.get("l").await.unwrap().unwrap(), names().await);
    assert!(limit.holders.is_empty() && left.is_empty(), "{case:?}: {limit:?}, {left:?}");
    queue.close().await.unwrap();
}

/// All cases at once, each in a place and behind a proxy of its own.
async fn all(program: impl Program, option: &str) {
    let Some(server) = start_if_installed(program).await.unwrap() else { return };
    let cases = CASES.into_iter().enumerate().map(|(number, case)| {
        let server = &server;
        async move {
            let proxy = Proxy::start(server.addr()).unwrap();
            let direct = format!("{}?{option}=cut_{number}", server.url());
            let through = direct.replace(&server.addr().to_string(), &proxy.addr().to_string());
            a_worker_is_cut_off(case, &direct, &through, &proxy).await;
        }
    });
    futures_util::future::join_all(cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_cut_off_from_postgres_stops_in_time_and_goes_on_after() {
    all(Postgres::new(), "schema").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_cut_off_from_redis_stops_in_time_and_goes_on_after() {
    all(Redis::new(), "prefix").await;
}
