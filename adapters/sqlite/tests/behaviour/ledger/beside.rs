//! A ledger beside the queue, in a file of its own: whoever pushes or works is killed between each two steps.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::{Capabilities, Forward, PushQueueStorage, Storage, async_trait};
use anyqueue::{
    Beside, Keep, MessageData, PartitionOptions, PushOutcome, Queue, RetryPolicy, TaskFilter, TaskState,
};
use futures_util::TryStreamExt;

use super::*;

const ACTOR: &str = "ANYQUEUE_TEST_BESIDE";
const STEP: &str = "ANYQUEUE_TEST_BESIDE_STEP";
/// Long enough for a busy machine; what a killed process held comes again after it.
const WORKER_LEASE: Duration = Duration::from_secs(3);
const BATCH: usize = 4;
const TASKS: usize = 96;
const ROUNDS: usize = 2;
/// What is done whole before the step at which the process ends.
const WHOLE: usize = 1;

/// Between two of the steps of push, pull, run, end stored, and settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The queue has stored what was pushed; the ledger has not been told.
    Pushed,
    /// The queue has handed out; nobody has begun.
    Pulled,
    /// The tasks have been run; no end is stored.
    Ran,
    /// Their ends are stored; no settlement is sent.
    Kept,
    /// They are removed from the queue; the ledger has not been told that they are gone.
    Removed,
}

impl Step {
    const OF_WORK: [Self; 4] = [Self::Pulled, Self::Ran, Self::Kept, Self::Removed];

    fn of(name: &str) -> Self {
        [Self::Pushed].into_iter().chain(Self::OF_WORK).find(|step| format!("{step:?}") == name).unwrap()
    }
}

/// A queue that keeps no ends and cannot be browsed, over a file, whose process stands still at a step.
#[derive(Debug)]
struct Stops {
    inner: SqliteQueue,
    capabilities: Capabilities,
    at: Option<Step>,
    passed: AtomicUsize,
}

impl Stops {
    async fn open(dir: &Path, at: Option<Step>) -> Self {
        let inner = SqliteQueue::open(dir.join("q.db")).await.unwrap();
        let mut capabilities = QueueStorage::capabilities(&inner).clone();
        capabilities.ledger = None;
        capabilities.inspect.browse = false;
        Self { inner, capabilities, at, passed: AtomicUsize::new(0) }
    }

    /// Says that this is where the process is to be killed, with so many tasks in its hands, and waits for that.
    fn pass(&self, step: Step, tasks: usize) {
        if tasks > 0 && self.at == Some(step) && self.passed.fetch_add(1, SeqCst) >= WHOLE {
            stand_still(tasks);
        }
    }
}

/// The test harness does not catch what is written so.
fn stand_still(tasks: usize) -> ! {
    let mut out = std::io::stdout();
    writeln!(out, "\nstopped with {tasks}").unwrap();
    out.flush().unwrap();
    loop {
        std::thread::park();
    }
}

