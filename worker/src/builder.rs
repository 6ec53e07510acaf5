//! How to set up a worker.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Bytes, Error, MAX_KEY_BYTES, Queue, Result};
use futures_util::future::FutureExt;
use serde::de::DeserializeOwned;

use crate::batch::{IntoBatchResult, Task};
use crate::batch_context::BatchContext;
use crate::config::{Config, Counting, MAX_SLOTS, PartitionConfig};
use crate::context::TaskContext;
use crate::error::TaskResult;
use crate::governor::Governor;
use crate::handler::{Kind, Route, Routes, Run};
use crate::partition::Partition;
use crate::permits::Permits;
use crate::retry::Retry;
use crate::schedule::Sharing;
use crate::shared::Shared;
use crate::work_set::{WorkSet, WorkSource};
use crate::worker::Worker;

/// Sets up a [`Worker`].
///
/// ```
/// use anyqueue_worker::{Partition, TaskContext, Worker};
/// use std::time::Duration;
/// # let _runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # let _entered = _runtime.enter();
/// # let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// let worker = Worker::builder(queue)
///     .partition(Partition::new("mail"))
///     .handler("send_mail", |_to: String, _: TaskContext| async { Ok(()) })
///     .slots(32)
///     .timeout(Duration::from_mins(1))
///     .build()?;
/// # Ok::<(), anyqueue::Error>(())
/// ```
#[must_use = "call build()"]
pub struct WorkerBuilder {
    queue: Queue,
    partitions: Vec<Partition>,
    kinds: Vec<Kind>,
    routes: Routes,
    pub(crate) problems: Vec<String>,
    pub(crate) config: Config,
}

impl Worker {
    /// Sets up a worker over a queue.
    pub fn builder(queue: Queue) -> WorkerBuilder {
        WorkerBuilder {
            queue,
            partitions: Vec::new(),
            kinds: Vec::new(),
            routes: Routes::default(),
            problems: Vec::new(),
            config: Config::default(),
        }
    }
}

