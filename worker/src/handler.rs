//! Handlers, whose types are erased when they are registered, and the choice of the handler for a message.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyqueue::{Bytes, MessageData};
use futures_util::future::{BoxFuture, FutureExt};
use serde::de::DeserializeOwned;

use crate::batch::{IntoBatchResult, Task};
use crate::batch_context::BatchContext;
use crate::context::{TaskContext, kind};
use crate::error::TaskResult;
use crate::panics;
use crate::retry::Retry;

/// The future of a handler, as wrappers see it.
pub type Run = BoxFuture<'static, TaskResult>;
/// A wrapper around the run of a handler.
pub(crate) type Wrap = Arc<dyn Fn(TaskContext, Run) -> Run + Send + Sync>;
/// Decodes the payload and starts the handler. The error says why the payload cannot be decoded.
type Start = Box<dyn Fn(Bytes, TaskContext) -> Result<Run, String> + Send + Sync>;

/// The future of a batch handler: one result for each task.
pub(crate) type BatchRun = BoxFuture<'static, Vec<TaskResult>>;
/// Reads the payloads of a batch.
type Read = Box<dyn Fn(Vec<Bytes>) -> ReadBatch + Send + Sync>;

/// A batch whose payloads have been read, up to the first one that cannot be.
pub(crate) struct ReadBatch {
    pub(crate) readable: usize,
    /// Why the payload after the readable ones cannot be read.
    pub(crate) unreadable: Option<String>,
    /// Starts the handler with as many of the readable payloads as there are contexts.
    pub(crate) start: Box<dyn FnOnce(Vec<TaskContext>, BatchContext) -> BatchRun>,
}

/// How a handler is called.
enum Call {
    One(Start),
    Batch(Read),
}

/// The limits of one kind of task.
///
/// ```
/// use anyqueue_worker::{Kind, Retry};
/// use std::time::Duration;
/// let kind = Kind::new("render").concurrency(2).timeout(Duration::from_mins(5)).retry(Retry::never());
/// ```
#[derive(Clone, Debug)]
#[must_use = "give it to WorkerBuilder::kind"]
pub struct Kind {
    pub(crate) name: String,
    pub(crate) concurrency: usize,
    pub(crate) slots: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
}

impl Kind {
    /// A kind of this name, without limits.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), concurrency: usize::MAX, slots: 1, timeout: None, retry: None }
    }

    /// Sets how many tasks of the kind run at once in this process, over all partitions, at most. At least 1.
    /// Default: no limit.
    ///
    /// Give kinds partitions of their own with [`Partition::per_kind`](crate::Partition::per_kind): there the
    /// limit costs nothing and the order is kept. In a shared partition, a limited kind with a long backlog
    /// holds up the kinds behind it, loses its order, and costs writes, because the worker cannot know which
    /// kinds a pull will bring:
    ///
    /// - While every kind is full, nothing is pulled.
    /// - While only some kinds are full, their messages are held for up to
    ///   [`prefetch_ttl`](crate::WorkerBuilder::prefetch_ttl), as many as there are slots.
    /// - Further messages of full kinds are postponed for a second, behind messages pushed in the meantime.
    ///   While nothing else comes, the worker looks for other kinds at most every quarter of a second.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// Sets how many slots each task of the kind takes, because it needs as much of the machine as that many
    /// others; a batch takes as many. From 1, the default, to the number of the worker's slots.
    ///
    /// When it is the turn of such a task, slots that become free are kept for it until there are enough. So
    /// light tasks cannot starve it, and they wait for it no longer than the tasks running at that moment
    /// take. Tasks behind it in its partition keep their order and wait too, so give heavy kinds a partition
    /// of their own.
    ///
    /// The worker cannot know what a pull will bring: it expects what the last pull brought, and releases
    /// what cannot start.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Sets how long one attempt may take. Overrides the partition's limit. The message's `max_duration`
    /// overrides both.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets when failed tasks are retried. Overrides the partition's policy.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }
}

/// A kind with its handler.
pub(crate) struct Route {
    pub(crate) kind: Kind,
    call: Call,
    pub(crate) running: AtomicUsize,
}

impl Route {
    fn new(kind: &str, call: Call) -> Self {
        Self { kind: Kind::new(kind), call, running: AtomicUsize::new(0) }
    }

    pub(crate) fn typed<T, F, Fut>(kind: &str, handler: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        let start = move |payload: Bytes, task: TaskContext| match serde_json::from_slice(&payload) {
            Ok(payload) => Ok(handler(payload, task).boxed()),
            Err(error) => Err(error.to_string()),
        };
        Self::new(kind, Call::One(Box::new(start)))
    }

    pub(crate) fn raw<F, Fut>(kind: &str, handler: F) -> Self
    where
        F: Fn(Bytes, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        Self::new(kind, Call::One(Box::new(move |payload, task| Ok(handler(payload, task).boxed()))))
    }

