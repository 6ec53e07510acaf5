//! FIFO queues: what is sent with a message, and what becomes of a group whose messages come several at once.

use std::time::Duration;

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage};
use anyqueue::{ErrorKind, MessageData, Queue, RetryClass};
use anyqueue_sqs::SqsQueue;

use crate::common::{Bed, LEASE, SOON, messages, nothing, part, push, settle, settled, take};
use crate::wire::{Failure, Trick};

async fn fifo(bed: &Bed) -> SqsQueue {
    bed.builder().fifo(true).open().await.unwrap()
}

fn of_group(group: &str, count: usize) -> Vec<MessageData> {
    messages(count).into_iter().map(|message| message.with_group(group)).collect()
}

#[tokio::test]
async fn those_behind_the_first_of_a_group_are_free_as_soon_as_it_is_gone() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (fifo(&bed).await, fifo(&bed).await);
    let sent = of_group("g", 5);
    push(&queue, "p", &sent).await;
    for (index, message) in sent.iter().enumerate() {
        let from = if index % 2 == 0 { &queue } else { &other };
        let held = from.pull(&part("p"), PullRequest::new(10, SOON, LEASE)).await.unwrap();
        assert_eq!(held.iter().map(|held| held.lease.id).collect::<Vec<_>>(), [message.id()]);
        nothing(&other, &part("p")).await;
        assert!(settled(&settle(from, &held, &Action::Remove).await));
    }
}

#[tokio::test]
async fn those_behind_the_first_wait_here_for_their_turn_and_are_received_once() {
    let Some(bed) = Bed::find().await else { return };
    let queue = fifo(&bed).await;
    let sent = of_group("g", 10);
    push(&queue, "p", &sent).await;
    for message in &sent {
        let held = queue.pull(&part("p"), PullRequest::new(10, SOON, LEASE)).await.unwrap();
        assert_eq!((held.len(), held[0].lease.id), (1, message.id()));
        assert_eq!(held[0].delivery_count, Some(1));
        assert!(settled(&settle(&queue, &held, &Action::Remove).await));
    }
    let received = bed.wire.seen("ReceiveMessage").into_iter().filter(|seen| seen.brought > 0);
    assert_eq!(received.map(|seen| seen.brought).collect::<Vec<_>>(), [10]);
    let shown = bed.wire.seen("ChangeMessageVisibilityBatch");
    let entries = shown.iter().flat_map(|seen| seen.body["Entries"].as_array().unwrap());
    assert!(entries.into_iter().all(|entry| entry["VisibilityTimeout"] != 0), "none was released");
}

#[tokio::test]
async fn those_behind_a_message_that_comes_again_come_after_it() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (fifo(&bed).await, fifo(&bed).await);
    let sent = of_group("g", 3);
    push(&queue, "p", &sent).await;
    let held = take(&queue, &part("p"), 1).await;
    assert!(settled(&settle(&queue, &held, &Action::Retry).await));
    assert_eq!(in_order(&other, 3).await, ids(&sent));
}

#[tokio::test]
async fn a_handle_that_closes_releases_those_behind() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (fifo(&bed).await, fifo(&bed).await);
    let sent = of_group("g", 3);
    push(&queue, "p", &sent).await;
    let held = queue.pull(&part("p"), PullRequest::new(10, SOON, LEASE)).await.unwrap();
    queue.close().await.unwrap();
    // By another handle, for this one is closed.
    assert!(settled(&settle(&other, &held, &Action::Remove).await));
    assert_eq!(in_order(&other, 2).await, ids(&sent[1..]));
}

#[tokio::test]
async fn a_head_that_fails_again_and_again_does_not_use_up_the_deliveries_of_those_behind_it() {
    let Some(bed) = Bed::find().await else { return };
    let queue = fifo(&bed).await;
    push(&queue, "p", &of_group("g", 10)).await;
    for count in 1..=20 {
        let head = queue.pull(&part("p"), PullRequest::new(10, SOON, LEASE)).await.unwrap();
        assert_eq!((head.len(), head[0].delivery_count), (1, Some(count)));
        let action = if count == 20 { Action::Remove } else { Action::Retry };
        assert!(settled(&settle(&queue, &head, &action).await));
    }
    let next = take(&queue, &part("p"), 1).await;
    assert_eq!(next[0].delivery_count, Some(1), "it was never delivered before");
}

