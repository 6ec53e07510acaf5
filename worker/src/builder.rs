//! How a worker is set up.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::DeliveryCount;
use anyqueue::{Bytes, Error, IntoPartitionId, PartitionId, Queue, Result};
use futures_util::future::FutureExt;
use serde::de::DeserializeOwned;

use crate::config::{Config, Counting, Lane};
use crate::context::TaskContext;
use crate::error::TaskResult;
use crate::governor::Governor;
use crate::handler::{Kind, Route, Routes, Run};
use crate::retry::Retry;
use crate::schedule::Sharing;
use crate::shared::Shared;
use crate::worker::Worker;

/// How one partition is worked.
///
/// ```
/// use anyqueue_worker::{Partition, Retry};
/// use std::time::Duration;
/// let reports = Partition::new("reports").weight(3).concurrency(4).timeout(Duration::from_mins(10)).retry(Retry::never());
/// ```
#[derive(Debug)]
#[must_use]
pub struct Partition {
    name: Result<PartitionId>,
    weight: u32,
    concurrency: usize,
    timeout: Option<Duration>,
    retry: Option<Retry>,
    lease: Option<Duration>,
}

impl Partition {
    /// The partition of this name, with weight 1 and no limits of its own. A bad name is told by [`WorkerBuilder::build`].
    pub fn new(name: impl IntoPartitionId) -> Self {
        Self {
            name: name.into_partition_id(),
            weight: 1,
            concurrency: usize::MAX,
            timeout: None,
            retry: None,
            lease: None,
        }
    }

    /// Its share of the slots while others want them too, relative to theirs. At least 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// At most this many tasks of it at once in this process.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// How long one attempt may take. A kind's and a message's own go before it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// When failed tasks are tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Another lease than the queue's for this partition. The heartbeat renews it at a third.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }
}

/// The most slots, and the most messages held beyond them. Each may hold a message, so that memory ends long before.
pub const MAX_SLOTS: usize = 1_000_000;

/// Sets up a [`Worker`]. See the crate's documentation for an example.
#[must_use = "call build()"]
pub struct WorkerBuilder {
    queue: Queue,
    partitions: Vec<Partition>,
    kinds: Vec<Kind>,
    routes: Routes,
    faults: Vec<String>,
    config: Config,
}

impl Worker {
    /// Sets up a worker over a queue.
    pub fn builder(queue: Queue) -> WorkerBuilder {
        WorkerBuilder::new(queue)
    }
}

impl WorkerBuilder {
    fn new(queue: Queue) -> Self {
        let config = Config {
            slots: 16,
            prefetch: 0,
            prefetch_ttl: Duration::from_secs(10),
            sharing: Sharing::Fair,
            timeout: None,
            retry: Retry::default(),
            retry_timeouts: false,
            max_crashes: 5,
            max_misses: 10,
            miss_delay: Duration::from_secs(30),
            drain: Duration::from_secs(25),
            cancel_grace: Duration::from_secs(5),
            governor: None,
            wraps: Vec::new(),
            counting: Counting::Headers,
        };
        Self {
            queue,
            partitions: Vec::new(),
            kinds: Vec::new(),
            routes: Routes::default(),
            faults: Vec::new(),
            config,
        }
    }

