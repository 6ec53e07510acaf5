//! The worker that people hold: it runs, is controlled while it runs, and says how it is.

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
use crate::shared::{Shared, Stage};
use crate::signal::{Listening, Signals, die_of_the_next};
use crate::summary::Summary;

/// Runs handlers over a queue. Cheap to clone; all clones are one worker, so that one can control what another runs.
///
/// See the crate's documentation for what it promises.
#[derive(Clone, Debug)]
pub struct Worker(pub(crate) Arc<Shared>);

/// How a worker is doing, as [`Worker::health`] answers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// How far the run has come.
    pub stage: Stage,
    /// Tasks that occupy a slot.
    pub running: usize,
    /// Handlers that did not end within the grace after they were asked to stop.
    pub stuck: usize,
    /// How long ago the worker's loop last went round: it does so at least once a second.
    pub since_tick: Duration,
    /// How long ago a pull was last answered, if with an error, or none was needed because every slot was occupied.
    pub since_progress: Duration,
    /// Partitions whose last pull failed, and the error.
    pub failing: Vec<(PartitionId, Error)>,
    /// Why the [governor](crate::Governor) lets the worker take on nothing.
    pub throttled: Option<String>,
}

impl Health {
    /// Whether the worker got on within this time; it does while its backend is down, which a restart would not mend. An idle worker's pulls are answered every ten seconds, so ask for more than
    /// that: a minute, for instance.
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

    /// What this backend cannot give a worker, in full sentences; empty if nothing is missing. Also logged when the worker is made.
    pub fn limitations(&self) -> Vec<String> {
        let capabilities = self.0.queue.capabilities();
        let mut limitations = Vec::new();
        match self.0.config.counting {
            Counting::Headers => {}
            Counting::Memory => limitations.push(
                "this backend cannot replace headers and counts releases as deliveries: each worker knows the failed attempts that it saw itself, so that a task can be tried more often than its limit where several work, and the errors of earlier attempts are lost",
            ),
            Counting::Failures => limitations.push(
                "this backend cannot postpone as a worker needs: failed tasks are tried again at once, and the errors of earlier attempts are lost",
            ),
        }
        if capabilities.delivery_count != DeliveryCount::ExceptReleases {
            limitations.push("this backend does not tell crashes from releases: only the queue's max_deliveries ends a crash loop");
        }
        if !capabilities.inspect.cancel {
            limitations.push("this backend takes no requests for cancellation: running tasks can be cancelled by a shutdown only");
        }
        limitations.into_iter().map(str::to_owned).collect()
    }

    /// The queue it works.
    pub fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// Works until SIGTERM or SIGINT, then [shuts down](Self::shutdown). A second signal [hurries](Self::shutdown_now) that. The
    /// queue stays open: close it afterwards.
    ///
    /// If it leaves handlers behind that [cannot be stopped](Summary::abandoned), one more signal ends the process at once, with
    /// status 143 or 130, unless another run listens to it. See [the crate](crate#handlers-that-do-not-await) for how to
    /// end without one.
    ///
    /// # Errors
    /// If signals cannot be listened to; else as [`run_until`](Self::run_until).
    pub async fn run(&self) -> Result<Summary> {
        let summary = self.run_listening().await?;
        if summary.abandoned > 0 {
            die_of_the_next().await;
        }
        Ok(summary)
    }

    async fn run_listening(&self) -> Result<Summary> {
        let _listening = Listening::begin();
        let mut signals = Signals::listen()?;
        let mut work = pin!(self.work(false));
        tokio::select! { end = &mut work => return end, _ = signals.next() => self.shutdown() }
        tokio::select! { end = &mut work => return end, _ = signals.next() => self.shutdown_now() }
        work.await
    }

    /// Works until the future ends, then [shuts down](Self::shutdown) and returns what became of the tasks.
    ///
    /// # Errors
    /// [`Closed`](anyqueue::ErrorKind::Closed) once the queue is closed; [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) if this worker
    /// runs already. No error of the server ends it.
    ///
    /// # Cancellation
    /// Dropping the future stops the pulling and releases what has not started. Tasks that run go on, and are settled.
    pub async fn run_until(&self, shutdown: impl Future<Output = ()>) -> Result<Summary> {
        let mut work = pin!(self.work(false));
        tokio::select! { end = &mut work => return end, () = shutdown => self.shutdown() }
        work.await
    }

    /// Works all that is there, what is pushed meanwhile included, and ends when every partition is empty. What is delayed, also
    /// by a retry, is not waited for.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until), and the server's after it has failed several times in a row.
    pub async fn run_once(&self) -> Result<Summary> {
        self.work(true).await
    }

    /// Ends the run: takes on nothing more, releases what has not started, waits for what runs, asks it to stop, and releases
    /// what was interrupted, uncounted. The times are those of [`WorkerBuilder::drain`](crate::WorkerBuilder::drain). Before a run, it ends the next one at once.
    pub fn shutdown(&self) {
        self.advance(Stage::Draining);
    }

    /// As [`shutdown`](Self::shutdown), but what runs is asked to stop at once.
    pub fn shutdown_now(&self) {
        self.advance(Stage::Cancelling);
    }

    /// Takes on nothing more of this partition until it is [resumed](Self::resume). What runs goes on. Only this worker pauses:
    /// see [`Queue::pause`] for all of them.
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for a partition that this worker does not work.
    pub fn pause(&self, partition: impl IntoPartitionId) -> Result<()> {
        self.set_paused(&partition.into_partition_id()?, true)
    }

    /// Goes on with a partition that was [paused](Self::pause).
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub fn resume(&self, partition: impl IntoPartitionId) -> Result<()> {
        self.set_paused(&partition.into_partition_id()?, false)
    }

    /// How it is doing.
    pub fn health(&self) -> Health {
        let now = self.0.queue.clock().now();
        let control = self.0.control();
        let failing = self.0.partitions.iter().zip(&control.failing);
        Health {
            stage: *self.0.stage.borrow(),
            running: self.0.pool.occupied(),
            stuck: control.stuck,
            since_tick: now.saturating_duration_since(control.ticked_at),
            since_progress: now.saturating_duration_since(control.progress_at),
            failing: failing
                .filter_map(|(partition, error)| Some((partition.id.clone(), error.clone()?)))
                .collect(),
            throttled: control.throttled.clone(),
        }
    }

    /// The tasks that run here now.
    pub fn running(&self) -> Vec<TaskContext> {
        self.0.pool.running.tasks()
    }

    fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        let index = self.0.partitions.iter().position(|config| config.id == *partition);
        let mut control = self.0.control();
        let Some(place) = index.and_then(|index| control.paused.get_mut(index)) else {
            return Err(Error::invalid(format!("this worker does not work the partition {partition}")));
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
        // On a task of its own: what awaits this may be no worker thread, and each wake-up would then cross threads.
        let fetch = tokio::spawn(Fetch::new(self.0.clone(), burst)?.run());
        let _stop = AbortOnDrop(fetch.abort_handle());
        fetch.await.unwrap_or_else(|error| {
            Err(Error::new(anyqueue::ErrorKind::Internal, "the worker's loop ended").with_source(error))
        })
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One run at a time.
struct Busy<'a>(&'a Shared);

impl<'a> Busy<'a> {
    fn begin(shared: &'a Shared) -> Result<Self> {
        if shared.busy.swap(true, Ordering::SeqCst) {
            return Err(Error::invalid("this worker runs already: make another one, or await the first run"));
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
