//! What the tests share: a store whose time they turn, workers, and tasks that wait to be let go.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::control::ControlStore;
use anyqueue::{Clock, ClockSetter, ManualClock, MessageId, Queue, Result};
use anyqueue_control::registry::{Ended, MemberOptions, Registry, WorkerInfo};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use anyqueue_worker::{Partition, Summary, TaskContext, TaskError, Worker, WorkerBuilder, task};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// A queue and its control store, by a clock that a test turns.
pub(crate) struct Bed {
    pub(crate) time: ManualClock,
    /// Sets the server's time of day.
    pub(crate) server: ClockSetter,
    pub(crate) memory: MemoryQueue,
    pub(crate) queue: Queue,
    pub(crate) registry: Registry,
    /// What tasks wait for.
    pub(crate) gate: Arc<Semaphore>,
}

pub(crate) type Running = JoinHandle<(Result<Summary>, Ended)>;

impl Bed {
    pub(crate) fn new() -> Self {
        let time = ManualClock::new();
        let (clock, server) = time.clock().settable();
        let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock));
        let queue = Queue::builder(memory.client()).clock(time.clock()).build().unwrap();
        let registry = Registry::new(queue.control().unwrap());
        Self { time, server, memory, queue, registry, gate: Arc::new(Semaphore::new(0)) }
    }

    /// A worker of this name, by its own clock, whose tasks run until the gate lets them go or they are asked to stop.
    pub(crate) fn worker_by(&self, name: &str, clock: Clock, slots: usize) -> Worker {
        self.builder_by(name, clock, slots).build().unwrap()
    }

    pub(crate) fn builder_by(&self, name: &str, clock: Clock, slots: usize) -> WorkerBuilder {
        let queue = Queue::builder(self.memory.client()).clock(clock).build().unwrap();
        let gate = self.gate.clone();
        let wait = move |(): (), task: TaskContext| {
            let gate = gate.clone();
            async move {
                task.set_progress("waiting");
                tokio::select! {
                    _ = task.cancelled() => Err(TaskError::permanent("asked to stop")),
                    let_go = gate.acquire() => { let_go.unwrap().forget(); Ok(()) }
                }
            }
        };
        let builder = Worker::builder(queue).partition(Partition::new("jobs")).handler("wait", wait);
        builder.name(name).slots(slots)
    }

    pub(crate) fn worker(&self, name: &str) -> Worker {
        self.worker_by(name, self.time.clock(), 16)
    }

    /// A worker that is in the registry and runs.
    pub(crate) async fn start(&self, name: &str) -> (Worker, Running) {
        let worker = self.worker(name);
        let running = self.run(&worker).await;
        (worker, running)
    }

    pub(crate) async fn run(&self, worker: &Worker) -> Running {
        let member = self.registry.join(worker, MemberOptions::default()).await.unwrap();
        let worker = worker.clone();
        tokio::spawn(async move { member.during(worker.run_until(std::future::pending())).await })
    }

    pub(crate) async fn push(&self) -> MessageId {
        self.queue.push("jobs", task("wait", &()).unwrap()).await.unwrap();
        let page = self.queue.browse("jobs", anyqueue::Page::of(1000)).await.unwrap();
        page.last().unwrap().message.id()
    }

    /// Lets time pass, in steps that let everybody come to their turn.
    pub(crate) async fn pass(&self, time: Duration) {
        const STEP: Duration = Duration::from_secs(1);
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            self.time.advance(step);
            left = left.saturating_sub(step);
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Lets time pass until this is so.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        for _ in 0..120 {
            if is_so().await {
                return;
            }
            self.pass(Duration::from_secs(1)).await;
        }
        panic!("not within two minutes: {what}");
    }

    pub(crate) async fn info(&self, name: &str) -> Option<WorkerInfo> {
        self.registry.get(name).await.unwrap()
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        self.registry.list().await.unwrap().workers.into_iter().map(|worker| worker.name).collect()
    }
}

/// The registry of one store, behind something else.
pub(crate) fn registry_over(storage: Arc<dyn Storage>, time: &ManualClock) -> Registry {
    Registry::new(store_over(storage, time))
}

pub(crate) fn store_over(storage: Arc<dyn Storage>, time: &ManualClock) -> ControlStore {
    let retry = anyqueue::RetryPolicy::NEVER;
    let queue = Queue::builder(storage).clock(time.clock()).retry(retry).build().unwrap();
    queue.control().unwrap()
}

/// A worker with a task that is killed, as far as others can see.
pub(crate) async fn killed(bed: &Bed) -> String {
    let (worker, running) = bed.start("dead").await;
    let id = bed.push().await;
    bed.until("it tells of its task", async || bed.info("dead").await.is_some_and(|it| !it.held.is_empty()))
        .await;
    running.abort();
    let _ = running.await;
    drop(worker);
    id.to_string()
}