#[async_trait]
impl Forward for Stops {
    fn inner(&self) -> &dyn Storage {
        &self.inner
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn push(
        &self,
        partition: &PartitionId,
        messages: &[MessageData],
    ) -> Vec<anyqueue::Result<PushOutcome>> {
        let answers = PushQueueStorage::push(&self.inner, partition, messages).await;
        self.pass(Step::Pushed, messages.len());
        answers
    }

    async fn pull(
        &self,
        partition: &PartitionId,
        request: PullRequest,
    ) -> anyqueue::Result<Vec<RawDelivery>> {
        let pulled = PullQueueStorage::pull(&self.inner, partition, request).await?;
        self.pass(Step::Pulled, pulled.len());
        Ok(pulled)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<anyqueue::Result<SettleOutcome>> {
        self.pass(Step::Kept, settlements.len());
        let answers = PullQueueStorage::settle(&self.inner, settlements).await;
        self.pass(Step::Removed, settlements.len());
        answers
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        None
    }
}

async fn queue(dir: &Path, at: Option<Step>) -> Queue {
    let ledger = SqliteQueue::open(dir.join("ledger.db")).await.unwrap();
    let storage = Beside::new(Stops::open(dir, at).await, ledger).unwrap();
    let options = PartitionOptions::default().with_lease(WORKER_LEASE).with_max_deliveries(None);
    let builder = Queue::builder(storage).ledger(Keep::default()).defaults(options);
    builder.retry(RetryPolicy::NEVER).build().unwrap()
}

fn batch() -> Vec<MessageData> {
    (0..BATCH).map(|_| MessageData::new("m")).collect()
}

/// Runs tasks, and writes down each run; until none is left to come.
async fn work(dir: &Path, queue: &Queue, at: Option<Step>) {
    let mut log = std::fs::File::options().append(true).create(true).open(dir.join("runs")).unwrap();
    for done in 0.. {
        let left = queue.counts("p").await.unwrap();
        if (left.ready, left.leased) == (Some(0), Some(0)) {
            return;
        }
        let mut held = queue.pull("p").max(BATCH).wait(2 * WORKER_LEASE).await.unwrap();
        if held.is_empty() {
            return;
        }
        let runs: Vec<_> = held.iter().map(|task| task.id().to_string()).collect();
        log.write_all((runs.join("\n") + "\n").as_bytes()).unwrap();
        if at == Some(Step::Ran) && done >= WHOLE {
            stand_still(held.len());
        }
        for outcome in queue.settle_many(held.iter_mut().map(|task| (task, Processed))).await {
            assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
        }
    }
}

/// What the next test kills: pushes or works until it is at its step. Does nothing in a run of the tests.
#[tokio::test]
async fn an_actor() {
    let (Ok(dir), Ok(step)) = (std::env::var(ACTOR), std::env::var(STEP)) else { return };
    let (dir, step) = (Path::new(&dir), Step::of(&step));
    let queue = queue(dir, Some(step)).await;
    if step == Step::Pushed {
        for _ in 0..=WHOLE {
            queue.push_many("p", batch()).await.unwrap();
        }
    }
    work(dir, &queue, Some(step)).await;
    panic!("it was to be killed at {step:?}");
}

fn actor(dir: &Path, step: Step) -> Child {
    let mut actor = Command::new(std::env::current_exe().unwrap());
    actor.args(["--exact", "ledger::beside::an_actor"]).env(ACTOR, dir).env(STEP, format!("{step:?}"));
    actor.stdout(Stdio::piped()).spawn().unwrap()
}

/// Has a process killed at this step, and returns how many tasks it had in its hands.
fn kill_at(dir: &Path, step: Step) -> usize {
    let mut actor = actor(dir, step);
    let mut lines = BufReader::new(actor.stdout.take().unwrap()).lines().map(Result::unwrap);
    let stopped = lines.find_map(|line| line.strip_prefix("stopped with ")?.parse().ok());
    actor.kill().unwrap();
    actor.wait().unwrap();
    stopped.unwrap_or_else(|| panic!("no process stopped at {step:?}"))
}

#[tokio::test]
async fn killed_between_each_two_steps_no_task_and_no_end_is_lost_and_only_what_had_no_end_runs_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let here = queue(dir, None).await;
    for _ in 0..TASKS / BATCH {
        assert!(here.push_many("p", batch()).await.unwrap().iter().all(Result::is_ok));
    }
    let (mut pushed, mut doubled) = (TASKS, 0);
    for _ in 0..ROUNDS {
        assert_eq!(kill_at(dir, Step::Pushed), BATCH);
        pushed += (WHOLE + 1) * BATCH;
        for step in Step::OF_WORK {
            let held = kill_at(dir, step);
            assert!(held > 0);
            doubled += if step == Step::Ran { held } else { 0 };
        }
    }
    let bare = SqliteQueue::open(dir.join("q.db")).await.unwrap();
    let left = bare.counts(&part("p")).await.unwrap();
    assert!(left.ready.unwrap() + left.leased.unwrap() > 0, "the killed were done with everything");
    work(dir, &here, None).await;

    let listed: Vec<_> = here.tasks("p", TaskFilter::new()).unwrap().try_collect().await.unwrap();
    assert!(listed.iter().all(|task| task.state == TaskState::Succeeded), "{listed:?}");
    let ended: std::collections::BTreeSet<_> = listed.iter().map(|task| task.id).collect();
    assert_eq!((listed.len(), ended.len()), (pushed, pushed), "each has one end");
    let left = bare.counts(&part("p")).await.unwrap();
    assert_eq!((left.ready, left.leased, left.dead), (Some(0), Some(0), Some(0)));

    let runs = std::fs::read_to_string(dir.join("runs")).unwrap();
    let mut of_each = std::collections::BTreeMap::new();
    for id in runs.lines() {
        *of_each.entry(id.parse::<MessageId>().unwrap()).or_insert(0) += 1;
    }
    assert!(of_each.keys().eq(&ended), "each was run");
    let again: usize = of_each.values().map(|runs| runs - 1).sum();
    assert_eq!(
        again, doubled,
        "what ran twice was run by a process that was killed before its end was stored"
    );
    here.close().await.unwrap();
}
