//! A worker on the memory backend whose clock a test controls, to test handlers without sleeping.
//!
//! ```
//! use anyqueue_worker::testing::Harness;
//! use anyqueue_worker::{Partition, Retry, TaskContext, TaskError, TaskResult};
//! use std::time::Duration;
//!
//! async fn send_mail(to: String, task: TaskContext) -> TaskResult {
//!     // The mail server is down at first.
//!     if task.attempt() == 1 { Err(TaskError::retry("connection refused")) } else { Ok(()) }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let harness = Harness::new(|worker| {
//!     let retry = Retry::exponential(Duration::from_secs(20)).jitter(0.0);
//!     worker.partition(Partition::new("mail").retry(retry)).handler("send_mail", send_mail)
//! })?;
//! harness.push("mail", "send_mail", &"a@example.org").await?;
//! assert_eq!(harness.run().await?.retried, 1);
//! harness.advance(Duration::from_secs(19)).await;
//! assert_eq!(harness.run().await?.processed, 0);
//! harness.advance(Duration::from_secs(1)).await;
//! assert_eq!(harness.run().await?.processed, 1);
//! # Ok::<(), anyqueue::Error>(()) }).unwrap();
//! ```

use std::time::Duration;

use anyqueue::{
    Counts, DeadLetter, IntoPartitionId, Keep, ManualClock, MessageData, MessageId, Page, Queue, Result,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use serde::Serialize;

use crate::{Summary, Worker, WorkerBuilder, task};

/// How far [`Harness::advance`] moves the clock in one step, so that heartbeats come in time.
const STEP: Duration = Duration::from_secs(5);
/// How often other tasks are polled after each step.
const YIELDS: usize = 32;

/// A queue in memory with a [ledger](anyqueue::QueueBuilder::ledger), a worker on it, and their clock. Use it
/// on a current-thread runtime, the default of `#[tokio::test]`.
#[derive(Debug)]
pub struct Harness {
    queue: Queue,
    worker: Worker,
    clock: ManualClock,
}

impl Harness {
    /// Makes a harness with the worker that `build` configures.
    ///
    /// # Errors
    /// As [`WorkerBuilder::build`].
    pub fn new(build: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Result<Self> {
        let clock = ManualClock::new();
        let storage = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
        let queue = Queue::builder(storage).clock(clock.clock()).ledger(Keep::default()).build()?;
        let worker = build(Worker::builder(queue.clone())).build()?;
        Ok(Self { queue, worker, clock })
    }

    /// The queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The worker.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Pushes a task of a kind.
    ///
    /// # Errors
    /// As [`task`] and [`Queue::push`].
    pub async fn push<T: Serialize>(&self, partition: &str, kind: &str, payload: &T) -> Result<MessageId> {
        self.push_message(partition, task(kind, payload)?).await
    }

    /// Pushes a message as it is.
    ///
    /// # Errors
    /// As [`Queue::push`].
    pub async fn push_message(&self, partition: &str, message: MessageData) -> Result<MessageId> {
        let id = message.id();
        self.queue.push(partition, message).await?;
        Ok(id)
    }

    /// Runs everything that is due, including tasks that handlers push in the meantime, and returns how the
    /// tasks ended.
    ///
    /// # Errors
    /// As [`Worker::run_once`].
    pub async fn run(&self) -> Result<Summary> {
        self.worker.run_once().await
    }

    /// Lets time pass in steps, and lets the tasks that wait for it continue. Join it with [`run`](Self::run)
    /// to let time pass while handlers run.
    pub async fn advance(&self, time: Duration) {
        let mut left = time;
        turns().await; // what is about to start starts before time passes
        while !left.is_zero() {
            let step = left.min(STEP);
            self.clock.advance(step);
            left -= step;
            turns().await;
        }
    }

    /// Lets time pass while nothing runs, not even heartbeats, as if the process had been stopped. Leases
    /// that end in the meantime are lost.
    pub fn stall(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Lists the dead letters of a partition, at most a thousand.
    ///
    /// # Errors
    /// As [`DeadLetters::list`](anyqueue::DeadLetters::list).
    pub async fn dead(&self, partition: impl IntoPartitionId) -> Result<Vec<DeadLetter>> {
        self.queue.dead_letters(partition)?.list(Page::of(1000)).await
    }

    /// Counts the messages of a partition in each state.
    ///
    /// # Errors
    /// As [`Queue::counts`].
    pub async fn counts(&self, partition: impl IntoPartitionId) -> Result<Counts> {
        self.queue.counts(partition).await
    }
}

/// Lets the other tasks of the runtime run for a while.
async fn turns() {
    for _ in 0..YIELDS {
        tokio::task::yield_now().await;
    }
}
