//! The worker: its runs, how they are controlled, and its health.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyqueue::adapter::DeliveryCount;
use anyqueue::{Error, IntoPartitionId, PartitionId, Queue, Result};

use crate::config::Counting;
use crate::context::TaskContext;
use crate::fetch::Fetch;
use crate::keep_permits::Keeper;
use crate::purge::purge_ended;
use crate::shared::{Shared, Stage};
use crate::signal::{Listening, Signals, exit_on_next_signal};
use crate::summary::Summary;

/// Runs handlers over a queue. See the [crate](crate) for what it promises.
///
/// Cheap to clone. All clones are the same worker, so that one can control what another one runs:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use anyqueue_worker::{Partition, TaskContext, Worker};
/// # let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// let worker = Worker::builder(queue)
///     .partition(Partition::new("mail"))
///     .handler("send_mail", |_to: String, _: TaskContext| async { Ok(()) })
///     .build()?;
/// let control = worker.clone();
/// let run = tokio::spawn(async move { worker.run().await });
/// control.pause("mail")?;
/// control.shutdown();
/// run.await.unwrap()?;
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Worker(pub(crate) Arc<Shared>);

/// How a worker is doing, as [`Worker::health`] returns it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// The stage of the run.
    pub stage: Stage,
    /// The number of occupied slots.
    pub running: usize,
    /// The number of slots that may be used: those of the worker, or as many of them as the
    /// [governor](crate::Governor) allows. More can be occupied for a while after the number has decreased.
    pub slots: usize,
    /// The number of handlers that did not end within the grace after they were asked to stop.
    pub stuck: usize,
    /// How long ago the worker's loop last ticked. It ticks about once a second.
    pub since_tick: Duration,
    /// How long ago the worker last made progress: a pull ended, even with an error, or no pull was needed
    /// because every slot was occupied.
    pub since_progress: Duration,
    /// The partitions whose last pull failed, or whose last settlement failed and is being repeated, each
    /// with the error.
    pub failing: Vec<(PartitionId, Error)>,
    /// Why the [governor](crate::Governor) allows the worker only some of its slots, or none, if it does so.
    pub throttled: Option<String>,
    /// Why the worker gets no [permits](crate::Permits), if that is a fault.
    pub permits: Option<String>,
}

impl Health {
    /// Returns whether the worker made progress within this time. That includes a worker whose backend is
    /// down, since a restart would not help.
    ///
    /// A pull of an idle worker lasts up to ten seconds, so allow for more than that: a minute, for instance.
    #[must_use]
    pub fn is_live(&self, within: Duration) -> bool {
        self.since_tick <= within && self.since_progress <= within
    }
}

impl Worker {
    pub(crate) fn new(shared: Shared) -> Self {
        let worker = Self(Arc::new(shared));
        for limitation in worker.limitations() {
            tracing::warn!("{limitation}");
        }
        worker
    }

    /// What the backend cannot do for a worker, in full sentences; empty if nothing is missing. The list is
    /// also logged when the worker is built.
    pub fn limitations(&self) -> Vec<String> {
        let capabilities = self.0.queue.capabilities();
        let mut limitations = Vec::new();
        match self.0.config.counting {
            Counting::Headers => {}
            Counting::Memory => limitations.push(
                "this backend cannot replace headers and counts releases as deliveries: each worker counts only the failed attempts that it saw itself, so with several workers a task can be retried more often than its limit, and the errors of earlier attempts are lost",
            ),
            Counting::Failures => limitations.push(
                "this backend cannot postpone with new headers: failed tasks are retried at once, and the errors of earlier attempts are lost",
            ),
        }
        if capabilities.delivery_count != DeliveryCount::ExceptReleases {
            limitations.push("this backend does not distinguish crashes from releases: only the queue's max_deliveries ends a crash loop");
        }
        if !capabilities.inspect.cancel {
            limitations.push("this backend does not support cancellation requests: only a shutdown can cancel running tasks");
        }
        limitations.into_iter().map(str::to_owned).collect()
    }

    /// The name of the worker, which is stored with the ends of tasks: see
    /// [`WorkerBuilder::name`](crate::WorkerBuilder::name).
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// The partitions that the worker serves, in the order in which they were added.
    pub fn partitions(&self) -> impl Iterator<Item = &PartitionId> {
        self.0.partitions.iter().map(|partition| &partition.id)
    }

    /// The queue that the worker serves.
    pub fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// Runs until SIGTERM or SIGINT, then [shuts down](Self::shutdown). On a second signal it shuts down
    /// [immediately](Self::shutdown_now). The queue stays open: close it afterwards.
    ///
    /// If the run leaves handlers running that [cannot be stopped](Summary::abandoned), one more signal ends
    /// the process at once, with status 143 or 130, unless another run listens to signals. See [the
    /// crate](crate#handlers-that-block) for how to end the process without that signal.
    ///
    /// # Errors
    /// If the process cannot listen to signals; otherwise as [`run_until`](Self::run_until).
    ///
    /// # Cancellation
    /// As [`run_until`](Self::run_until).
    pub async fn run(&self) -> Result<Summary> {
        let summary = self.run_listening().await?;
        if summary.abandoned > 0 {
            exit_on_next_signal().await;
        }
        Ok(summary)
    }

    async fn run_listening(&self) -> Result<Summary> {
        let _listening = Listening::begin();
        let mut signals = Signals::listen()?;
        let mut work = pin!(self.work(false));
        tokio::select! { biased; end = &mut work => return end, _ = signals.next() => self.shutdown() }
        tokio::select! { biased; end = &mut work => return end, _ = signals.next() => self.shutdown_now() }
        work.await
    }

