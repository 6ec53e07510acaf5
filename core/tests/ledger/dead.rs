//! What a dead letter says of the run that it died of.

use std::time::Duration;

use anyqueue::{
    DeadLetter, Expired, Keep, MAX_KEY_BYTES, ManualClock, MessageData, Page, PartitionOptions, Queue,
    QueueMessageStatus, TaskFilter, TaskReport, TaskState, header,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

use super::{listed, push, queue, settle};

const SECOND: Duration = Duration::from_secs(1);

/// Holds a task for three seconds, and lets it die with this report.
async fn die(time: &ManualClock, queue: &Queue, report: Option<TaskReport>) {
    let mut held = queue.pull("jobs").await.unwrap();
    time.advance(3 * SECOND);
    if let Some(report) = report {
        held[0].report(report).unwrap();
    }
    held[0].settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
}

async fn letter(queue: &Queue) -> DeadLetter {
    queue.dead_letters("jobs").unwrap().list(Page::of(1)).await.unwrap().remove(0)
}

#[tokio::test]
async fn a_dead_letter_says_who_ran_it_and_for_how_long_until_it_is_put_back() {
    let (time, queue) = queue();
    let id = push(&queue, MessageData::new("x")).await;
    let ran = Duration::from_micros(2_000_017);
    die(&time, &queue, Some(TaskReport::new().with_worker("host 7").with_ran(ran))).await;
    let task = queue.task("jobs", id).await.unwrap().unwrap();
    assert_eq!((task.worker.as_deref(), task.ran, task.waited), (Some("host 7"), Some(ran), None));
    assert!(task.is_dead());
    let dead = letter(&queue).await;
    assert_eq!((dead.worker.as_deref(), dead.ran), (Some("host 7"), Some(ran)));
    assert_eq!(listed(&queue, TaskFilter::new().by_worker("host 7")).await.len(), 1);
    assert!(listed(&queue, TaskFilter::new().by_worker("host 8")).await.is_empty());

    queue.dead_letters("jobs").unwrap().redrive().await.unwrap();
    let back = queue.task("jobs", id).await.unwrap().unwrap();
    assert_eq!((back.state, back.worker, back.ran), (TaskState::Queued, None, None));
    assert!(listed(&queue, TaskFilter::new().by_worker("host 7")).await.is_empty());
    let held = queue.pull("jobs").await.unwrap();
    for name in [header::DEAD_WORKER, header::DEAD_RAN] {
        assert!(!held[0].headers().contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn without_a_report_it_ran_for_as_long_as_it_was_held() {
    let (time, queue) = queue();
    push(&queue, MessageData::new("x")).await;
    die(&time, &queue, None).await;
    let dead = letter(&queue).await;
    assert_eq!((dead.worker, dead.ran), (None, Some(3 * SECOND)));
}

#[tokio::test]
async fn a_dead_letter_says_it_where_no_ends_are_kept_too_and_a_long_name_is_cut() {
    let time = ManualClock::new();
    let storage = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let queue = Queue::builder(storage).clock(time.clock()).build().unwrap();
    push(&queue, MessageData::new("x")).await;
    die(&time, &queue, Some(TaskReport::new().with_worker("é".repeat(MAX_KEY_BYTES)))).await;
    let worker = "é".repeat(MAX_KEY_BYTES / "é".len());
    let dead = letter(&queue).await;
    assert_eq!((dead.worker, dead.ran), (Some(worker), Some(3 * SECOND)));
}

#[tokio::test]
async fn what_no_handler_had_says_nothing_of_a_run() {
    let time = ManualClock::new();
    let storage = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let options = PartitionOptions::default().with_expired(Expired::DeadLetter);
    let builder = Queue::builder(storage).clock(time.clock()).ledger(Keep::default());
    let queue = builder.defaults(options).build().unwrap();
    let id = push(&queue, MessageData::new("x").with_time_to_live(SECOND)).await;
    time.advance(2 * SECOND);
    assert!(queue.pull("jobs").await.unwrap().is_empty());
    let task = queue.wait_for("jobs", id, 5 * SECOND).await.unwrap().unwrap();
    assert_eq!((task.is_dead(), task.worker, task.ran), (true, None, None));
    // A later run of it says something.
    queue.dead_letters("jobs").unwrap().redrive().await.unwrap();
    settle(&queue, QueueMessageStatus::poisonous("bad")).await;
    assert_eq!(letter(&queue).await.ran, Some(Duration::ZERO));
}
