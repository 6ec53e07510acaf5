//! For how long the end of a task is kept: what the task, its kind, its partition and the queue say of it.

use std::time::Duration;

use anyqueue::QueueMessageStatus::{Cancelled, Processed};
use anyqueue::{
    ErrorKind, Keep, MAX_KEPT_KINDS, ManualClock, MessageData, PartitionOptions, Queue, QueueMessageStatus,
    header,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// A queue that keeps ends for a minute; those of the partition `jobs` as its own options say.
fn queue(own: PartitionOptions) -> Queue {
    let time = ManualClock::new();
    let storage = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let builder = Queue::builder(storage).clock(time.clock()).ledger(Keep::all(Some(MINUTE)));
    builder.partition("jobs", own).build().unwrap()
}

/// For how long the end of a task with these headers is kept; `None` if it is not.
async fn kept(
    queue: &Queue,
    partition: &str,
    headers: &[(&str, &str)],
    status: QueueMessageStatus,
) -> Option<Option<Duration>> {
    let message = MessageData::new("x");
    let message = headers.iter().fold(message, |message, (name, value)| message.with_header(*name, *value));
    let id = message.id();
    queue.push(partition, message).await.unwrap();
    queue.pull(partition).await.unwrap()[0].settle(status).await.unwrap();
    let task = queue.task(partition, id).await.unwrap()?;
    Some(task.expires_at.map(|expires| expires.duration_since(task.ended_at.unwrap()).unwrap()))
}

#[tokio::test]
async fn how_long_an_end_is_kept_is_said_by_the_task_then_the_partition_then_the_queue() {
    let queue = queue(PartitionOptions::default().with_keep(Keep::all(Some(HOUR))));
    let jobs = async |keep| kept(&queue, "jobs", &[(header::TASK_KEEP_SUCCESS, keep)], Processed).await;
    assert_eq!(kept(&queue, "other", &[], Processed).await, Some(Some(MINUTE)));
    assert_eq!(kept(&queue, "jobs", &[], Processed).await, Some(Some(HOUR)));
    assert_eq!(jobs("5s").await, Some(Some(Duration::from_secs(5))));
    assert_eq!(jobs("forever").await, Some(None));
    assert_eq!(jobs("0s").await, None, "nothing is kept");
}

#[tokio::test]
async fn a_kind_says_how_long_its_ends_are_kept_unless_the_task_does() {
    let own = PartitionOptions::default()
        .with_keep(Keep::all(Some(HOUR)))
        .with_keep_of_kind("invoice", Keep::all(Some(DAY)).with_cancelled(None))
        .with_keep_of_kind("ping", Keep::all(Some(Duration::ZERO)));
    let queue = queue(own);
    let (invoice, ping) = ((header::TASK_KIND, "invoice"), (header::TASK_KIND, "ping"));
    let own = (header::TASK_KEEP_SUCCESS, "5s");
    assert_eq!(kept(&queue, "jobs", &[invoice], Processed).await, Some(Some(DAY)));
    assert_eq!(kept(&queue, "jobs", &[invoice], Cancelled).await, Some(None), "by how it ends");
    assert_eq!(kept(&queue, "jobs", &[invoice, own], Processed).await, Some(Some(Duration::from_secs(5))));
    assert_eq!(kept(&queue, "jobs", &[ping], Processed).await, None, "nothing is kept");
    let mail = (header::TASK_KIND, "mail");
    assert_eq!(kept(&queue, "jobs", &[mail], Processed).await, Some(Some(HOUR)), "as the partition says");
    assert_eq!(kept(&queue, "jobs", &[], Processed).await, Some(Some(HOUR)));
    assert_eq!(kept(&queue, "other", &[invoice], Processed).await, Some(Some(MINUTE)), "said of jobs alone");
}

#[tokio::test]
async fn the_last_word_on_a_kind_counts_and_too_many_kinds_are_refused() {
    let of_kinds = |count: usize| {
        let options = PartitionOptions::default().with_keep_of_kind("0", Keep::all(Some(DAY)));
        (0..count)
            .fold(options, |options, kind| options.with_keep_of_kind(kind.to_string(), Keep::all(Some(HOUR))))
    };
    let kind = [(header::TASK_KIND, "0")];
    assert_eq!(kept(&queue(of_kinds(MAX_KEPT_KINDS)), "jobs", &kind, Processed).await, Some(Some(HOUR)));
    let build = |options| Queue::builder(MemoryQueue::new()).partition("jobs", options).build();
    let refused = build(of_kinds(MAX_KEPT_KINDS + 1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
}