    /// Runs until the future ends, then [shuts down](Self::shutdown) and returns how the tasks ended.
    ///
    /// # Errors
    /// [`Closed`](anyqueue::ErrorKind::Closed) once the queue is closed;
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) if this worker is already running. No other error
    /// of the backend ends the run.
    ///
    /// # Cancellation
    /// Dropping the future stops pulling and releases what has no slot yet. Tasks with a slot continue and
    /// are settled.
    pub async fn run_until(&self, shutdown: impl Future<Output = ()>) -> Result<Summary> {
        let mut work = pin!(self.work(false));
        // The run is polled first: if it is refused, it must not shut down the run that is under way.
        tokio::select! { biased; end = &mut work => return end, () = shutdown => self.shutdown() }
        work.await
    }

    /// Processes everything that is ready, including messages pushed in the meantime, and ends when every
    /// partition is empty. It does not wait for delayed tasks or for retries.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until), and the backend's error after several failures in a row.
    ///
    /// # Cancellation
    /// As [`run_until`](Self::run_until).
    pub async fn run_once(&self) -> Result<Summary> {
        self.work(true).await
    }

    /// Ends the run in an orderly way. The worker takes on nothing more and releases what has not started. It
    /// waits for running tasks, then asks them to stop, and releases those that it interrupted, uncounted.
    /// [`WorkerBuilder::drain`](crate::WorkerBuilder::drain) sets the times. If no run is under way, the next
    /// one ends at once. Returns without waiting.
    pub fn shutdown(&self) {
        self.advance(Stage::Draining);
    }

    /// Like [`shutdown`](Self::shutdown), but asks running tasks to stop at once.
    pub fn shutdown_now(&self) {
        self.advance(Stage::Cancelling);
    }

    /// Takes on nothing more from this partition until it is [resumed](Self::resume). Running tasks continue.
    /// Other workers are not affected; to pause all of them, use [`Queue::pause`].
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for a partition that this worker does not serve.
    pub fn pause(&self, partition: impl IntoPartitionId) -> Result<()> {
        self.set_paused(&partition.into_partition_id()?, true)
    }

    /// Resumes a [paused](Self::pause) partition.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub fn resume(&self, partition: impl IntoPartitionId) -> Result<()> {
        self.set_paused(&partition.into_partition_id()?, false)
    }

    /// How the worker is doing.
    pub fn health(&self) -> Health {
        let now = self.0.queue.clock().now();
        let control = self.0.control();
        let failing = self.0.partitions.iter().zip(&control.failing);
        Health {
            stage: *self.0.stage.borrow(),
            running: self.0.pool.occupied(),
            slots: self.0.pool.slots(),
            stuck: control.stuck,
            since_tick: now.saturating_duration_since(control.ticked_at),
            since_progress: now.saturating_duration_since(control.progress_at),
            failing: failing
                .filter_map(|(partition, failing)| Some((partition.id.clone(), failing.error()?.clone())))
                .collect(),
            throttled: control.throttled.clone(),
            permits: self.0.config.permits.as_ref().and_then(|permits| permits.problem()),
        }
    }

    /// The tasks that are running.
    pub fn running(&self) -> Vec<TaskContext> {
        self.0.pool.running.tasks()
    }

    fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        let index = self.0.partitions.iter().position(|config| config.id == *partition);
        let mut control = self.0.control();
        let Some(place) = index.and_then(|index| control.paused.get_mut(index)) else {
            return Err(Error::invalid(format!("this worker does not serve the partition {partition}")));
        };
        *place = paused;
        drop(control);
        self.0.pool.changed.notify_one();
        Ok(())
    }

    fn advance(&self, to: Stage) {
        self.0.stage.send_if_modified(|stage| {
            let forward = to > *stage;
            *stage = to.max(*stage);
            forward
        });
        self.0.pool.changed.notify_one();
    }

    async fn work(&self, burst: bool) -> Result<Summary> {
        let _busy = Busy::begin(&self.0)?;
        let keeper = Keeper::begin(&self.0);
        // In a task of its own: the caller may not be on a thread of the runtime, and then each wake-up would
        // cross threads.
        let fetch = tokio::spawn(Fetch::new(self.0.clone(), burst)?.run());
        let _stop = AbortOnDrop(fetch.abort_handle());
        let _purging = AbortOnDrop(tokio::spawn(purge_ended(self.0.clone())).abort_handle());
        let end = fetch.await.unwrap_or_else(|error| {
            Err(Error::new(anyqueue::ErrorKind::Internal, "the worker's loop ended unexpectedly")
                .with_source(error))
        });
        if let Some(keeper) = keeper {
            keeper.end().await;
        }
        end
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Allows one run at a time.
struct Busy<'a>(&'a Shared);

impl<'a> Busy<'a> {
    fn begin(shared: &'a Shared) -> Result<Self> {
        if shared.busy.swap(true, Ordering::SeqCst) {
            return Err(Error::invalid(
                "this worker is already running: create another one, or await the first run",
            ));
        }
        shared.tally.reset();
        let now = shared.queue.clock().now();
        let mut control = shared.control();
        (control.ticked_at, control.progress_at) = (now, now);
        Ok(Self(shared))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.stage.send_replace(Stage::Working);
        self.0.busy.store(false, Ordering::SeqCst);
    }
}
