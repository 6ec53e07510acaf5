//! What the tests share: a queue in a directory of its own, and short names for common calls.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyqueue::adapter::{
    Action, InspectQueueStorage, Lease, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery,
    Settlement,
};
use anyqueue::{ManualClock, MessageData, MessageId, PartitionId, PushOutcome, SettleOutcome};
use anyqueue_sqlite::SqliteQueue;
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A queue file in a temporary directory.
pub(crate) struct Bed {
    pub(crate) dir: TempDir,
    pub(crate) queue: SqliteQueue,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let queue = SqliteQueue::open(dir.path().join("q.db")).await.unwrap();
        Self { dir, queue }
    }

    /// One whose time stands still until the test turns it.
    pub(crate) async fn still() -> (Self, ManualClock) {
        let manual = ManualClock::new();
        let dir = tempfile::tempdir().unwrap();
        let queue = SqliteQueue::builder(dir.path().join("q.db")).clock(manual.clock()).open().await.unwrap();
        (Self { dir, queue }, manual)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("q.db")
    }

    pub(crate) async fn queue_ready(&self, partition: &PartitionId) -> u64 {
        self.queue.counts(partition).await.unwrap().ready.unwrap()
    }

    /// Another handle on the same file, as another process would have.
    pub(crate) async fn other(&self) -> SqliteQueue {
        SqliteQueue::open(self.path()).await.unwrap()
    }
}

pub(crate) fn part(name: &str) -> PartitionId {
    PartitionId::new(name).unwrap()
}

pub(crate) fn message(text: &str) -> MessageData {
    MessageData::new(text)
}

pub(crate) async fn push(
    queue: &SqliteQueue,
    partition: &PartitionId,
    messages: &[MessageData],
) -> Vec<MessageId> {
    let outcomes = queue.push(partition, messages).await;
    let stored = |outcome| match outcome {
        Ok(PushOutcome::Stored(id)) => id,
        other => panic!("not stored: {other:?}"),
    };
    outcomes.into_iter().map(stored).collect()
}

pub(crate) async fn push_text(
    queue: &SqliteQueue,
    partition: &PartitionId,
    texts: &[&str],
) -> Vec<MessageId> {
    let messages: Vec<_> = texts.iter().map(|text| message(text)).collect();
    push(queue, partition, &messages).await
}

pub(crate) async fn pull(queue: &SqliteQueue, partition: &PartitionId, max: usize) -> Vec<RawDelivery> {
    queue.pull(partition, PullRequest::new(max, Duration::ZERO, LEASE)).await.unwrap()
}

/// Up to so many members of a group at once.
pub(crate) async fn pull_whole(
    queue: &SqliteQueue,
    partition: &PartitionId,
    max: usize,
    group_members: usize,
) -> Vec<RawDelivery> {
    let request = PullRequest::new(max, Duration::ZERO, LEASE).with_group_members(group_members);
    queue.pull(partition, request).await.unwrap()
}

pub(crate) async fn pull_wait(queue: &SqliteQueue, partition: &PartitionId, max: usize) -> Vec<RawDelivery> {
    queue.pull(partition, PullRequest::new(max, SOON, LEASE)).await.unwrap()
}

pub(crate) fn texts(deliveries: &[RawDelivery]) -> Vec<String> {
    deliveries
        .iter()
        .map(|delivery| String::from_utf8(delivery.message.payload().to_vec()).unwrap())
        .collect()
}

/// Pulls all there is, removing it, and returns the texts in order.
pub(crate) async fn drain(queue: &SqliteQueue, partition: &PartitionId) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let got = pull(queue, partition, 100).await;
        if got.is_empty() {
            return all;
        }
        all.extend(texts(&got));
        let leases: Vec<_> = got.into_iter().map(|delivery| delivery.lease).collect();
        assert!(
            settle_all(queue, &leases, &Action::Remove).await.iter().all(|o| *o == SettleOutcome::Settled)
        );
    }
}

pub(crate) async fn settle(queue: &SqliteQueue, lease: &Lease, action: Action) -> SettleOutcome {
    settle_all(queue, std::slice::from_ref(lease), &action).await[0]
}

pub(crate) async fn settle_all(queue: &SqliteQueue, leases: &[Lease], action: &Action) -> Vec<SettleOutcome> {
    let settlements: Vec<_> =
        leases.iter().map(|lease| Settlement::new(lease.clone(), action.clone())).collect();
    queue.settle(&settlements).await.into_iter().map(Result::unwrap).collect()
}

pub(crate) fn postpone(delay: Duration) -> Action {
    Action::Postpone { delay, headers: None }
}

pub(crate) fn move_to(to: &PartitionId) -> Action {
    Action::Move { to: to.clone(), headers: None }
}

const AT_WORK: &str = "at work";

/// Starts one of these tests in a process of its own, with a variable that has it work on this file, and waits until
/// it tells that it has changed something there.
pub(crate) fn start_work(test: &str, variable: &str, path: &Path) -> Child {
    let mut worker = Command::new(std::env::current_exe().unwrap());
    worker.args(["--exact", test]).env(variable, path);
    let mut worker = worker.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == AT_WORK), "it ended before it changed anything");
    worker
}

/// What such a process tells. The test harness does not catch what is written so.
pub(crate) fn tell_at_work() {
    let mut out = std::io::stdout();
    writeln!(out, "\n{AT_WORK}").unwrap();
    out.flush().unwrap();
}

/// Transactions that wrote, as the log's frames tell: each commit ends with one that names the size of the file.
pub(crate) fn commits(bed: &Bed) -> usize {
    let log = std::fs::read(bed.dir.path().join("q.db-wal")).unwrap();
    let page_bytes = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let salt = &log[16..24];
    let frames = log[32..].chunks_exact(24 + page_bytes);
    frames.filter(|frame| frame[8..16] == *salt && frame[4..8] != [0; 4]).count()
}

pub(crate) async fn push_one(queue: &SqliteQueue, p: &PartitionId, message: MessageData) -> PushOutcome {
    queue.push(p, &[message]).await.remove(0).unwrap()
}

pub(crate) async fn application(bed: &Bed) -> SqliteConnection {
    SqliteConnectOptions::new().filename(bed.path()).connect().await.unwrap()
}

pub(crate) async fn push_in(bed: &Bed, p: &PartitionId, message: MessageData) -> PushOutcome {
    let pushed = bed.queue.push_in(&mut application(bed).await, p, &[message]).await.unwrap();
    pushed.after_commit.notify();
    pushed.outcomes.into_iter().next().unwrap().unwrap()
}

/// Within an application's transaction, or by itself.
pub(crate) async fn push_either(
    bed: &Bed,
    within: bool,
    p: &PartitionId,
    message: MessageData,
) -> PushOutcome {
    if within { push_in(bed, p, message).await } else { push_one(&bed.queue, p, message).await }
}

/// A generator of small numbers (xorshift).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()].clone()
    }
}
