//! Three nodes, of which one dies at a step of its work and another one freezes there: each time is run once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::Storage;
use anyqueue::{PartitionId, Queue, QueueMessageStatus};
use anyqueue_control::cron::{AT_HEADER, Missed, Running, Schedule, Scheduler};
use anyqueue_testkit::{Ministack, Postgres, Redis, provide};
use futures_util::future::join_all;

use crate::bed::{Node, TASKS, timetable};
use crate::cut::{Cut, How};

/// The calls of a node at which it is cut: its work on the first ticks that it gets.
const STEPS: std::ops::Range<usize> = 0..8;
/// Times that are to be run: a node that dies, and one that freezes, hold up the tick for ten seconds each.
const TIMES: usize = 30;
const PATIENCE: Duration = Duration::from_mins(3);

/// Where the schedules are kept, and the queue of their tasks if that is another one.
struct Place {
    home: String,
    tasks: Option<String>,
}

impl Place {
    fn of(home: String) -> Self {
        Self { home, tasks: None }
    }
}

/// One of three nodes dies at this call, another one freezes at it and wakes later.
async fn each_time_is_run_once(place: &Place, at: usize) {
    let home = open(&place.home).await;
    let beside = match &place.tasks {
        Some(tasks) => Some(open(tasks).await),
        None => None,
    };
    let over = |home: &Queue| match &beside {
        Some(tasks) => Scheduler::beside(tasks, home).unwrap(),
        None => Scheduler::new(home).unwrap(),
    };
    let scheduler = over(&home);
    let to = PartitionId::new(TASKS).unwrap();
    let schedule = Schedule::new("a", timetable("* * * * * *"), to).with_running(Running::Allow);
    scheduler.put(&schedule.with_missed(Missed::All(99))).await.unwrap();
    let cut = async |how| Cut::over(anyqueue_backends::open(&place.home).await.unwrap(), at, how);
    let (dies, freezes) = (cut(How::DiesBefore).await, cut(How::Freezes).await);
    let nodes = [&dies, &freezes].map(|cut| {
        // Who is frozen notices no time-out.
        let home = Queue::builder(cut.clone() as Arc<dyn Storage>).call_timeout(2 * PATIENCE);
        Node::start(over(&home.build().unwrap()))
    });
    let plain = Node::start(scheduler);

    let tasks = beside.as_ref().unwrap_or(&home);
    let (begin, mut runs) = (Instant::now(), BTreeMap::<String, usize>::new());
    let mut woken_at = None;
    while woken_at.is_none_or(|woken| runs.len() < woken + TIMES / 3) {
        assert!(begin.elapsed() < PATIENCE, "at {at}: {runs:?}");
        for mut task in tasks.pull(TASKS).max(10).wait(Duration::from_secs(1)).await.unwrap() {
            *runs.entry(task.headers()[AT_HEADER].clone()).or_default() += 1;
            task.settle(QueueMessageStatus::Processed).await.unwrap();
        }
        if woken_at.is_none() && runs.len() >= TIMES && dies.has_met_it() && freezes.has_met_it() {
            freezes.thaw();
            woken_at = Some(runs.len());
        }
    }
    plain.stop().await;
    for node in nodes {
        node.kill().await;
    }
    assert!(runs.values().all(|count| *count == 1), "at {at}: {runs:?}");
    let times: Vec<_> = runs.keys().map(|at| humantime::parse_rfc3339(at).unwrap()).collect();
    let is_next = |pair: &[_]| matches!(pair, [one, next] if *one + Duration::from_secs(1) == *next);
    assert!(times.windows(2).all(is_next), "at {at}: no time is left out: {runs:?}");
}

async fn open(url: &str) -> Queue {
    let queue = Queue::new(anyqueue_backends::open(url).await.unwrap()).unwrap();
    queue.init().await.unwrap();
    queue
}

/// All steps at once, each in a place of its own.
async fn at_each_step(place: impl Fn(usize) -> Place) {
    join_all(STEPS.map(|at| {
        let place = place(at);
        async move { each_time_is_run_once(&place, at).await }
    }))
    .await;
}

/// A place on a server: its URL with more options, which name it.
fn on(url: &str, options: &str) -> Place {
    let separator = if url.contains('?') { '&' } else { '?' };
    Place::of(format!("{url}{separator}{options}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_die_and_freeze_at_any_step_run_each_time_once_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    at_each_step(|at| Place::of(format!("sqlite:{}", folder.path().join(format!("{at}.db")).display())))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_die_and_freeze_at_any_step_run_each_time_once_on_postgres() {
    let server = provide(Postgres::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    let process = std::process::id();
    // Few connections for each of the nodes: together they are not to use up those of the server.
    at_each_step(|at| on(url, &format!("schema=cron_step_{process}_{at}&max_connections=2"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_die_and_freeze_at_any_step_run_each_time_once_on_redis() {
    let server = provide(Redis::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    at_each_step(|at| on(url, &format!("prefix=cron_step_{}_{at}", std::process::id()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_die_and_freeze_at_any_step_run_each_time_once_for_a_fifo_queue() {
    let server = provide(Ministack::new()).await.unwrap();
    let Some(endpoint) = server.url() else { return };
    let folder = tempfile::tempdir().unwrap();
    at_each_step(|at| {
        let prefix = format!("cron_{}_{at}", std::process::id());
        let tasks = format!("sqs://test:test@us-east-1/{prefix}?endpoint={endpoint}&fifo=true");
        let home = format!("sqlite:{}", folder.path().join(format!("{at}.db")).display());
        Place { home, tasks: Some(tasks) }
    })
    .await;
}