    /// A partition to work. At least one is needed.
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partitions.push(partition);
        self
    }

    /// A handler for the tasks of a kind. Their payload is read as JSON; see [`task`](crate::task) for how to push one.
    ///
    /// A payload that cannot be read is treated as an unknown kind is: see [`misses`](Self::misses).
    pub fn handler<T, F, Fut>(mut self, kind: &str, handler: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        if !self.routes.add(Route::typed(kind, handler)) {
            self.faults.push(format!("the kind {kind:?} has two handlers: register one"));
        }
        self
    }

    /// A handler for the tasks of a kind that reads the payload itself.
    pub fn raw_handler<F, Fut>(mut self, kind: &str, handler: F) -> Self
    where
        F: Fn(Bytes, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        if !self.routes.add(Route::raw(kind, handler)) {
            self.faults.push(format!("the kind {kind:?} has two handlers: register one"));
        }
        self
    }

    /// A handler for the tasks of every other kind, and for messages that name none.
    pub fn any_handler<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Bytes, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        if !self.routes.add_any(Route::raw("", handler)) {
            self.faults.push("there are two handlers for any kind: register one".to_owned());
        }
        self
    }

    /// How tasks of a kind are worked; the kind needs a handler.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// Wraps every run of a handler, outside those before: for logs, traces and measurements of the application's own.
    ///
    /// ```
    /// # use anyqueue_worker::{TaskContext, Worker};
    /// # let _runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # let _entered = _runtime.enter();
    /// # let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new()).unwrap();
    /// let builder = Worker::builder(queue).wrap(|task: TaskContext, run| async move {
    ///     let result = run.await;
    ///     println!("{} ended: {result:?}", task.id());
    ///     result
    /// });
    /// ```
    pub fn wrap<F, Fut>(mut self, wrap: F) -> Self
    where
        F: Fn(TaskContext, Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        self.config.wraps.push(Arc::new(move |task, run| wrap(task, run).boxed()));
        self
    }

    /// How many tasks run at once, at most [`MAX_SLOTS`]. Nothing is pulled without a free slot; the queue's
    /// [`max_held`](anyqueue::QueueBuilder::max_held) bounds it too. Default 16.
    pub fn slots(mut self, slots: usize) -> Self {
        self.config.slots = slots;
        self
    }

    /// How many messages are held beyond the slots, so that a slot that frees has its next task at hand. At most [`MAX_SLOTS`].
    /// Default 0.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.config.prefetch = messages;
        self
    }

    /// How long such a message waits for a slot before it is released, uncounted, for somebody else. Default 10 s.
    pub fn prefetch_ttl(mut self, ttl: Duration) -> Self {
        self.config.prefetch_ttl = ttl;
        self
    }

    /// How the partitions share the slots. Default: by weight.
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.config.sharing = sharing;
        self
    }

    /// How long one attempt may take, unless the partition, kind or message says otherwise. Default: no limit but the queue's
    /// `max_hold`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = Some(timeout);
        self
    }

    /// When failed tasks are tried again, unless the partition or kind says otherwise.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.config.retry = retry;
        self
    }

    /// Whether what timed out is tried again as what failed is. Default: no, it goes to the dead letters.
    pub fn retry_timeouts(mut self, retry: bool) -> Self {
        self.config.retry_timeouts = retry;
        self
    }

    /// How often a task may be lost with the process that ran it before it goes to the dead letters instead of running. Default 5.
    /// Where the backend counts releases as deliveries, the queue's `max_deliveries` is the only such limit.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.config.max_crashes = crashes;
        self
    }

    /// What happens to a task of unknown kind, or whose payload cannot be read: it is put off by `delay` up to `times`, for a worker
    /// that knows it, and then goes to the dead letters. Default 10 times 30 s.
    pub fn misses(mut self, times: u32, delay: Duration) -> Self {
        (self.config.max_misses, self.config.miss_delay) = (times, delay);
        self
    }

    /// How long a shutdown waits for running tasks, and how long those may then take to end once they are asked to. What does not
    /// end is released, uncounted. Giving back before, and the last settlements after, may take five seconds each. The second time
    /// also bounds how long any cancelled handler may go on. Default 25 s and 5 s.
    pub fn drain(mut self, wait: Duration, cancel_grace: Duration) -> Self {
        (self.config.drain, self.config.cancel_grace) = (wait, cancel_grace);
        self
    }

    /// What is asked before pulling whether this machine has room for more. Default: nothing.
    pub fn governor(mut self, governor: impl Governor) -> Self {
        self.config.governor = Some(Arc::new(governor));
        self
    }

    /// Makes the worker. Does no I/O. What the backend cannot give a worker is told by [`Worker::notices`].
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) without a partition, handler or slot, for more than [`MAX_SLOTS`], for a bad
    /// name, for the same partition or kind twice, and for a lease that the backend cannot keep.
    pub fn build(mut self) -> Result<Worker> {
        let mut lanes: Vec<Lane> = Vec::with_capacity(self.partitions.len());
        for partition in std::mem::take(&mut self.partitions) {
            let lane = self.lane(partition)?;
            if lanes.iter().any(|known| known.id == lane.id) {
                self.faults.push(format!("the partition {} is named twice: name it once", lane.id));
            }
            lanes.push(lane);
        }
        for kind in std::mem::take(&mut self.kinds) {
            let name = kind.name.clone();
            if kind.concurrency == 0 {
                self.faults.push(format!("the kind {name:?} may run 0 tasks: leave its handler out instead"));
            }
            if !self.routes.refine(kind) {
                self.faults.push(format!("the kind {name:?} has no handler: register one"));
            }
        }
        if lanes.is_empty() {
            self.faults.push("there is no partition to work: name at least one".to_owned());
        }
        if self.routes.is_empty() {
            self.faults.push("there is no handler: register at least one".to_owned());
        }
        if self.config.slots == 0 {
            self.faults.push("0 slots can run nothing: give at least 1".to_owned());
        }
        for (what, count) in [("slots", self.config.slots), ("prefetched messages", self.config.prefetch)] {
            if count > MAX_SLOTS {
                self.faults.push(format!(
                    "{count} {what} are more than any machine can hold: give at most {MAX_SLOTS}"
                ));
            }
        }
        if !self.faults.is_empty() {
            return Err(Error::invalid(self.faults.join("; ")));
        }
        let capabilities = self.queue.capabilities();
        self.config.counting = match (capabilities.postpone_headers, capabilities.delivery_count) {
            (true, _) if capabilities.postpone_delay.is_some() => Counting::Headers,
            (_, DeliveryCount::ExceptReleases) => Counting::Failures,
            _ => Counting::Memory,
        };
        Ok(Worker::new(Shared::new(self.queue, lanes, self.routes, self.config)))
    }

    fn lane(&mut self, partition: Partition) -> Result<Lane> {
        let Partition { name, weight, concurrency, timeout, retry, lease } = partition;
        let id = name?;
        if concurrency == 0 || weight == 0 {
            self.faults.push(format!("the partition {id} has weight or concurrency 0: leave it out instead"));
        }
        let declared = self.queue.capabilities().lease;
        if lease.is_some_and(|lease| lease < declared.min || lease > declared.max) {
            self.faults.push(format!(
                "the lease of the partition {id} is out of range: {} to {} are allowed",
                humantime::format_duration(declared.min),
                humantime::format_duration(declared.max)
            ));
        }
        Ok(Lane { id, weight, concurrency, timeout, retry, lease })
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("queue", &self.queue)
            .field("partitions", &self.partitions)
            .field("slots", &self.config.slots)
            .finish_non_exhaustive()
    }
}
