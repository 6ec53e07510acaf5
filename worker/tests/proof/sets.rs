//! Processes that work through a set, of which one is killed again and again.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyqueue::Queue;
use anyqueue::adapter::MoveGuarantee;
use anyqueue_worker::{Part, Partition, TaskContext, TaskError, WorkSet, WorkSource, Worker};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::grounds::{Ground, LEASE, PARTITION, kills, open};
use crate::say::say;

/// Names the queue's URL where this process works through a set.
pub(crate) const SET: &str = "ANYQUEUE_WORKER_SET";
const ITEMS: u32 = 3000;
const WIDTH: usize = 6;
const CHUNK: usize = 20;
const WORKERS: usize = 3;
/// How long one item takes.
const TAKES: Duration = Duration::from_millis(2);

/// The numbers below [`ITEMS`].
struct Numbers;

impl WorkSource for Numbers {
    type Item = u32;

    async fn next(
        &self,
        part: Part,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, u32)>, TaskError> {
        let step = u32::try_from(part.of)?;
        let first = match after {
            Some(cursor) => cursor.parse::<u32>()? + step,
            None => u32::try_from(part.number)?,
        };
        let numbers = (first..ITEMS).step_by(part.of).take(max);
        Ok(numbers.map(|number| (number.to_string(), number)).collect())
    }
}

fn set() -> WorkSet<Numbers> {
    WorkSet::new("numbers", WIDTH, Numbers).unwrap().chunk(CHUNK)
}

/// Tells each item when it is done.
pub(crate) async fn work(url: &str) {
    let queue = open(url).await;
    let handler = |number: u32, _: TaskContext| async move {
        tokio::time::sleep(TAKES).await;
        say('E', number);
        Ok(())
    };
    let builder = Worker::builder(queue).partition(Partition::new(PARTITION)).slots(WIDTH).max_crashes(100);
    builder.work_set(set(), handler).build().unwrap().run_until(std::future::pending()).await.unwrap();
}

/// How often each item was done.
type Done = Arc<Mutex<HashMap<u32, usize>>>;

struct Process {
    child: Child,
    _stdin: ChildStdin,
    reader: JoinHandle<()>,
}

impl Process {
    fn spawn(url: &str, done: &Done) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(SET, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let done = done.clone();
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let number = line.split_once(' ').unwrap().1.parse().unwrap();
                *done.lock().unwrap().entry(number).or_default() += 1;
            }
        });
        Self { child, _stdin: stdin, reader }
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
        self.reader.await.unwrap();
    }
}

/// Whatever is killed whenever, each item is done; and no more than a killed process was at is done again, where a part cannot fork.
pub(crate) async fn killed_workers_skip_nothing_of_a_set(ground: Ground) {
    let (queue, done) = (ground.open().await, Done::default());
    assert_eq!(set().start(&queue, PARTITION).await.unwrap(), WIDTH);
    let mut living: Vec<_> = (0..WORKERS).map(|_| Process::spawn(&ground.url, &done)).collect();
    let (mut killed, mut next_kill) = (0, Instant::now());
    while done.lock().unwrap().len() < ITEMS as usize {
        if killed < kills() && next_kill.elapsed() > Duration::from_millis(700) {
            living.swap_remove(fastrand::usize(..living.len())).kill().await;
            living.push(Process::spawn(&ground.url, &done));
            (killed, next_kill) = (killed + 1, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ended(&queue).await;
    for process in living {
        process.kill().await;
    }
    let again: usize = done.lock().unwrap().values().map(|times| times - 1).sum();
    let line = serde_json::json!({
        "backend": ground.backend, "items": ITEMS, "width": WIDTH, "chunk": CHUNK, "kills": killed, "done_again": again,
    });
    println!("{line}");
    assert!(killed > 0, "nothing was killed: this run proves nothing");
    if queue.capabilities().moves == MoveGuarantee::Atomic && queue.capabilities().unique_ids {
        let most = killed as usize * WIDTH * CHUNK;
        assert!(again <= most, "{again} items were done again by {killed} kills");
    }
}

/// Waits until no part is left, where that can be seen.
async fn ended(queue: &Queue) {
    let inspect = queue.capabilities().inspect;
    if !(inspect.ready && inspect.delayed && inspect.leased && inspect.staleness.is_zero()) {
        return;
    }
    let patience = Instant::now() + 30 * LEASE;
    loop {
        let counts = queue.counts(PARTITION).await.unwrap();
        if (counts.ready, counts.leased, counts.delayed) == (Some(0), Some(0), Some(0)) {
            assert_eq!(counts.dead, Some(0));
            return;
        }
        assert!(Instant::now() < patience, "parts are left: {counts:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
