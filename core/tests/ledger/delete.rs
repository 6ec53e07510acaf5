//! Deleting tasks by a filter, whether they live, are dead or have ended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::{Capabilities, Forward, InspectQueueStorage, QueueStorage, Storage, async_trait};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, DeletedTasks, ErrorKind, Keep, MessageData, MessageId,
    Page, PartitionId, Queue, QueueMessageStatus, Result, SettleOutcome, TaskFilter, TaskState, header,
};
use anyqueue_memory::MemoryQueue;

use super::{listed, push, queue, settle};

/// What is deleted: of those that live, are dead, have ended; and how many are held.
fn counts(done: DeletedTasks) -> [u64; 4] {
    [done.live, done.dead, done.ended, done.held]
}

async fn delete(queue: &Queue, filter: &TaskFilter) -> [u64; 4] {
    let done = queue.delete_tasks("jobs", filter, 10_000).await.unwrap();
    assert!(!done.more, "{done:?}");
    counts(done)
}

/// Two that wait, one that is dead, and two that have ended.
async fn five(queue: &Queue) {
    for _ in 0..5 {
        push(queue, MessageData::new("x")).await;
    }
    for status in [Processed, Processed, QueueMessageStatus::poisonous("bad")] {
        settle(queue, status).await;
    }
}

#[tokio::test]
async fn one_filter_deletes_what_lives_is_dead_and_has_ended() {
    let (_, queue) = queue();
    five(&queue).await;
    assert_eq!(delete(&queue, &TaskFilter::new().in_state(TaskState::Cancelled)).await, [0; 4]);
    assert_eq!(delete(&queue, &TaskFilter::new().in_state(TaskState::Failed)).await, [0, 1, 0, 0]);
    let states = TaskFilter::new().in_state(TaskState::Queued).in_state(TaskState::Succeeded);
    assert_eq!(delete(&queue, &states).await, [2, 0, 2, 0]);
    assert!(listed(&queue, TaskFilter::new()).await.is_empty());
    five(&queue).await;
    assert_eq!(delete(&queue, &TaskFilter::new()).await, [2, 1, 2, 0]);
    assert!(listed(&queue, TaskFilter::new()).await.is_empty());
}

#[tokio::test]
async fn a_filter_that_no_index_knows_deletes_what_matches_and_nothing_else() {
    let (_, queue) = queue();
    for number in 0..3000 {
        let kind = if number % 3 == 0 { "third" } else { "other" };
        push(&queue, MessageData::new("x").with_header(header::TASK_KIND, kind)).await;
    }
    for _ in 0..500 {
        settle(&queue, Processed).await;
    }
    for _ in 0..500 {
        settle(&queue, QueueMessageStatus::poisonous("bad")).await;
    }
    // Of 500 in a row, 166 or 167 are of the kind.
    assert_eq!(delete(&queue, &TaskFilter::new().of_kind("third")).await, [666, 167, 167, 0]);
    let left = listed(&queue, TaskFilter::new()).await;
    assert_eq!(left.len(), 2000);
    assert!(left.iter().all(|task| task.kind.as_deref() == Some("other")));
}

#[tokio::test]
async fn a_limit_is_kept_and_the_next_call_goes_on() {
    let (_, queue) = queue();
    five(&queue).await;
    let all = TaskFilter::new();
    let none = queue.delete_tasks("jobs", &all, 0).await.unwrap();
    assert_eq!((counts(none), none.more), ([0; 4], true));
    let mut steps = Vec::new();
    loop {
        let done = queue.delete_tasks("jobs", &all, 2).await.unwrap();
        steps.push(counts(done));
        if !done.more {
            break;
        }
    }
    assert_eq!(steps, [[2, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]]);
    assert!(listed(&queue, all).await.is_empty());
}

#[tokio::test]
async fn what_somebody_holds_stays_and_is_told() {
    let (_, queue) = queue();
    five(&queue).await;
    let mut held = queue.pull("jobs").await.unwrap();
    let dead = queue.dead_letters("jobs").unwrap().partition().clone();
    let letter = queue.pull(&dead).await.unwrap();
    assert_eq!((held.len(), letter.len()), (1, 1));
    assert_eq!(delete(&queue, &TaskFilter::new().in_state(TaskState::Running)).await, [0, 0, 0, 1]);
    assert_eq!(delete(&queue, &TaskFilter::new()).await, [1, 0, 2, 2]);
    assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(delete(&queue, &TaskFilter::new()).await, [0, 0, 1, 1], "its end, and the letter still");
}