#[tokio::test]
async fn messages_without_a_group_come_ten_at_a_time() {
    let Some(bed) = Bed::find().await else { return };
    let queue = fifo(&bed).await;
    push(&queue, "p", &messages(40)).await;
    let before = bed.wire.all().len();
    let held = queue.pull(&part("p"), PullRequest::new(40, SOON, LEASE)).await.unwrap();
    assert_eq!(held.len(), 40);
    assert!(settled(&settle(&queue, &held, &Action::Remove).await));
    assert_eq!(bed.wire.all().len(), before + 8);
}

#[tokio::test]
async fn a_push_whose_answer_was_cut_off_may_be_there() {
    let Some(bed) = Bed::find().await else { return };
    let queue = fifo(&bed).await;
    bed.wire.play("SendMessageBatch", Trick::LoseAnswer);
    for answer in queue.push(&part("p"), &messages(2)).await {
        assert_eq!(answer.unwrap_err().retry(), RetryClass::MayDuplicate);
    }
    let held = take(&queue, &part("p"), 2).await;
    assert!(settled(&settle(&queue, &held, &Action::Remove).await));
    nothing(&queue, &part("p")).await;
}

#[tokio::test]
async fn a_message_that_was_worked_can_be_pushed_again_at_once() {
    let Some(bed) = Bed::find().await else { return };
    let queue = fifo(&bed).await;
    let sent = messages(5);
    for _ in 0..2 {
        push(&queue, "p", &sent).await;
        let held = take(&queue, &part("p"), 5).await;
        assert!(settled(&settle(&queue, &held, &Action::Remove).await));
    }
    // As a handler does that pushes its message before it ends.
    push(&queue, "p", &sent[..1]).await;
    let held = take(&queue, &part("p"), 1).await;
    push(&queue, "p", &sent[..1]).await;
    assert!(settled(&settle(&queue, &held, &Action::Remove).await));
    take(&queue, &part("p"), 1).await;
}

/// Handles all of a group, one after the other.
async fn in_order(queue: &SqsQueue, count: usize) -> Vec<anyqueue::MessageId> {
    let mut order = Vec::new();
    for _ in 0..count {
        let held = take(queue, &part("p"), 1).await;
        order.push(held[0].lease.id);
        assert!(settled(&settle(queue, &held, &Action::Remove).await));
    }
    order
}

fn ids(sent: &[MessageData]) -> Vec<anyqueue::MessageId> {
    sent.iter().map(MessageData::id).collect()
}

const FAILED: Failure = Failure { code: "InternalError", text: "try again", sender_fault: false };

#[tokio::test]
async fn those_behind_one_that_failed_are_not_sent_before_it() {
    let Some(bed) = Bed::find().await else { return };
    let (storage, sent) = (fifo(&bed).await, of_group("g", 25));
    let queue = Queue::new(storage.clone()).unwrap();
    bed.wire.play("SendMessageBatch", Trick::FailEntry(9, FAILED));
    let answers = queue.push_many("p", sent.clone()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(in_order(&storage, 25).await, ids(&sent));
}

#[tokio::test]
async fn one_that_failed_in_the_midst_of_its_group_is_told_and_not_silently_stored_last() {
    let Some(bed) = Bed::find().await else { return };
    let (storage, mut sent) = (fifo(&bed).await, of_group("g", 6));
    let queue = Queue::new(storage.clone()).unwrap();
    bed.wire.play("SendMessageBatch", Trick::FailEntry(1, FAILED));
    let answers = queue.push_many("p", sent.clone()).await.unwrap();
    let failed: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().err().map(anyqueue::Error::retry)).collect();
    assert_eq!(failed, [None, Some(RetryClass::Safe), None, None, None, None]);
    drop(sent.remove(1));
    assert_eq!(in_order(&storage, 5).await, ids(&sent));
    nothing(&storage, &part("p")).await;
}

