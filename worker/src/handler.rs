//! Handlers, type-erased when they are registered, and which message goes to which.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyqueue::{Bytes, MessageData};
use futures_util::future::{BoxFuture, FutureExt};
use serde::de::DeserializeOwned;

use crate::context::{TaskContext, kind};
use crate::error::TaskResult;
use crate::retry::Retry;

/// The future of a handler, as wrappers see it.
pub type Run = BoxFuture<'static, TaskResult>;
/// What wraps the run of a handler.
pub(crate) type Wrap = Arc<dyn Fn(TaskContext, Run) -> Run + Send + Sync>;
/// Decodes the payload and starts the handler. The error says why the payload cannot be decoded.
type Start = Box<dyn Fn(Bytes, TaskContext) -> Result<Run, String> + Send + Sync>;

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
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
}

impl Kind {
    /// The kind of this name, without limits.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), concurrency: usize::MAX, timeout: None, retry: None }
    }

    /// How many of its tasks run at once in this process, over all partitions, at most. At least 1.
    ///
    /// Give a kind with a long backlog a partition of its own and limit that by [`Partition::concurrency`](crate::Partition::concurrency),
    /// which costs nothing. In a partition that it shares, such a kind holds up the kinds behind it, loses its order, and costs writes.
    /// The reason is that nobody knows what kinds a pull will bring:
    ///
    /// - While every kind is full, nothing is pulled.
    /// - While only some kinds are full, their messages are held for up to [`prefetch_ttl`](crate::WorkerBuilder::prefetch_ttl), as many as
    ///   there are slots.
    /// - Further messages of full kinds are postponed for a second, behind what was pushed meanwhile. While nothing else comes, the
    ///   worker looks for other kinds at most every quarter of a second.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// How long one attempt may take. Overrides the partition's limit. The message's `max_duration` overrides both.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// When failed tasks are retried. Overrides the partition's policy.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }
}

/// A kind with its handler.
pub(crate) struct Route {
    pub(crate) kind: Kind,
    start: Start,
    pub(crate) running: AtomicUsize,
}

impl Route {
    fn new(kind: &str, start: Start) -> Self {
        Self { kind: Kind::new(kind), start, running: AtomicUsize::new(0) }
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
        Self::new(kind, Box::new(start))
    }

    pub(crate) fn raw<F, Fut>(kind: &str, handler: F) -> Self
    where
        F: Fn(Bytes, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        Self::new(kind, Box::new(move |payload, task| Ok(handler(payload, task).boxed())))
    }

    pub(crate) fn start(&self, payload: Bytes, task: &TaskContext, wraps: &[Wrap]) -> Result<Run, String> {
        let mut run = (self.start)(payload, task.clone())?;
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
}

impl Routes {
    /// `false` if the kind has a handler already.
    pub(crate) fn add(&mut self, route: Route) -> bool {
        self.by_kind.insert(route.kind.name.clone(), Arc::new(route)).is_none()
    }

    pub(crate) fn add_any(&mut self, route: Route) -> bool {
        self.any.replace(Arc::new(route)).is_none()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_kind.is_empty() && self.any.is_none()
    }

    /// Sets the limits of a kind; `false` if it has no handler.
    pub(crate) fn configure(&mut self, kind: Kind) -> bool {
        let route = self.by_kind.get_mut(&kind.name).and_then(Arc::get_mut);
        route.map(|route| route.kind = kind).is_some()
    }

    /// The retry policies that kinds have of their own.
    pub(crate) fn retries(&self) -> impl Iterator<Item = Retry> {
        self.any.iter().chain(self.by_kind.values()).filter_map(|route| route.kind.retry)
    }

    /// How many more tasks could start, if they were of kinds that have room.
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
