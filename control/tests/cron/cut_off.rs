//! A node that is cut off from a real server, or before a black hole: another one goes on, and it is back when the way is free.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyqueue::{PartitionId, Queue, QueueMessageStatus};
use anyqueue_control::cron::{AT_HEADER, Missed, Running, Schedule, Scheduler};
use anyqueue_testkit::{Fault, Postgres, Program, Proxy, Redis, start_if_installed};

use crate::bed::{Node, TASKS, timetable};

const PATIENCE: Duration = Duration::from_mins(2);
/// Longer than a tick is leased: what the node had goes to the other one.
const CUT: Duration = Duration::from_secs(15);

struct Watched {
    queue: Queue,
    runs: BTreeMap<String, usize>,
    begin: Instant,
}

impl Watched {
    async fn until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        while !is(self) {
            assert!(self.begin.elapsed() < PATIENCE, "{what}: {:?}", self.runs);
            for mut task in self.queue.pull(TASKS).max(100).wait(Duration::from_millis(500)).await.unwrap() {
                *self.runs.entry(task.headers()[AT_HEADER].clone()).or_default() += 1;
                task.settle(QueueMessageStatus::Processed).await.unwrap();
            }
        }
    }

    async fn until_so_many_more(&mut self, what: &str, more: usize) {
        let enough = self.runs.len() + more;
        self.until(what, |it| it.runs.len() >= enough).await;
    }
}

async fn a_node_is_cut_off(fault: Fault, direct: &str, through: &str, proxy: &Proxy) {
    let queue = open(direct).await;
    queue.init().await.unwrap();
    let scheduler = Scheduler::new(&queue).unwrap();
    let to = PartitionId::new(TASKS).unwrap();
    let schedule = Schedule::new("a", timetable("* * * * * *"), to).with_running(Running::Allow);
    scheduler.put(&schedule.with_missed(Missed::All(99))).await.unwrap();
    let cut_off = Node::start(Scheduler::new(&open(through).await).unwrap());
    let mut watched = Watched { queue, runs: BTreeMap::new(), begin: Instant::now() };
    watched.until_so_many_more("it runs alone", 5).await;

    proxy.set(fault).await.unwrap();
    if fault == Fault::Refuse {
        proxy.cut_all();
    }
    let other = Node::start(scheduler);
    let cut_at = Instant::now();
    watched.until_so_many_more("the other one goes on", 8).await;
    watched.until("it is cut off for long", |_| cut_at.elapsed() >= CUT).await;
    proxy.set(Fault::Pass).await.unwrap();
    watched.until_so_many_more("both go on", 5).await;
    other.stop().await;
    watched.until_so_many_more("it is back", 5).await;
    cut_off.stop().await;

    let runs = &watched.runs;
    assert!(runs.values().all(|count| *count == 1), "{fault:?}: {runs:?}");
    let times: Vec<_> = runs.keys().map(|at| humantime::parse_rfc3339(at).unwrap()).collect();
    let is_next = |pair: &[_]| matches!(pair, [one, next] if *one + Duration::from_secs(1) == *next);
    assert!(times.windows(2).all(is_next), "{fault:?}: no time is left out: {runs:?}");
}

async fn open(url: &str) -> Queue {
    Queue::new(anyqueue_backends::open(url).await.unwrap()).unwrap()
}

/// Refused and stalled at once, each in a place and behind a proxy of its own.
async fn all(program: impl Program, option: &str) {
    let Some(server) = start_if_installed(program).await.unwrap() else { return };
    let cases = [Fault::Refuse, Fault::Stall].into_iter().enumerate().map(|(number, fault)| {
        let server = &server;
        async move {
            let proxy = Proxy::start(server.addr()).unwrap();
            let direct = format!("{}?{option}=cron_{number}", server.url());
            let through = direct.replace(&server.addr().to_string(), &proxy.addr().to_string());
            a_node_is_cut_off(fault, &direct, &through, &proxy).await;
        }
    });
    futures_util::future::join_all(cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_from_postgres_doubles_nothing_and_is_back_after() {
    all(Postgres::new(), "schema").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_from_redis_doubles_nothing_and_is_back_after() {
    all(Redis::new(), "prefix").await;
}