type Step = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Memory, in which something happens between the look at messages and their deletion, once.
struct Between {
    memory: MemoryQueue,
    step: Mutex<Option<Step>>,
}

impl Between {
    fn queue(memory: MemoryQueue, step: impl Future<Output = ()> + Send + 'static) -> Queue {
        Queue::builder(Self { memory, step: Mutex::new(Some(Box::pin(step))) })
            .ledger(Keep::default())
            .build()
            .unwrap()
    }
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl Forward for Between {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }
}

#[async_trait]
impl InspectQueueStorage for Between {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        self.memory.partitions(page).await
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.memory.counts(partition).await
    }

    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        self.memory.browse(partition, page).await
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        let step = self.step.lock().unwrap().take();
        if let Some(step) = step {
            step.await;
        }
        self.memory.delete(partition, ids).await
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.memory.purge(partition, limit).await
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        self.memory.request_cancel(partition, ids).await
    }
}

#[tokio::test]
async fn what_is_pulled_between_the_look_and_the_deletion_stays() {
    let memory = MemoryQueue::new();
    let worker = Queue::builder(memory.client()).ledger(Keep::default()).build().unwrap();
    let id = push(&worker, MessageData::new("x")).await;
    push(&worker, MessageData::new("y")).await;
    let held = Arc::new(Mutex::new(Vec::new()));
    let (puller, taken) = (worker.clone(), Arc::clone(&held));
    let queue = Between::queue(memory, async move {
        let deliveries = puller.pull("jobs").await.unwrap();
        *taken.lock().unwrap() = deliveries;
    });
    assert_eq!(delete(&queue, &TaskFilter::new()).await, [1, 0, 0, 1]);
    let mut held = std::mem::take(&mut *held.lock().unwrap());
    assert_eq!((held.len(), held[0].id()), (1, id));
    assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
}

#[tokio::test]
async fn it_ends_though_somebody_goes_on_pushing() {
    let memory = MemoryQueue::new();
    let pusher = Queue::new(memory.client()).unwrap();
    push(&pusher, MessageData::new("x")).await;
    let queue = Between::queue(memory, async move {
        push(&pusher, MessageData::new("meanwhile")).await;
    });
    assert_eq!(delete(&queue, &TaskFilter::new()).await, [1, 0, 0, 0]);
    assert_eq!(delete(&queue, &TaskFilter::new()).await, [1, 0, 0, 0]);
}

#[tokio::test]
async fn of_two_deletions_at_once_each_counts_its_own_and_reaches_its_limit() {
    let memory = MemoryQueue::new();
    let other = Queue::new(memory.client()).unwrap();
    for _ in 0..4 {
        push(&other, MessageData::new("x")).await;
    }
    let first = Arc::new(Mutex::new(None));
    let (deleter, says) = (other.clone(), Arc::clone(&first));
    let queue = Between::queue(memory, async move {
        let done = deleter.delete_tasks("jobs", &TaskFilter::new(), 2).await.unwrap();
        *says.lock().unwrap() = Some(counts(done));
    });
    // Both have looked at the same four, and the other is quicker with the first two.
    let done = queue.delete_tasks("jobs", &TaskFilter::new(), 1).await.unwrap();
    assert_eq!(*first.lock().unwrap(), Some([2, 0, 0, 0]));
    assert_eq!((counts(done), done.more), ([1, 0, 0, 0], true));
    assert_eq!(listed(&queue, TaskFilter::new()).await.len(), 1);
}

/// Memory that cannot be looked into, as RabbitMQ and SQS are.
#[derive(Debug)]
struct Blind {
    memory: MemoryQueue,
    capabilities: Capabilities,
}

impl Forward for Blind {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
}

#[tokio::test]
async fn where_messages_cannot_be_looked_at_only_ends_are_deleted() {
    let memory = MemoryQueue::new();
    let mut capabilities = memory.capabilities().clone();
    capabilities.inspect.browse = false;
    let sighted = Queue::builder(memory.client()).ledger(Keep::default()).build().unwrap();
    let blind = Queue::new(Blind { memory, capabilities }).unwrap();
    five(&sighted).await;
    let waiting = TaskFilter::new().in_state(TaskState::Succeeded).in_state(TaskState::Queued);
    let refused = blind.delete_tasks("jobs", &waiting, 10).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert_eq!(listed(&sighted, TaskFilter::new()).await.len(), 5, "nothing was deleted");
    assert_eq!(delete(&blind, &TaskFilter::new()).await, [0, 0, 2, 0]);
    assert_eq!(listed(&sighted, TaskFilter::new()).await.len(), 3);
}
