//! Delays beyond what the server keeps by itself.

use std::time::Duration;

use anyqueue::MessageData;
use anyqueue::adapter::{Action, PullQueueStorage, PullRequest};

use crate::common::{Bed, LEASE, messages, part, push, settle, settled, take};
use crate::wire::Trick;

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
