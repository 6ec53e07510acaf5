//! Delays beyond what the server keeps by itself.

use std::time::{Duration, Instant};

use anyqueue::MessageData;
use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, RawDelivery};

use anyqueue_sqs::SqsQueue;
use serde_json::json;

use crate::common::{Bed, LEASE, SOON, messages, part, push, settle, settled, take};
use crate::wire::{Failure, Trick};

/// Longer than the server's longest, fifteen minutes.
const LONG: Duration = Duration::from_secs(1000);

/// The number in this field of the only entry.
fn field(body: &serde_json::Value, name: &str) -> Option<i64> {
    body["Entries"][0][name].as_i64()
}

#[tokio::test]
async fn a_long_push_delay_is_hidden_until_it_is_over() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    // The server's own part of the delay passes at once.
    bed.wire.play("SendMessageBatch", Trick::Set("DelaySeconds", 0));
    push(&queue, "p", &[MessageData::new("late").with_delay(LONG)]).await;
    assert_eq!(field(&bed.wire.seen("SendMessageBatch")[0].body, "DelaySeconds"), Some(900));
    let none = queue.pull(&part("p"), PullRequest::new(1, Duration::ZERO, LEASE)).await.unwrap();
    assert!(none.is_empty(), "it is not due: {none:?}");
    let hidden = bed.wire.seen("ChangeMessageVisibilityBatch");
    let left = field(&hidden[0].body, "VisibilityTimeout").unwrap();
    assert!((900..=1000).contains(&left), "hidden for {left} s");
}

#[tokio::test]
async fn a_long_delay_that_is_over_is_delivered_and_counts_once() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    bed.wire.play("SendMessageBatch", Trick::Set("DelaySeconds", 0));
    push(&queue, "p", &[MessageData::new("late").with_delay(LONG)]).await;
    // Received early, and shown again at once, as it were when it is due.
    bed.wire.play("ChangeMessageVisibilityBatch", Trick::Set("VisibilityTimeout", 0));
    assert!(queue.pull(&part("p"), PullRequest::new(1, Duration::ZERO, LEASE)).await.unwrap().is_empty());
    bed.wire.play("ReceiveMessage", Trick::Age(LONG.as_secs() + 5));
    let held = queue.pull(&part("p"), PullRequest::new(1, Duration::ZERO, LEASE)).await.unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].delivery_count, Some(1), "the early reception was no delivery");
    assert!(held[0].age >= LONG, "{:?}", held[0].age);
}

#[tokio::test]
async fn a_postponement_beyond_twelve_hours_is_a_copy_and_keeps_count_and_age() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(1)).await;
    for _ in 0..2 {
        let held = take(&queue, &part("p"), 1).await;
        assert!(settled(&settle(&queue, &held, &Action::Retry).await));
    }
    let held = take(&queue, &part("p"), 1).await;
    let day = Action::Postpone { delay: Duration::from_hours(24), headers: None };
    assert!(settled(&settle(&queue, &held, &day).await));
    let sent = bed.wire.seen("SendMessageBatch");
    let copy = &sent.last().unwrap().body["Entries"][0];
    assert_eq!(copy["DelaySeconds"], 900);
    assert!(copy["MessageBody"].as_str().unwrap().ends_with("+86400"));
    // A short one, with new headers, is a copy too, and can be looked at.
    push(&queue, "q", &messages(1)).await;
    let first = take(&queue, &part("q"), 1).await;
    let now = Action::Postpone { delay: Duration::ZERO, headers: Some(anyqueue::Headers::new()) };
    assert!(settled(&settle(&queue, &first, &now).await));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let second = take(&queue, &part("q"), 1).await;
    assert_eq!(second[0].delivery_count, Some(2), "the copy goes on counting");
    assert!(second[0].age >= first[0].age + Duration::from_millis(50), "and ageing");
}

#[tokio::test]
async fn a_postponement_below_twelve_hours_takes_one_request() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(10)).await;
    let held = take(&queue, &part("p"), 10).await;
    let before = bed.wire.all().len();
    let action = Action::Postpone { delay: Duration::from_hours(11), headers: None };
    assert!(settled(&settle(&queue, &held, &action).await));
    assert_eq!(bed.wire.all().len(), before + 1);
    let hidden = bed.wire.seen("ChangeMessageVisibilityBatch");
    assert_eq!(field(&hidden[0].body, "VisibilityTimeout"), Some(11 * 3600));
}

const DAY: Duration = Duration::from_hours(24);

/// As many messages as one handle hides of one queue.
const MOST_HIDDEN: usize = 10_000;

