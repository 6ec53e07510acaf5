//! How the tasks of a run ended.

use std::sync::atomic::{AtomicU64, Ordering};

/// How one delivery of a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Processed,
    Retried,
    Dead,
    Cancelled,
    Interrupted,
    Lost,
    Deferred,
    Unsettled,
    Released,
}

impl Outcome {
    pub(crate) const ALL: [Self; 9] = [
        Self::Processed,
        Self::Retried,
        Self::Dead,
        Self::Cancelled,
        Self::Interrupted,
        Self::Lost,
        Self::Deferred,
        Self::Unsettled,
        Self::Released,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Retried => "retried",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Lost => "lost",
            Self::Deferred => "deferred",
            Self::Unsettled => "unsettled",
            Self::Released => "released",
        }
    }
}

/// How the tasks of one run of a worker ended. A task that was delivered several times is counted each time.
/// A task that was ended while its handler blocked its thread is counted once more when the handler returns.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use anyqueue_worker::{Partition, TaskContext, Worker, task};
/// # let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// # queue.push("mail", task("send_mail", &"a@example.org")?).await?;
/// # let worker = Worker::builder(queue).partition(Partition::new("mail"));
/// # let worker = worker.handler("send_mail", |_: String, _: TaskContext| async { Ok(()) }).build()?;
/// let summary = worker.run_once().await?;
/// println!("{} processed, {} dead", summary.processed, summary.dead);
/// # assert_eq!((summary.processed, summary.dead), (1, 0));
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Tasks that succeeded.
    pub processed: u64,
    /// Tasks that failed and will be retried.
    pub retried: u64,
    /// Tasks that were moved to the dead letters.
    pub dead: u64,
    /// Tasks that were removed because of a cancellation request.
    pub cancelled: u64,
    /// Tasks that the shutdown interrupted and released, uncounted.
    pub interrupted: u64,
    /// Tasks that were held but had not started when the shutdown came, and were released.
    pub released: u64,
    /// Tasks that were not settled because their lease was lost, or because they were ended as timed out
    /// while their handler blocked its thread. Another worker may have such a task.
    pub lost: u64,
    /// Tasks that run later instead of now: the task is unknown here, its kind is full, or an earlier run of
    /// it has not ended.
    pub deferred: u64,
    /// Tasks that could not be settled. They come back when their lease ends.
    pub unsettled: u64,
    /// Tasks that were still running at the end of the shutdown: their handlers block and cannot be stopped.
    pub abandoned: u64,
    /// The limit that ended the run, if one did: the process should be replaced by a fresh one.
    pub reached: Option<RunLimit>,
}

/// A limit on what a run may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunLimit {
    /// The run took on as many tasks as it [may](crate::WorkerBuilder::max_tasks).
    Tasks,
    /// The process occupied more memory than it [may](crate::WorkerBuilder::max_memory).
    Memory,
}

/// The counters of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally([AtomicU64; Outcome::ALL.len()]);

impl Tally {
    pub(crate) fn count(&self, outcome: Outcome) {
        if let Some(counter) = self.0.get(outcome as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn reset(&self) {
        for counter in &self.0 {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn summary(&self, abandoned: usize) -> Summary {
        let of =
            |outcome: Outcome| self.0.get(outcome as usize).map_or(0, |count| count.load(Ordering::Relaxed));
        Summary {
            processed: of(Outcome::Processed),
            retried: of(Outcome::Retried),
            dead: of(Outcome::Dead),
            cancelled: of(Outcome::Cancelled),
            interrupted: of(Outcome::Interrupted),
            released: of(Outcome::Released),
            lost: of(Outcome::Lost),
            deferred: of(Outcome::Deferred),
            unsettled: of(Outcome::Unsettled),
            abandoned: abandoned as u64,
            reached: None,
        }
    }
}