impl WorkerBuilder {
    /// Adds a partition to serve. At least one is required.
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partitions.push(partition);
        self
    }

    /// Adds a handler for the tasks of a kind. Their payload is read as JSON. To make such a task, use
    /// [`task`](crate::task).
    ///
    /// A task whose payload cannot be read is treated like one of an unknown kind: see
    /// [`unknown_tasks`](Self::unknown_tasks).
    pub fn handler<T, F, Fut>(self, kind: &str, handler: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        self.route(Route::typed(kind, handler))
    }

    /// Adds a handler for the tasks of a kind, which reads the payload itself.
    pub fn raw_handler<F, Fut>(self, kind: &str, handler: F) -> Self
    where
        F: Fn(Bytes, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        self.route(Route::raw(kind, handler))
    }

    /// Adds a handler that takes several tasks of a kind at once: those that follow one another at the front
    /// of a group, if the partition is pulled in [whole groups](Partition::whole_groups). In other partitions
    /// each task comes alone. See [the crate](crate#batches) for what happens to the tasks of a batch.
    ///
    /// The tasks come in the order of the group. Return one [`TaskResult`] for all of them, or one for each:
    /// see [`IntoBatchResult`].
    pub fn batch_handler<T, F, Fut>(self, kind: &str, handler: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(Vec<Task<T>>, BatchContext) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoBatchResult,
    {
        self.route(Route::batch(kind, handler))
    }

    /// Adds a handler for the items of a work set. The messages of the set have a kind of their own,
    /// `work-set NAME`, which [`Kind`] can limit.
    pub fn work_set<S, F, Fut>(mut self, set: WorkSet<S>, handler: F) -> Self
    where
        S: WorkSource,
        F: Fn(S::Item, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        let capabilities = self.queue.capabilities();
        if !capabilities.postpone_headers && capabilities.successors.is_none() {
            self.problems.push(
                "a work set keeps its cursor in headers, and this backend can neither replace them nor store successors".to_owned(),
            );
        }
        let kind = set.kind();
        self.route(Route::raw(&kind, set.runner(handler)))
    }

    fn route(mut self, route: Route) -> Self {
        let kind = route.kind.name.clone();
        if !self.routes.add(route) {
            self.problems.push(format!("the kind {kind:?} has two handlers: register one"));
        }
        self
    }

    /// Adds a handler for the tasks of all other kinds, and for messages that name no kind.
    pub fn any_handler<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Bytes, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        if !self.routes.add_any(Route::raw("", handler)) {
            self.problems.push("there are two handlers for any kind: register one".to_owned());
        }
        self
    }

    /// Sets the limits of a kind. The kind must have a handler of its own.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// Wraps every run of a handler, for the application's logs, traces and metrics. The wrapper added last
    /// is the outermost. Runs of [batch handlers](Self::batch_handler) are not wrapped.
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

    /// Sets the name of the worker, from 1 to 256 bytes. It is stored with the [ends of
    /// tasks](anyqueue::QueueBuilder::ledger). Default: the name of the machine and the process id, such as
    /// `host-4711`.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Sets how many tasks run at once, at most [`MAX_SLOTS`]. [Heavy tasks](Kind::slots) count as several.
    /// Nothing is pulled without a free slot. The queue's [`max_held`](anyqueue::QueueBuilder::max_held) is a
    /// further limit. [`Worker::set_slots`] changes the number later. Default: 16.
    pub fn slots(mut self, slots: usize) -> Self {
        self.config.slots = slots;
        self
    }

    /// Sets how many messages the worker holds beyond its slots, so that a slot that becomes free has its
    /// next task at hand. At most [`MAX_SLOTS`]. Default: 0.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.config.prefetch = messages;
        self
    }

    /// Sets how long a prefetched message waits for a slot before it is released for another worker,
    /// uncounted. Default: 10 s.
    pub fn prefetch_ttl(mut self, ttl: Duration) -> Self {
        self.config.prefetch_ttl = ttl;
        self
    }

    /// Sets how the partitions share the slots. Default: by weight.
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.config.sharing = sharing;
        self
    }

    /// Sets how long one attempt may take. A limit of the partition, kind or message overrides it. Default:
    /// no limit but the queue's `max_hold`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = Some(timeout);
        self
    }

    /// Sets when failed tasks are retried. A policy of the partition or kind overrides it.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.config.retry = retry;
        self
    }

    /// Sets whether tasks that timed out are retried like failed ones. Default: no, they go to the dead
    /// letters.
    pub fn retry_timeouts(mut self, retry: bool) -> Self {
        self.config.retry_timeouts = retry;
        self
    }

    /// Sets how often a task may be lost with the process that runs it. A task that was lost more often goes
    /// to the dead letters instead of running. Default: 5. If the backend counts releases as deliveries, only
    /// the queue's `max_deliveries` limits this.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.config.max_crashes = crashes;
        self
    }

    /// Sets what happens to a task of an unknown kind, or with a payload that cannot be read. The task is
    /// deferred by `delay`, up to `times` times, for a worker that knows it. Then it goes to the dead
    /// letters. Default: 10 times, 30 s.
    pub fn unknown_tasks(mut self, times: u32, delay: Duration) -> Self {
        (self.config.max_unknown, self.config.unknown_delay) = (times, delay);
        self
    }

    /// Sets how long a shutdown waits for running tasks (`wait`), and how long they may take to end once they
    /// are asked to stop (`cancel_grace`). Tasks that do not end in time are released, uncounted.
    /// Default: 25 s and 5 s.
    ///
    /// Before that, releasing the messages that have not started may take another five seconds, and so may
    /// the last settlements afterwards. The grace also applies to handlers that are asked to stop for any
    /// other reason.
    pub fn drain(mut self, wait: Duration, cancel_grace: Duration) -> Self {
        (self.config.drain, self.config.cancel_grace) = (wait, cancel_grace);
        self
    }

    /// Sets a governor, which is asked about once a second how much room this machine has for tasks. The
    /// number of slots in use follows its answer. Default: none.
    pub fn governor(mut self, governor: impl Governor) -> Self {
        self.config.governor = Some(Arc::new(governor));
        self
    }

    /// Sets the permits that the worker asks for before it pulls and starts tasks, if processes share limits:
    /// see [`Permits`]. Use each `Permits` for one worker only. Default: none.
    ///
    /// Where a limit applies, a pull asks for no more tasks than there are permits. Each task takes one, also
    /// in a batch: no batch is larger than its partition's limit.
    pub fn permits(mut self, permits: impl Permits) -> Self {
        self.config.permits = Some(Arc::new(permits));
        self
    }

    /// Builds the worker. Does no I/O. [`Worker::limitations`] lists what the backend cannot provide.
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) without a partition, a handler or a slot, for more
    /// than [`MAX_SLOTS`], for a bad name, for the same partition or kind twice, and for a lease that the
    /// backend cannot give. The error lists every problem.
    pub fn build(mut self) -> Result<Worker> {
        let partitions = self.check_partitions()?;
        self.check_handlers(&partitions);
        self.check_name();
        self.check_slots(&partitions);
        self.check_retries(&partitions);
        self.check_groups(&partitions);
        if !self.problems.is_empty() {
            return Err(Error::invalid(self.problems.join("; ")));
        }
        self.config.counting = Counting::on(self.queue.capabilities());
        Ok(Worker::new(Shared::new(self.queue, partitions, self.routes, self.config)))
    }

    fn check_partitions(&mut self) -> Result<Vec<PartitionConfig>> {
        let mut configs: Vec<PartitionConfig> = Vec::with_capacity(self.partitions.len());
        let mut parts = Vec::with_capacity(self.partitions.len());
        for partition in std::mem::take(&mut self.partitions) {
            parts.extend(partition.into_parts(&self.routes, &self.kinds, &mut self.problems)?);
        }
        for partition in parts {
            let config = partition.check(self.queue.capabilities(), &mut self.problems)?;
            if configs.iter().any(|known| known.id == config.id) {
                self.problems.push(format!("the partition {} is named twice: name it once", config.id));
            }
            configs.push(config);
        }
        if configs.is_empty() {
            self.problems.push("there is no partition to serve: name at least one".to_owned());
        }
        Ok(configs)
    }

    /// Retries as new messages need a backend that stores them together with the end of the failed message.
    fn check_retries(&mut self, partitions: &[PartitionConfig]) {
        if self.queue.capabilities().successors.is_some() {
            return;
        }
        let of_partitions = partitions.iter().filter_map(|partition| partition.retry);
        let of_kinds = self.routes.retries();
        let mut all = of_partitions.chain(of_kinds).chain([self.config.retry]);
        if all.any(|retry| retry.is_as_new_message()) {
            self.problems.push(
                "retries as new messages need successors, which this backend does not store: leave out as_new_message()"
                    .to_owned(),
            );
        }
    }

    /// Whole groups need batch handlers, and retries that keep the order of a group.
    fn check_groups(&mut self, partitions: &[PartitionConfig]) {
        let mut whole = partitions.iter().filter(|partition| partition.group_members > 1).peekable();
        if whole.peek().is_none() {
            return;
        }
        let mut retries = whole.map(|partition| partition.retry.unwrap_or(self.config.retry));
        if retries.any(|retry| retry.is_as_new_message())
            || self.routes.retries().any(|retry| retry.is_as_new_message())
        {
            self.problems.push(
                "retries as new messages go to the end of their group, and whole groups are to keep their order: leave out as_new_message()"
                    .to_owned(),
            );
        }
        if !self.routes.take_batches() {
            self.problems.push(
                "groups are to be pulled whole, but no handler takes batches: register a batch_handler()"
                    .to_owned(),
            );
        }
    }

    fn check_handlers(&mut self, partitions: &[PartitionConfig]) {
        let mut names = HashSet::new();
        let reserved = partitions.iter().map(|partition| partition.reserve);
        // What is left to the partition with the smallest reserve.
        let free = self.config.slots.saturating_sub(reserved.clone().sum::<usize>());
        let most = free + reserved.min().unwrap_or(0);
        for kind in std::mem::take(&mut self.kinds) {
            let name = kind.name.clone();
            if !names.insert(name.clone()) {
                self.problems.push(format!("the kind {name:?} is named twice: set all its limits at once"));
            }
            if kind.concurrency == 0 {
                self.problems
                    .push(format!("the kind {name:?} may run 0 tasks: leave its handler out instead"));
            }
            if kind.slots == 0 || kind.slots > most {
                self.problems.push(format!(
                    "a task of the kind {name:?} takes {} slots, and the worker has {most} that others do not reserve: set 1 to as many",
                    kind.slots
                ));
            }
            if !self.routes.configure(kind) {
                self.problems.push(format!("the kind {name:?} has no handler: register one"));
            }
        }
        if self.routes.is_empty() {
            self.problems.push("there is no handler: register at least one".to_owned());
        }
    }

    fn check_name(&mut self) {
        let bytes = self.config.name.len();
        if bytes == 0 || bytes > MAX_KEY_BYTES {
            self.problems
                .push(format!("a worker's name of {bytes} bytes: give it one of 1 to {MAX_KEY_BYTES} bytes"));
        }
    }

    fn check_slots(&mut self, partitions: &[PartitionConfig]) {
        let reserved =
            partitions.iter().fold(0, |sum: usize, partition| sum.saturating_add(partition.reserve));
        let others = partitions.iter().any(|partition| partition.reserve == 0);
        let most = self.config.slots.saturating_sub(usize::from(others));
        if reserved > most {
            let rest = if others { ", and leave one for the other partitions" } else { "" };
            self.problems.push(format!(
                "{reserved} slots are reserved, and there are {}: reserve at most {most}{rest}",
                self.config.slots
            ));
        }
        if self.config.slots == 0 {
            self.problems.push("0 slots can run nothing: set at least 1".to_owned());
        }
        for (what, count) in [("slots", self.config.slots), ("prefetched messages", self.config.prefetch)] {
            if count > MAX_SLOTS {
                self.problems.push(format!("{count} {what} are too many: set at most {MAX_SLOTS}"));
            }
        }
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
