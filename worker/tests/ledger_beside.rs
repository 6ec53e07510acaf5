//! What a ledger beside a queue is told of tasks that a worker fails, where the queue can neither be browsed nor, perhaps, keep it in headers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at anything")]

use std::time::Duration;

use anyqueue::adapter::{Capabilities, Forward, LedgerQueueStorage, QueueStorage, Storage};
use anyqueue::{Beside, Keep, MessageId, Queue, Task, TaskState};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Failure, Partition, Retry, TaskContext, TaskError, TaskResult, Worker, task};

/// No run here takes as long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A queue as RabbitMQ or SQS are.
#[derive(Debug)]
struct Blind(MemoryQueue, Capabilities);

impl Forward for Blind {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        None
    }
}

fn queue(keeps_headers: bool) -> Queue {
    let memory = MemoryQueue::new();
    let mut capabilities = memory.capabilities().clone();
    (capabilities.ledger, capabilities.inspect.browse) = (None, false);
    capabilities.postpone_headers = keeps_headers;
    let storage = Beside::new(Blind(memory, capabilities), MemoryQueue::new()).unwrap();
    Queue::builder(storage).ledger(Keep::default()).build().unwrap()
}

fn errors(task: &Task) -> Vec<(u32, String)> {
    let errors: Vec<Failure> = serde_json::from_str(task.errors.as_deref().unwrap_or("[]")).unwrap();
    errors.into_iter().map(|failure| (failure.attempt, failure.error)).collect()
}

/// The task, once the ledger has been told of so many attempts.
async fn after(queue: &Queue, id: MessageId, attempts: u32) -> Task {
    loop {
        let task = queue.task("jobs", id).await.unwrap();
        if let Some(task) = task.filter(|task| task.attempt == attempts) {
            return task;
        }
        tokio::task::yield_now().await;
    }
}

/// Fails, but not before the ledger has been told of the attempt before.
async fn fail(queue: Queue, id: MessageId, this: u32) -> TaskResult {
    let before = after(&queue, id, this - 1).await;
    if this > 1 {
        assert_eq!((before.state, before.worker.as_deref()), (TaskState::Queued, Some("w")));
        assert_eq!(errors(&before).pop().unwrap(), (this - 1, "no route".to_owned()));
    }
    Err(TaskError::retry("no route"))
}

#[tokio::test]
async fn what_failed_is_known_with_its_errors_until_it_is_dead() {
    for keeps_headers in [true, false] {
        let queue = queue(keeps_headers);
        let message = task("k", &()).unwrap();
        let id = message.id();
        queue.push("jobs", message).await.unwrap();
        let looks = queue.clone();
        let retry = Retry::exponential(Duration::from_millis(1)).max(2);
        let worker = Worker::builder(queue.clone()).name("w").partition(Partition::new("jobs").retry(retry));
        let handler = move |(): (), task: TaskContext| fail(looks.clone(), id, task.attempt());
        let worker = worker.handler("k", handler).build().unwrap();
        let dead = tokio::select! {
            ran = worker.run() => panic!("it was not to end: {ran:?}"),
            task = queue.wait_for("jobs", id, PATIENCE) => task.unwrap().unwrap(),
        };
        assert!(dead.is_dead(), "{keeps_headers}: {dead:?}");
        assert_eq!((dead.attempt, dead.reason.as_deref()), (3, Some("failed in attempt 3: no route")));
    }
}
