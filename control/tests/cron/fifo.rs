//! Schedules beside a FIFO queue of SQS: nodes that die or freeze at any step double nothing there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::Storage;
use anyqueue::{PartitionId, Queue, QueueMessageStatus};
use anyqueue_control::cron::{AT_HEADER, Missed, Running, Schedule, Scheduler};
use anyqueue_testkit::{Ministack, provide};
use futures_util::future::join_all;

use crate::bed::{Node, TASKS, timetable};
use crate::cut::{Cut, How};

/// The calls of a node at which it is cut: its work on the first ticks that it gets.
const STEPS: std::ops::Range<usize> = 0..8;
/// Times that are to be run: a node that dies, and one that freezes, hold up the tick for ten seconds each.
const TIMES: usize = 30;
const PATIENCE: Duration = Duration::from_mins(3);

/// One of three nodes dies at this call, another one freezes at it and wakes later.
async fn each_time_is_run_once(tasks: &str, home: &str, at: usize) {
    let tasks = open(tasks).await;
    let scheduler = Scheduler::beside(&tasks, &open(home).await).unwrap();
    let to = PartitionId::new(TASKS).unwrap();
    let schedule = Schedule::new("a", timetable("* * * * * *"), to).with_running(Running::Allow);
    scheduler.put(&schedule.with_missed(Missed::All(99))).await.unwrap();
    let cut = async |how| Cut::over(anyqueue_backends::open(home).await.unwrap(), at, how);
    let (dies, freezes) = (cut(How::DiesBefore).await, cut(How::Freezes).await);
    let beside = |home: &Arc<Cut>| {
        // Who is frozen notices no time-out.
        let home =
            Queue::builder(home.clone() as Arc<dyn Storage>).call_timeout(2 * PATIENCE).build().unwrap();
        Node::start(Scheduler::beside(&tasks, &home).unwrap())
    };
    let nodes = [beside(&dies), beside(&freezes)];
    let plain = Node::start(scheduler);

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_die_and_freeze_at_any_step_run_each_time_once() {
    let server = provide(Ministack::new()).await.unwrap();
    let Some(endpoint) = server.url() else { return };
    let folder = tempfile::tempdir().unwrap();
    let one = |at: usize| {
        let prefix = format!("cron_{}_{at}", std::process::id());
        let tasks = format!("sqs://test:test@us-east-1/{prefix}?endpoint={endpoint}&fifo=true");
        let home = format!("sqlite:{}", folder.path().join(format!("{at}.db")).display());
        async move { each_time_is_run_once(&tasks, &home, at).await }
    };
    join_all(STEPS.map(one)).await;
}
