//! What the parts of a worker share. It knows none of these parts.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyqueue::adapter::MessageCounts;
use anyqueue::{Error, Queue};
use tokio::sync::watch;

use crate::config::{Config, PartitionConfig};
use crate::handler::Routes;
use crate::pool::Pool;
use crate::runs::RunQueue;
use crate::summary::Tally;
use crate::usage::UsageBoard;

/// How many tasks a worker remembers the failed attempts of, if neither headers nor the backend can keep
/// them.
const REMEMBERED_FAILURES: usize = 10_000;

/// The stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// The worker runs as usual, or has not started.
    Working,
    /// The worker takes on nothing new. Running tasks may end.
    Draining,
    /// Running handlers are asked to stop.
    Cancelling,
}

/// What the parts of a worker share.
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) partitions: Vec<PartitionConfig>,
    pub(crate) routes: Routes,
    pub(crate) config: Config,
    pub(crate) pool: Arc<Pool>,
    pub(crate) runs: RunQueue,
    pub(crate) tally: Tally,
    pub(crate) usage: UsageBoard,
    pub(crate) stage: watch::Sender<Stage>,
    /// Failed attempts, if neither headers nor the backend can keep them.
    pub(crate) failures: MessageCounts,
    control: Mutex<Control>,
    /// Whether a run is under way.
    pub(crate) busy: AtomicBool,
}

/// What is set or read from outside while the worker runs.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) paused: Vec<bool>,
    /// Whether nothing new is taken on, from any partition.
    pub(crate) quiet: bool,
    pub(crate) throttled: Option<String>,
    /// When the fetch loop last ticked.
    pub(crate) ticked_at: Instant,
    /// When the worker last made progress: a pull ended, or there was no slot to pull for.
    pub(crate) progress_at: Instant,
    /// What the backend fails to do, for each partition.
    pub(crate) failing: Vec<Failing>,
    pub(crate) stuck: usize,
    /// When ends of tasks are deleted next; `None` before the first run.
    pub(crate) purge_at: Option<Instant>,
}

/// What the backend fails to do in one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failing {
    /// The error of the last pull.
    pull: Option<Error>,
    /// The error of the last settlement, if it is to be repeated.
    settlement: Option<Error>,
}

impl Failing {
    pub(crate) fn pulled(&mut self, error: Option<Error>) {
        self.pull = error;
    }

    pub(crate) fn settled(&mut self) {
        self.settlement = None;
    }

    pub(crate) fn settlement_failed(&mut self, error: Error) {
        self.settlement = Some(error);
    }

    /// A settlement is no longer repeated: from now on, pulls show whether the backend is back.
    pub(crate) fn settlement_given_up(&mut self) {
        let error = self.settlement.take();
        self.pull = self.pull.take().or(error);
    }

    pub(crate) fn error(&self) -> Option<&Error> {
        self.settlement.as_ref().or(self.pull.as_ref())
    }
}

impl Shared {
    pub(crate) fn new(
        queue: Queue,
        partitions: Vec<PartitionConfig>,
        routes: Routes,
        config: Config,
    ) -> Self {
        let now = queue.clock().now();
        let control = Control {
            paused: vec![false; partitions.len()],
            quiet: false,
            throttled: None,
            ticked_at: now,
            progress_at: now,
            failing: vec![Failing::default(); partitions.len()],
            stuck: 0,
            purge_at: None,
        };
        Self {
            pool: Arc::new(Pool::new(config.slots, partitions.len())),
            runs: RunQueue::default(),
            tally: Tally::default(),
            usage: UsageBoard::new(partitions.len()),
            stage: watch::Sender::new(Stage::Working),
            failures: MessageCounts::new(REMEMBERED_FAILURES),
            control: Mutex::new(control),
            busy: AtomicBool::new(false),
            queue,
            partitions,
            routes,
            config,
        }
    }

    /// Notes what was observed of the backend in one partition.
    pub(crate) fn note(&self, partition: usize, seen: impl FnOnce(&mut Failing)) {
        if let Some(failing) = self.control().failing.get_mut(partition) {
            seen(failing);
        }
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.queue)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}