    pub(crate) fn batch<T, F, Fut>(kind: &str, handler: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(Vec<Task<T>>, BatchContext) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoBatchResult,
    {
        let handler = Arc::new(handler);
        Self::new(kind, Call::Batch(Box::new(move |payloads| read_batch(&payloads, handler.clone()))))
    }

    /// Whether the handler takes batches.
    pub(crate) fn takes_batches(&self) -> bool {
        matches!(self.call, Call::Batch(_))
    }

    /// Reads the payloads for a handler that takes batches.
    pub(crate) fn read(&self, payloads: Vec<Bytes>) -> ReadBatch {
        match &self.call {
            Call::Batch(read) => read(payloads),
            Call::One(_) => ReadBatch {
                readable: 0,
                unreadable: Some("its handler takes no batches".to_owned()),
                start: Box::new(|_, _| std::future::ready(Vec::new()).boxed()),
            },
        }
    }

    pub(crate) fn start(&self, payload: Bytes, task: &TaskContext, wraps: &[Wrap]) -> Result<Run, String> {
        let Call::One(start) = &self.call else { return Err("its handler takes batches".to_owned()) };
        let mut run = start(payload, task.clone())?;
        for wrap in wraps {
            run = wrap(task.clone(), run);
        }
        Ok(run)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.room() > 0
    }

    fn room(&self) -> usize {
        self.kind.concurrency.saturating_sub(self.running.load(Ordering::SeqCst))
    }
}

fn read_batch<T, F, Fut>(payloads: &[Bytes], handler: Arc<F>) -> ReadBatch
where
    T: DeserializeOwned + 'static,
    F: Fn(Vec<Task<T>>, BatchContext) -> Fut + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoBatchResult,
{
    let (mut read, mut unreadable) = (Vec::with_capacity(payloads.len()), None);
    for payload in payloads {
        match panics::caught(|| serde_json::from_slice::<T>(payload)) {
            Ok(Ok(payload)) => read.push(payload),
            Ok(Err(error)) => unreadable = Some(error.to_string()),
            Err(text) => unreadable = Some(format!("reading it panicked: {text}")),
        }
        if unreadable.is_some() {
            break;
        }
    }
    let readable = read.len();
    let start = move |contexts: Vec<TaskContext>, batch| {
        let count = contexts.len();
        let tasks = read.into_iter().zip(contexts).map(|(payload, context)| Task::new(payload, context));
        handler(tasks.collect(), batch).map(move |result| result.into_batch_result(count)).boxed()
    };
    ReadBatch { readable, unreadable, start: Box::new(start) }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// All handlers of a worker.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    by_kind: HashMap<String, Arc<Route>>,
    any: Option<Arc<Route>>,
    /// Whether some kind takes more than one slot.
    weighted: bool,
}

impl Routes {
    /// Adds a route. Returns `false` if the kind already has a handler.
    pub(crate) fn add(&mut self, route: Route) -> bool {
        self.by_kind.insert(route.kind.name.clone(), Arc::new(route)).is_none()
    }

    pub(crate) fn add_any(&mut self, route: Route) -> bool {
        self.any.replace(Arc::new(route)).is_none()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_kind.is_empty() && self.any.is_none()
    }

    /// The kinds that have a handler of their own.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &str> {
        self.by_kind.keys().map(String::as_str)
    }

    /// Whether there is a handler for any kind.
    pub(crate) fn have_any(&self) -> bool {
        self.any.is_some()
    }

    /// Whether there is a handler for this kind.
    pub(crate) fn handle(&self, kind: &str) -> bool {
        self.have_any() || self.by_kind.contains_key(kind)
    }

    /// Sets the limits of a kind. Returns `false` if the kind has no handler.
    pub(crate) fn configure(&mut self, kind: Kind) -> bool {
        self.weighted |= kind.slots > 1;
        let route = self.by_kind.get_mut(&kind.name).and_then(Arc::get_mut);
        route.map(|route| route.kind = kind).is_some()
    }

    /// Whether some kind takes more than one slot.
    pub(crate) fn are_weighted(&self) -> bool {
        self.weighted
    }

    /// How many slots a message takes.
    pub(crate) fn slots_of(&self, message: &MessageData) -> usize {
        if self.weighted { self.of(message).map_or(1, |route| route.kind.slots) } else { 1 }
    }

    /// Whether any kind is handled in batches.
    pub(crate) fn take_batches(&self) -> bool {
        self.by_kind.values().any(|route| route.takes_batches())
    }

    /// The retry policies that are set for kinds.
    pub(crate) fn retries(&self) -> impl Iterator<Item = Retry> {
        self.any.iter().chain(self.by_kind.values()).filter_map(|route| route.kind.retry)
    }

    /// How many more tasks could start if all were of kinds that have room.
    pub(crate) fn room(&self) -> usize {
        let mut sum: usize = 0;
        for route in self.any.iter().chain(self.by_kind.values()) {
            if route.kind.concurrency == usize::MAX {
                return usize::MAX; // most workers set no limits, and ask often
            }
            sum = sum.saturating_add(route.room());
        }
        sum
    }

    pub(crate) fn of(&self, message: &MessageData) -> Option<&Arc<Route>> {
        self.by_kind.get(kind(message)).or(self.any.as_ref())
    }
}
