//! Producers and consumers that go on until they are told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::{PartitionId, PushOutcome, Queue, QueueMessageStatus as Status};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clause::Clause;
use crate::context::{Context, Maker};
use crate::verdict::{CaseResult, Stop};

/// No call may take longer than this beside work that goes on, and no work beside a call. This is meant to
/// catch what never ends: a call may be many requests, each of which takes a second on a busy machine.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

const PRODUCERS: usize = 2;
/// The pause of a producer between two pushes, and of a consumer with what it holds. Producers push more than
/// consumers take, so that calls find something.
const PACE: Duration = Duration::from_millis(4);
const MOST_PUSHED: usize = 4;
const MOST_HELD: usize = 2;
/// A consumer's pull waits this long, and then checks whether to stop.
const WAIT: Duration = Duration::from_millis(50);
/// The pause between two checks whether a worker has failed.
const LOOK: Duration = Duration::from_millis(100);

/// How the tasks end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fates {
    /// Most are processed; some fail, are postponed, released, or die.
    Mixed,
    /// Most die.
    Deadly,
    /// All are processed.
    Good,
}

impl Fates {
    fn status(self, random: &mut fastrand::Rng) -> Status {
        let die = || Status::poisonous("for the test");
        match (self, random.u8(..10)) {
            (Self::Mixed, 0) | (Self::Deadly, 0..7) => die(),
            (Self::Mixed, 1) => Status::Failed,
            (Self::Mixed, 2) => Status::Waiting,
            (Self::Mixed, 3) => Status::postponed(Duration::ZERO),
            _ => Status::Processed,
        }
    }
}

/// How far the work has come.
#[derive(Debug, Default)]
struct Progress {
    pushed: AtomicUsize,
    settled: AtomicUsize,
    moved_on: Notify,
}

impl Progress {
    fn note(&self, counter: &AtomicUsize, more: usize) {
        counter.fetch_add(more, Ordering::Relaxed);
        self.moved_on.notify_waiters();
    }

    fn seen(&self) -> (usize, usize) {
        (self.pushed.load(Ordering::Relaxed), self.settled.load(Ordering::Relaxed))
    }
}

type Worker = JoinHandle<anyqueue::Result<()>>;

/// The workers. When this is dropped, they stop too.
pub(super) struct Work {
    progress: Arc<Progress>,
    workers: Vec<(&'static str, Worker)>,
    stop: DropGuard,
}

impl Work {
    /// Starts producers that push to any of the partitions, and consumers for each.
    pub(super) async fn begin(
        c: &Context,
        partitions: &[PartitionId],
        consumers: usize,
        fates: Fates,
    ) -> CaseResult<Self> {
        let (progress, stop) = (Arc::<Progress>::default(), CancellationToken::new());
        let (pushing, pulling) = (c.queue()?, c.fresh_queue().await?);
        let (mut random, mut workers) = (c.random(), Vec::new());
        for _ in 0..PRODUCERS {
            let (queue, partitions, maker) = (pushing.clone(), partitions.to_vec(), c.maker());
            let worker = Hand { progress: progress.clone(), stop: stop.clone(), random: random.fork() };
            workers.push(("push", tokio::spawn(worker.produce(queue, partitions, maker))));
        }
        for partition in partitions.iter().cycle().take(partitions.len() * consumers) {
            let (queue, partition) = (pulling.clone(), partition.clone());
            let worker = Hand { progress: progress.clone(), stop: stop.clone(), random: random.fork() };
            workers.push(("pull", tokio::spawn(worker.consume(queue, partition, fates))));
        }
        Ok(Self { progress, workers, stop: stop.drop_guard() })
    }

    /// Waits until this many more were pushed and settled; judges that this happens soon.
    pub(super) async fn goes_on(
        &mut self,
        c: &Context,
        (clause, beside): (Clause, &str),
        (pushed, settled): (usize, usize),
    ) -> CaseResult {
        let progress = self.progress.clone();
        let (deadline, begun) = (Instant::now() + DEADLINE, progress.seen());
        loop {
            let moved_on = progress.moved_on.notified();
            let seen = progress.seen();
            let more = (seen.0 - begun.0, seen.1 - begun.1);
            if more.0 >= pushed && more.1 >= settled {
                return Ok(());
            }
            if self.workers.iter().any(|(_, worker)| worker.is_finished()) {
                return Err(self.failure(c).await);
            }
            let late = Instant::now() > deadline;
            let expected = format!("{pushed} more pushed and {settled} settled beside {beside}");
            c.check(clause, &[], !late, expected, format!("{more:?} within {DEADLINE:?}"))?;
            let _ = tokio::time::timeout(LOOK, moved_on).await;
        }
    }

    /// Returns why a worker ended that nobody told to end.
    async fn failure(&mut self, c: &Context) -> Stop {
        for (call, worker) in self.workers.iter_mut().filter(|(_, worker)| worker.is_finished()) {
            if let Err(stop) = ended(c, call, worker.await) {
                return stop;
            }
        }
        c.failed(Clause::Recovery, &[], "the work to go on", "a worker ended")
    }

    /// Tells the workers to stop, and waits until they have settled what they held.
    pub(super) async fn end(self, c: &Context) -> CaseResult {
        drop(self.stop);
        for (call, worker) in self.workers {
            let end = tokio::time::timeout(DEADLINE, worker).await.map_err(|_| {
                let expected = format!("{call} to end, as nothing is done beside it any more");
                c.failed(Clause::Recovery, &[], expected, format!("it goes on after {DEADLINE:?}"))
            });
            ended(c, call, end?)?;
        }
        Ok(())
    }
}

fn ended(c: &Context, call: &str, end: Result<anyqueue::Result<()>, tokio::task::JoinError>) -> CaseResult {
    let end = end.map_err(|panic| c.failed(Clause::Recovery, &[], "no panic", panic.to_string()))?;
    let clause = if call == "push" { Clause::Stored } else { Clause::SettleOutcomes };
    c.ok(clause, &format!("{call}, and what follows, beside other calls"), end)
}

/// One worker.
struct Hand {
    progress: Arc<Progress>,
    stop: CancellationToken,
    random: fastrand::Rng,
}

impl Hand {
    async fn produce(
        mut self,
        queue: Queue,
        partitions: Vec<PartitionId>,
        maker: Maker,
    ) -> anyqueue::Result<()> {
        while !self.stop.is_cancelled() {
            let Some(partition) = self.random.choice(&partitions) else { break };
            let count = self.random.usize(1..=MOST_PUSHED);
            let messages = (0..count).map(|_| maker.message()).collect();
            for answer in queue.push_many(partition, messages).await? {
                if let PushOutcome::Duplicate(_) = answer? {
                    let text = "a new message was taken for a duplicate";
                    return Err(anyqueue::Error::new(anyqueue::ErrorKind::Internal, text));
                }
            }
            self.progress.note(&self.progress.pushed, count);
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    }

    async fn consume(mut self, queue: Queue, partition: PartitionId, fates: Fates) -> anyqueue::Result<()> {
        while !self.stop.is_cancelled() {
            let mut held = queue.pull(&partition).max(MOST_HELD).wait(WAIT).await?;
            tokio::time::sleep(PACE).await;
            let settled = held.len();
            let all = held.iter_mut().map(|handler| (handler, fates.status(&mut self.random)));
            // The history judges whether each outcome is correct.
            queue.settle_many(all).await.into_iter().try_for_each(|outcome| outcome.map(drop))?;
            self.progress.note(&self.progress.settled, settled);
        }
        Ok(())
    }
}