/// A message that was delivered once and postponed for a day, and is received early because the server's own part of the delay
/// passes at once.
async fn with_one_postponed_for_a_day(bed: &Bed, queue: &SqsQueue) {
    push(queue, "p", &messages(1)).await;
    let held = take(queue, &part("p"), 1).await;
    bed.wire.play("SendMessageBatch", Trick::Set("DelaySeconds", 0));
    let postpone = Action::Postpone { delay: DAY, headers: None };
    assert!(settled(&settle(queue, &held, &postpone).await));
    assert_eq!(bed.wire.seen("DeleteMessageBatch").len(), 1, "of the message that was delivered");
}

/// Has the handle hide as many as it may, with an answer that brings as many messages that are not due. The server knows none of them.
async fn hide_as_many_as_it_may(bed: &Bed, queue: &SqsQueue) {
    let sent = bed.wire.seen("SendMessageBatch");
    let body = &sent.last().unwrap().body["Entries"][0]["MessageBody"];
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = now.as_millis().to_string();
    let attributes = json!({
        "SentTimestamp": now, "ApproximateFirstReceiveTimestamp": now, "ApproximateReceiveCount": "1"
    });
    let message = |index: usize| {
        let id = index.to_string();
        json!({ "MessageId": id, "ReceiptHandle": id, "Body": body, "Attributes": attributes })
    };
    let all: Vec<_> = (0..MOST_HIDDEN).map(message).collect();
    bed.wire.play("ReceiveMessage", Trick::Answer(json!({ "Messages": all }).to_string().leak()));
    for _ in 0..MOST_HIDDEN / 10 {
        bed.wire.play("ChangeMessageVisibilityBatch", Trick::Answer("{}"));
    }
    let none = queue.pull(&part("p"), PullRequest::new(1, Duration::ZERO, LEASE)).await.unwrap();
    assert!(none.is_empty() && bed.wire.is_done(), "none of them is due: {none:?}");
}

/// The message, which must come: by what the server says, it was sent more than a day ago.
async fn a_day_later(bed: &Bed, queue: &SqsQueue) -> RawDelivery {
    let begun = Instant::now();
    loop {
        bed.wire.play("ReceiveMessage", Trick::SentEarlier(DAY.as_secs() + 5));
        let request = PullRequest::new(1, Duration::ZERO, LEASE);
        if let Some(held) = queue.pull(&part("p"), request).await.unwrap().pop() {
            return held;
        }
        assert!(begun.elapsed() < SOON, "it does not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_is_not_due_is_sent_again_with_its_count_where_too_many_are_hidden() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    with_one_postponed_for_a_day(&bed, &queue).await;
    hide_as_many_as_it_may(&bed, &queue).await;
    let (hidden, sent) =
        (bed.wire.seen("ChangeMessageVisibilityBatch").len(), bed.wire.seen("SendMessageBatch").len());
    bed.wire.play("SendMessageBatch", Trick::Set("DelaySeconds", 0));
    let none = queue.pull(&part("p"), PullRequest::new(1, Duration::ZERO, LEASE)).await.unwrap();
    assert!(none.is_empty(), "it is not due: {none:?}");
    assert_eq!(bed.wire.seen("ChangeMessageVisibilityBatch").len(), hidden, "no more are hidden");
    let copies = bed.wire.seen("SendMessageBatch").split_off(sent);
    assert_eq!((copies.len(), field(&copies[0].body, "DelaySeconds")), (1, Some(900)));
    assert_eq!(bed.wire.seen("DeleteMessageBatch").len(), 2, "the one that was sent again is deleted");
    let held = a_day_later(&bed, &queue).await;
    assert_eq!(held.delivery_count, Some(2), "that it came early was no delivery");
    assert_eq!(held.message.payload(), b"message 0");
}

#[tokio::test]
async fn what_is_not_due_stays_where_it_cannot_be_sent_again() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    with_one_postponed_for_a_day(&bed, &queue).await;
    hide_as_many_as_it_may(&bed, &queue).await;
    let refusal = Failure { code: "InternalError", text: "as the test wants", sender_fault: false };
    bed.wire.play("SendMessageBatch", Trick::FailEntry(0, refusal));
    // It comes again when this lease has ended.
    let early = PullRequest::new(1, Duration::ZERO, Duration::from_secs(1));
    assert!(queue.pull(&part("p"), early).await.unwrap().is_empty());
    assert!(bed.wire.is_done(), "it was to be sent again");
    assert_eq!(bed.wire.seen("DeleteMessageBatch").len(), 1, "the original is not deleted");
    assert_eq!(a_day_later(&bed, &queue).await.message.payload(), b"message 0");
}
