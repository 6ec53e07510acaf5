//! Deliveries that are settled without the delivery.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use anyqueue::*;
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use proptest::prelude::*;
use support::{eventually, spy_on};

const LEASE: Duration = Duration::from_secs(30);

/// Two queues over one storage, as two processes would have them.
fn two_queues(clock: &ManualClock) -> (Queue, Queue) {
    let storage = Arc::new(MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock())));
    let queue = || {
        let builder = Queue::builder(storage.clone() as Arc<dyn adapter::Storage>).clock(clock.clock());
        builder.ledger(Keep::default()).build().unwrap()
    };
    (queue(), queue())
}

async fn detached(queue: &Queue, message: MessageData) -> DetachedDelivery {
    queue.push("p", message).await.unwrap();
    let delivery = queue.pull("p").lease(LEASE).keep_alive(false).await.unwrap().remove(0);
    delivery.detach().unwrap()
}

fn elsewhere(delivery: &DetachedDelivery) -> DetachedDelivery {
    DetachedDelivery::from_bytes(&delivery.to_bytes()).unwrap()
}

#[tokio::test]
async fn another_process_settles_it_and_the_ledger_is_told() {
    let clock = ManualClock::new();
    let (first, second) = two_queues(&clock);
    let message = MessageData::new("x").with_task_id("t").with_header("task-kind", "mail");
    let delivery = detached(&first, message).await;
    clock.advance(Duration::from_secs(5));
    let report = TaskReport::new().with_result("42").with_worker("w");
    let outcome = second.settle_detached(&elsewhere(&delivery), QueueMessageStatus::Processed, report).await;
    assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
    let task = first.task("p", delivery.id()).await.unwrap().unwrap();
    assert_eq!((task.state, task.result.as_deref()), (TaskState::Succeeded, Some(&b"42"[..])));
    assert_eq!((task.kind.as_deref(), task.task_id.as_deref()), (Some("mail"), Some("t")));
    assert_eq!((task.worker.as_deref(), task.ran), (Some("w"), Some(Duration::from_secs(5))));
    let again = first.settle_detached(&delivery, QueueMessageStatus::Processed, TaskReport::new()).await;
    assert_eq!(again.unwrap(), SettleOutcome::Lost);
}

#[tokio::test]
async fn a_message_that_dies_or_is_postponed_keeps_its_payload_and_its_headers() {
    let clock = ManualClock::new();
    let (first, second) = two_queues(&clock);
    let delivery = detached(&first, MessageData::new("the payload").with_header("mine", "kept")).await;
    let later = QueueMessageStatus::Postponed {
        delay: Duration::from_secs(1),
        headers: Some(Headers::from([("mine".to_owned(), "new".to_owned())])),
    };
    let outcome = second.settle_detached(&elsewhere(&delivery), later, TaskReport::new()).await.unwrap();
    assert_eq!(outcome, SettleOutcome::Settled);
    clock.advance(Duration::from_secs(1));
    let again = first.pull("p").await.unwrap().remove(0);
    assert_eq!((again.payload(), again.headers()["mine"].as_str()), (&b"the payload"[..], "new"));
    let delivery = again.detach().unwrap();
    let dead = QueueMessageStatus::poisonous("bad");
    second.settle_detached(&elsewhere(&delivery), dead, TaskReport::new()).await.unwrap();
    let letter = first.dead_letters("p").unwrap().list(Page::of(1)).await.unwrap().remove(0);
    assert_eq!((letter.message.payload(), letter.reason.as_deref()), (&b"the payload"[..], Some("bad")));
    assert_eq!(letter.message.headers()["mine"], "new");
}

#[tokio::test]
async fn nobody_renews_it_nor_gives_it_back_and_it_takes_no_room() {
    let clock = ManualClock::new();
    let spy = spy_on(&clock);
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).max_held(1).build().unwrap();
    for payload in ["1", "2"] {
        queue.push("p", MessageData::new(payload)).await.unwrap();
    }
    // Pulled with a heartbeat, which ends with the detachment.
    let first = queue.pull("p").lease(LEASE).await.unwrap().remove(0).detach().unwrap();
    let second = queue.pull("p").lease(LEASE).await.unwrap().remove(0);
    drop(first);
    clock.advance(LEASE / 2);
    eventually("the heartbeat of the other", || spy.extend.calls() == 1).await;
    assert_eq!(spy.extend.items(), 1);
    assert_eq!(queue.counts("p").await.unwrap().leased, Some(2), "dropped, it is not released");
    drop(second);
}

#[tokio::test]
async fn what_is_lost_or_settled_cannot_be_detached() {
    let clock = ManualClock::new();
    let (queue, _) = two_queues(&clock);
    queue.push("p", MessageData::new("x")).await.unwrap();
    let held = queue.pull("p").lease(LEASE).keep_alive(false).await.unwrap().remove(0);
    clock.advance(LEASE * 2);
    eventually("the loss", || held.is_lost()).await;
    let held = held.detach().unwrap_err();
    assert!(held.is_lost());
    let mut again = queue.pull("p").await.unwrap().remove(0);
    again.settle(QueueMessageStatus::Processed).await.unwrap();
    assert!(again.detach().is_err());
}

#[tokio::test]
async fn extensions_hold_it_up_to_the_longest_hold_and_tell_of_its_loss() {
    let clock = ManualClock::new();
    let storage = Arc::new(MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock())));
    let options = PartitionOptions::default().with_max_hold(LEASE * 2);
    let queue = Queue::builder(storage as Arc<dyn adapter::Storage>).clock(clock.clock()).defaults(options);
    let queue = queue.build().unwrap();
    let delivery = detached(&queue, MessageData::new("x")).await;
    let extend = async || queue.extend_detached(&[(&delivery, LEASE)]).await.remove(0);
    clock.advance(LEASE / 2);
    assert_eq!(extend().await.unwrap(), ExtendOutcome::Extended);
    clock.advance(LEASE * 3 / 4);
    assert!(queue.pull("p").await.unwrap().is_empty(), "its first lease is over, not the second");
    assert_eq!(extend().await.unwrap(), ExtendOutcome::Extended, "cut to the longest hold");
    clock.advance(LEASE * 3 / 4);
    let late = extend().await.unwrap_err();
    assert!(late.to_string().contains("max_hold"), "{late}");
    assert_eq!(queue.pull("p").await.unwrap().len(), 1, "it was not held beyond that");
    let lost = queue.settle_detached(&delivery, QueueMessageStatus::Processed, TaskReport::new()).await;
    assert_eq!(lost.unwrap(), SettleOutcome::Lost);
}

#[tokio::test]
async fn a_closed_queue_settles_nothing() {
    let clock = ManualClock::new();
    let (queue, other) = two_queues(&clock);
    let delivery = detached(&queue, MessageData::new("x")).await;
    queue.close().await.unwrap();
    let refused = queue.settle_detached(&delivery, QueueMessageStatus::Processed, TaskReport::new()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    let refused = queue.extend_detached(&[(&delivery, LEASE)]).await.remove(0);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    assert!(other.extend_detached(&[]).await.is_empty());
}

#[test]
fn bytes_of_a_newer_release_are_told_from_nonsense() {
    let kind = |bytes: &[u8]| DetachedDelivery::from_bytes(bytes).unwrap_err().kind();
    assert_eq!(kind(b""), ErrorKind::Corrupt);
    assert_eq!(kind(b"nonsense"), ErrorKind::Corrupt);
}

proptest! {
    #[test]
    fn random_bytes_are_refused_or_read_and_never_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = DetachedDelivery::from_bytes(&bytes);
    }
}