#[tokio::test]
async fn a_request_that_failed_keeps_back_its_groups_and_no_others() {
    let Some(bed) = Bed::find().await else { return };
    let storage = fifo(&bed).await;
    push(&storage, "q", &messages(1)).await;
    let sent: Vec<_> = [of_group("a", 10), of_group("b", 5), of_group("a", 5)].concat();
    push(&storage, "p", &messages(1)).await;
    bed.wire.play("SendMessageBatch", Trick::Refuse(400, "RequestThrottled"));
    let answers = storage.push(&part("p"), &sent).await;
    let stored: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(stored, [[false; 10].as_slice(), &[true; 5], &[false; 5]].concat());
    assert!(
        answers
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .all(|error| error.retry() == RetryClass::Safe)
    );
}

#[tokio::test]
async fn a_copy_whose_answer_was_lost_is_made_again_and_is_one_and_each_move_is_another() {
    let Some(bed) = Bed::find().await else { return };
    let queue = fifo(&bed).await;
    push(&queue, "p", &of_group("g", 1)).await;
    let (live, dead) = (part("p"), part("p").dead_letters());
    for (from, to) in [(&live, &dead), (&dead, &live), (&live, &dead), (&dead, &live)] {
        let held = take(&queue, from, 1).await;
        bed.wire.play("SendMessageBatch", Trick::LoseAnswer);
        let away = Action::Move { to: to.clone(), headers: None };
        assert!(settle(&queue, &held, &away).await[0].is_err());
        assert!(settled(&settle(&queue, &held, &away).await), "made again");
        nothing(&queue, from).await;
    }
    take(&queue, &live, 1).await;
    nothing(&queue, &live).await;
}

#[tokio::test]
async fn dead_letters_wait_for_nobody() {
    let Some(bed) = Bed::find().await else { return };
    let queue = fifo(&bed).await;
    push(&queue, "p", &of_group("g", 3)).await;
    for _ in 0..3 {
        let held = take(&queue, &part("p"), 1).await;
        let die = Action::Move { to: part("p").dead_letters(), headers: None };
        assert!(settled(&settle(&queue, &held, &die).await));
    }
    let dead = queue.pull(&part("p").dead_letters(), PullRequest::new(10, SOON, LEASE)).await.unwrap();
    assert_eq!(dead.len(), 3);
    assert!(dead.iter().all(|dead| dead.message.options().group.as_deref() == Some("g")), "but know theirs");
}

#[tokio::test]
async fn a_message_without_a_group_goes_to_the_end_when_it_is_postponed() {
    let Some(bed) = Bed::find().await else { return };
    let queue = fifo(&bed).await;
    push(&queue, "p", &messages(2)).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let held = take(&queue, &part("p"), 1).await;
        seen.push(held[0].lease.id);
        let last = Action::Postpone { delay: Duration::ZERO, headers: None };
        assert!(settled(&settle(&queue, &held, &last).await));
    }
    seen.dedup();
    assert_eq!(seen.len(), 2, "not the same again");
    take(&queue, &part("p"), 2).await;
    nothing(&queue, &part("p")).await;
}

#[tokio::test]
async fn levels_delays_and_new_headers_are_refused_before_anything_is_sent() {
    let Some(bed) = Bed::find().await else { return };
    let error = bed.builder().fifo(true).levels(2).open().await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("one level"), "{error}");
    let queue = Queue::new(fifo(&bed).await).unwrap();
    for message in [MessageData::new("x").with_priority(1), MessageData::new("x").with_delay(SOON)] {
        let error = queue.push("p", message).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    assert!(bed.wire.all().is_empty());
    assert!(!queue.capabilities().postpone_headers);
}

#[tokio::test]
async fn made_queues_are_fifo_queues_and_so_are_their_dead_letters() {
    let Some(bed) = Bed::find().await else { return };
    let queue = fifo(&bed).await;
    push(&queue, "p", &messages(1)).await;
    let made = bed.wire.seen("CreateQueue");
    let names: Vec<_> = made.iter().filter_map(|seen| seen.body["QueueName"].as_str()).collect();
    assert_eq!(names, ["test_d0-p.fifo", "test_p0-p.fifo"]);
    assert!(made.iter().all(|seen| seen.body["Attributes"]["FifoQueue"] == "true"));
    assert!(queue.check().await.is_ok());
}
