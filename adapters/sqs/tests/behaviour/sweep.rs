//! How the levels of a partition are asked: what it costs, how long it takes, and that the higher goes first all the same.

use std::time::{Duration, Instant};

use anyqueue::{Action, Delivery, MessageData, PullQueueStorage, PullRequest};
use anyqueue_sqs::SqsQueue;

use crate::common::{Bed, LEASE, SOON, part, push, settle, settled, take};
use crate::wire::Trick;

/// How much later each answer comes, so that answers that are awaited one after another show.
const LATE: Duration = Duration::from_millis(500);

async fn levels(bed: &Bed) -> SqsQueue {
    bed.builder().levels(10).open().await.unwrap()
}

fn at(level: u8, count: usize) -> Vec<MessageData> {
    (0..count).map(|index| MessageData::new(format!("{level}: {index}")).with_priority(level)).collect()
}

fn found(held: &[Delivery]) -> Vec<u8> {
    held.iter().map(|delivery| delivery.message.options().priority).collect()
}

async fn pull(queue: &SqsQueue, max: usize) -> Vec<Delivery> {
    queue.pull(&part("p"), PullRequest::new(max, Duration::ZERO, LEASE)).await.unwrap()
}

/// Ten levels, of which the lowest holds one message, and the queues of which are known.
async fn with_one_at_the_lowest(bed: &Bed) -> SqsQueue {
    let queue = levels(bed).await;
    for level in 0..10 {
        push(&queue, "p", &at(level, 1)).await;
    }
    let held = take(&queue, &part("p"), 10).await;
    assert!(settled(&settle(&queue, &held, &Action::Remove).await));
    push(&queue, "p", &at(0, 1)).await;
    queue
}

#[tokio::test]
async fn the_time_of_a_pull_does_not_grow_with_the_number_of_levels() {
    let Some(bed) = Bed::find().await else { return };
    let queue = with_one_at_the_lowest(&bed).await;
    bed.wire.answer_later(LATE);
    for level in [0, 9, 5, 0] {
        let begun = Instant::now();
        let held = pull(&queue, 10).await;
        assert_eq!(found(&held), [level]);
        // Those above, the likely one, those below, the one that has something; one after the other it would be ten.
        assert!(begun.elapsed() < 8 * LATE, "level {level} took {:?}", begun.elapsed());
        bed.wire.answer_later(Duration::ZERO);
        assert!(settled(&settle(&queue, &held, &Action::Remove).await));
        push(
            &queue,
            "p",
            &at(
                if level == 0 {
                    9
                } else if level == 9 {
                    5
                } else {
                    0
                },
                1,
            ),
        )
        .await;
        bed.wire.answer_later(LATE);
    }
}

#[tokio::test]
async fn a_level_that_gives_much_is_asked_first_and_those_below_it_not_at_all() {
    let Some(bed) = Bed::find().await else { return };
    let queue = with_one_at_the_lowest(&bed).await;
    push(&queue, "p", &at(7, 40)).await;
    assert_eq!(found(&pull(&queue, 10).await), [7; 10]);
    for (requests, pulled) in [(3, 10), (4, 20)] {
        let before = bed.wire.seen("ReceiveMessage").len();
        let held = pull(&queue, pulled).await;
        assert_eq!(found(&held), vec![7; pulled]);
        let asked = bed.wire.seen("ReceiveMessage").len() - before;
        assert_eq!(asked, requests, "two levels above it, and one request for ten");
    }
}

#[tokio::test]
async fn what_is_urgent_goes_first_wherever_messages_came_from_before() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (levels(&bed).await, levels(&bed).await);
    push(&other, "p", &at(2, 40)).await;
    for urgent in [9, 3, 4, 2] {
        assert_eq!(found(&pull(&queue, 5).await), [2; 5], "mostly messages come from level 2");
        push(&other, "p", &at(urgent, 3)).await;
        push(&other, "p", &at(0, 1)).await;
        let held = pull(&queue, 5).await;
        assert_eq!(found(&held), [urgent, urgent, urgent, 2, 2], "all that is urgent, then the others");
    }
}

#[tokio::test]
async fn what_a_pull_took_too_much_is_for_the_next_one_or_for_others() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (levels(&bed).await, levels(&bed).await);
    for level in 0..10 {
        push(&other, "p", &at(level, 2)).await;
    }
    // Here all levels are asked at once.
    let first = pull(&queue, 1).await;
    assert_eq!(found(&first), [9]);
    let second = pull(&queue, 4).await;
    assert_eq!(found(&second), [9, 8, 8, 7], "the next pull here is handed what was taken");
    // The rest is given back: nobody else has to wait for a lease's end.
    let begun = Instant::now();
    let rest = take(&other, &part("p"), 15).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let mut ids: Vec<_> = first.iter().chain(&second).chain(&rest).map(|held| held.lease.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20, "each once");
}

#[tokio::test]
async fn a_level_that_cannot_be_asked_lets_no_lower_one_go_first() {
    let Some(bed) = Bed::find().await else { return };
    let queue = with_one_at_the_lowest(&bed).await;
    bed.wire.play("ReceiveMessage", crate::wire::Trick::Refuse(503, "ServiceUnavailable"));
    let error = queue.pull(&part("p"), PullRequest::new(1, Duration::ZERO, LEASE)).await.unwrap_err();
    assert_eq!(error.retry(), anyqueue::RetryClass::Safe);
    assert_eq!(found(&pull(&queue, 1).await), [0], "nothing was taken by the pull that failed");
}

#[tokio::test]
async fn what_is_being_given_back_goes_before_what_is_below_it() {
    let Some(bed) = Bed::find().await else { return };
    let queue = levels(&bed).await;
    let all: Vec<_> = (0..4).map(|level| MessageData::new("x").with_priority(level)).collect();
    push(&queue, "p", &all).await;
    assert_eq!(pull(&queue, 1).await[0].message.id(), all[3].id());
    // The next ones came along, and are given back after a quarter of a second; that takes longer here.
    for _ in 0..9 {
        bed.wire.play("ChangeMessageVisibilityBatch", Trick::DelayRequest(Duration::from_secs(1)));
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(pull(&queue, 1).await[0].message.id(), all[2].id());
}
