//! Two nodes on a server of its own: each time is run once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyqueue::{PartitionId, Queue, QueueMessageStatus};
use anyqueue_control::cron::{Running, Schedule, Scheduler};
use anyqueue_testkit::{Postgres, Provided, Redis, provide};

use crate::bed::{Node, TASKS, timetable};

async fn open(url: &str) -> Queue {
    let queue = Queue::new(anyqueue_backends::open(url).await.unwrap()).unwrap();
    queue.init().await.unwrap();
    queue
}

/// Two nodes, of which one is killed, run some schedules by the second.
async fn each_time_once(url: &str) {
    let queue = open(url).await;
    let scheduler = Scheduler::new(&queue).unwrap();
    let nodes = [(); 2].map(|()| async { Node::start(Scheduler::new(&open(url).await).unwrap()) });
    let [first, second] = nodes;
    let (first, second) = (first.await, second.await);
    for name in ["a", "b", "c"] {
        let schedule = Schedule::new(name, timetable("* * * * * *"), PartitionId::new(TASKS).unwrap());
        scheduler.put(&schedule.with_running(Running::Allow)).await.unwrap();
    }
    let mut first = Some(first);
    let mut runs: BTreeMap<(String, String), usize> = BTreeMap::new();
    let begin = Instant::now();
    while runs.len() < 24 {
        assert!(begin.elapsed() < Duration::from_mins(2), "{runs:?}");
        for mut task in queue.pull(TASKS).max(100).wait(Duration::from_secs(1)).await.unwrap() {
            let [name, at] = ["cron-name", "cron-at"].map(|header| task.headers()[header].clone());
            *runs.entry((name, at)).or_default() += 1;
            task.settle(QueueMessageStatus::Processed).await.unwrap();
        }
        if runs.len() >= 9
            && let Some(first) = first.take()
        {
            first.kill().await;
        }
    }
    second.stop().await;
    assert!(runs.values().all(|count| *count == 1), "{runs:?}");
    queue.close().await.unwrap();
}

fn with(provided: &Provided, option: &str) -> Option<String> {
    let url = provided.url()?;
    let separator = if url.contains('?') { '&' } else { '?' };
    Some(format!("{url}{separator}{option}=cron_{}", std::process::id()))
}

#[tokio::test]
async fn two_nodes_on_postgres() {
    let server = provide(Postgres::new()).await.unwrap();
    let Some(url) = with(&server, "schema") else { return };
    each_time_once(&url).await;
}

#[tokio::test]
async fn two_nodes_on_redis() {
    let server = provide(Redis::new()).await.unwrap();
    let Some(url) = with(&server, "prefix") else { return };
    each_time_once(&url).await;
}

#[tokio::test]
async fn two_nodes_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    each_time_once(&format!("sqlite:{}", folder.path().join("cron.db").display())).await;
}
