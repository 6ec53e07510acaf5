//! How the levels of a partition are asked: what it costs, how long it takes, and that the higher goes first all the same.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, RawDelivery};
use anyqueue::{MessageData, Queue};
use anyqueue_sqs::SqsQueue;

use crate::common::{Bed, LEASE, SOON, part, push, settle, settled, take};
use crate::wire::Trick;

/// How much later each answer comes, so that answers that are awaited one after another show.
const LATE: Duration = Duration::from_secs(1);

async fn levels(bed: &Bed) -> SqsQueue {
    bed.builder().levels(10).open().await.unwrap()
}

fn at(level: u8, count: usize) -> Vec<MessageData> {
    (0..count).map(|index| MessageData::new(format!("{level}: {index}")).with_priority(level)).collect()
}

fn found(held: &[RawDelivery]) -> Vec<u8> {
    held.iter().map(|delivery| delivery.message.options().priority).collect()
}

async fn pull(queue: &SqsQueue, max: usize) -> Vec<RawDelivery> {
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
    // The rest is released: nobody else has to wait for a lease's end.
    let begun = Instant::now();
    let rest = take(&other, &part("p"), 15).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let mut ids: Vec<_> = first.iter().chain(&second).chain(&rest).map(|held| held.lease.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20, "each once");
}

/// How many messages of each level the server has handed out.
fn handed_out(bed: &Bed, level: u8) -> usize {
    let of_level = |seen: &&crate::wire::Seen| {
        seen.body["QueueUrl"].as_str().is_some_and(|url| url.ends_with(&format!("test_p{level}-p")))
    };
    bed.wire.seen("ReceiveMessage").iter().filter(of_level).map(|seen| seen.brought).sum()
}

#[tokio::test]
async fn what_is_below_is_not_received_while_what_is_above_fills_the_pulls() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (bed.builder().levels(3).open().await.unwrap(), levels(&bed).await);
    push(&other, "p", &at(0, 5)).await;
    push(&other, "p", &at(1, 100)).await;
    for _ in 0..15 {
        push(&other, "p", &at(2, 6)).await;
        let held = pull(&queue, 10).await;
        assert_eq!(found(&held), [[2; 6].as_slice(), &[1; 4]].concat());
        assert!(settled(&settle(&queue, &held, &Action::Remove).await));
    }
    assert!(handed_out(&bed, 0) <= 1, "{} times in fifteen pulls", handed_out(&bed, 0));
}

#[tokio::test]
async fn what_goes_back_unseen_is_no_delivery() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (levels(&bed).await, levels(&bed).await);
    let all: Vec<_> = (0..10).flat_map(|level| at(level, 1)).collect();
    push(&other, "p", &all).await;
    assert_eq!(found(&pull(&queue, 1).await), [9]);
    let begun = Instant::now();
    let released = || {
        let seen = bed.wire.seen("ChangeMessageVisibilityBatch");
        seen.iter().map(|seen| seen.body["Entries"].as_array().unwrap().len()).sum::<usize>()
    };
    while released() < 8 {
        assert!(begun.elapsed() < SOON, "{} went back", released());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let held = take(&queue, &part("p"), 9).await;
    assert!(held.iter().all(|delivery| delivery.delivery_count == Some(1)), "{held:?}");
}

#[tokio::test]
async fn levels_that_are_empty_again_and_again_are_watched_and_no_longer_asked_by_each_pull() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (levels(&bed).await, levels(&bed).await);
    push(&other, "p", &at(0, 100)).await;
    let asked = || bed.wire.seen("ReceiveMessage").len() + bed.wire.seen("GetQueueUrl").len();
    let drained = async |pulls: usize| {
        for _ in 0..pulls {
            let held = pull(&queue, 2).await;
            assert_eq!(found(&held), [0; 2]);
            assert!(settled(&settle(&queue, &held, &Action::Remove).await));
        }
    };
    drained(10).await;
    let before = asked();
    drained(30).await;
    // Each pull asks one level; beside that there is a poll of a second or more at each of the others.
    assert!(asked() - before <= 30 + 9 * 4, "{} requests for 30 pulls", asked() - before);
    push(&other, "p", &at(9, 1)).await;
    let begun = Instant::now();
    while !found(&pull(&queue, 1).await).contains(&9) {
        assert!(begun.elapsed() < SOON, "a watched level is seen");
    }
    // What came to it again is asked for at once, unless a long poll has just received it, and what is nowhere else.
    push(&other, "p", &at(9, 1)).await;
    let next = [found(&pull(&queue, 1).await), found(&pull(&queue, 1).await)].concat();
    assert!(next.contains(&9), "{next:?}");
    while !pull(&queue, 100).await.is_empty() {}
    push(&other, "p", &at(5, 1)).await;
    while !found(&pull(&queue, 5).await).contains(&5) {
        assert!(begun.elapsed() < 3 * SOON, "what is at a watched level alone is found");
    }
}

#[tokio::test]
async fn one_empty_answer_is_no_proof_where_a_pull_has_to_be_sure() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.builder().levels(2).open().await.unwrap();
    let sure = || PullRequest::new(5, Duration::ZERO, LEASE).with_thorough(true);
    let begun = Instant::now();
    assert!(queue.pull(&part("p"), sure()).await.unwrap().is_empty());
    assert!(bed.wire.seen("CreateQueue").is_empty(), "looking makes no queues");
    push(&queue, "p", &at(1, 3)).await;
    push(&queue, "p", &at(0, 1)).await;
    // As the service may: it asks a part of its servers.
    for _ in 0..2 {
        bed.wire.play("ReceiveMessage", Trick::Answer("{}"));
    }
    let held = queue.pull(&part("p"), sure()).await.unwrap();
    assert_eq!(found(&held), [1, 1, 1, 0]);
    assert!(bed.wire.is_done());
    assert!(queue.pull(&part("p"), sure()).await.unwrap().is_empty());
    assert!(begun.elapsed() < SOON);
}

#[tokio::test]
async fn a_purge_and_a_redrive_do_not_end_at_one_empty_answer() {
    let Some(bed) = Bed::find().await else { return };
    let storage = bed.open().await;
    let queue = Queue::new(storage.clone()).unwrap();
    let die = async |count| {
        push(&storage, "p", &at(0, count)).await;
        let held = take(&storage, &part("p"), count).await;
        let dead = Action::Move { to: part("p").dead_letters(), headers: None };
        assert!(settled(&settle(&storage, &held, &dead).await));
    };
    let letters = queue.dead_letters("p").unwrap();
    die(3).await;
    bed.wire.play("ReceiveMessage", Trick::Answer("{}"));
    assert_eq!(letters.redrive().await.unwrap().moved, 3);
    assert_eq!(take(&storage, &part("p"), 3).await.len(), 3);
    die(3).await;
    bed.wire.play("ReceiveMessage", Trick::Answer("{}"));
    assert_eq!(letters.purge().await.unwrap(), 3);
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
async fn what_is_being_released_goes_before_what_is_below_it() {
    let Some(bed) = Bed::find().await else { return };
    let queue = levels(&bed).await;
    let all: Vec<_> = (0..4).map(|level| MessageData::new("x").with_priority(level)).collect();
    push(&queue, "p", &all).await;
    assert_eq!(pull(&queue, 1).await[0].message.id(), all[3].id());
    // The next ones came along, and are released after a quarter of a second; that takes longer here.
    for _ in 0..9 {
        bed.wire.play("ChangeMessageVisibilityBatch", Trick::DelayRequest(Duration::from_secs(1)));
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(pull(&queue, 1).await[0].message.id(), all[2].id());
}
