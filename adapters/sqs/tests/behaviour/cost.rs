//! What it costs: requests are what the service bills.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::{MessageData, PullQueueStorage, PullRequest, PushQueueStorage, Queue, QueueMessageHandler};

use crate::common::{Bed, LEASE, SOON, messages, part, push, settle, take};

/// Tasks that each push and settle one message at a time.
const TASKS: usize = 64;
const EACH: usize = 20;
/// Long enough for requests to become full on a busy machine too.
const LINGER: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushing_and_settling_one_at_a_time_costs_about_a_third_of_a_request_each() {
    cost_of_one_at_a_time(1, 1, 350).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_cost_no_more_than_requests_that_find_nothing() {
    cost_of_one_at_a_time(10, 1, 350).await;
    // Joined by partition it were 346.
    cost_of_one_at_a_time(10, 3, 330).await;
}

async fn hold_all(queue: &Queue, count: usize) -> Vec<QueueMessageHandler> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(queue.pull("p").max(count - all.len()).wait(SOON).await.unwrap());
    }
    all
}

/// With so many levels, of which so many are used, at most so many thousandths of a request a message, empty receptions apart.
async fn cost_of_one_at_a_time(levels: u8, used: u8, most_thousandths: usize) {
    let Some(bed) = Bed::find().await else { return };
    let queue =
        Arc::new(Queue::new(bed.builder().levels(levels).linger(LINGER).open().await.unwrap()).unwrap());
    // All queues are made before, and empty.
    for level in 0..levels {
        queue.push("p", MessageData::new("first").with_priority(level)).await.unwrap();
    }
    let mut held = hold_all(&queue, usize::from(levels)).await;
    let first = queue.settle_many(held.iter_mut().map(|held| (held, Processed))).await;
    assert!(crate::common::settled(&first));
    let before = bed.wire.all().len();
    let pushing = (0..TASKS).map(|task| {
        let queue = queue.clone();
        tokio::spawn(async move {
            for index in 0..EACH {
                let level = u8::try_from(task).unwrap() % used;
                queue
                    .push("p", MessageData::new(format!("{task} {index}")).with_priority(level))
                    .await
                    .unwrap();
            }
        })
    });
    for task in pushing.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let mut left = TASKS * EACH;
    while left > 0 {
        let held = queue.pull("p").max(100).wait(SOON).await.unwrap();
        assert!(!held.is_empty(), "{left} are missing");
        left -= held.len();
        let settling =
            held.into_iter().map(|mut handler| tokio::spawn(async move { handler.settle(Processed).await }));
        for task in settling.collect::<Vec<_>>() {
            task.await.unwrap().unwrap();
        }
    }
    let all = bed.wire.all();
    let empty = |seen: &&crate::wire::Seen| seen.action == "ReceiveMessage" && seen.brought == 0;
    let sent = all.len() - before - all[before..].iter().filter(empty).count();
    let thousandth = sent * 1000 / (TASKS * EACH);
    println!("{levels} levels, {used} used: {thousandth}/1000 of a request per message");
    assert!(thousandth <= most_thousandths, "{thousandth}/1000 of a request per message");
}

#[tokio::test]
async fn full_batches_take_one_request_for_ten() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(1)).await;
    take(&queue, &part("p"), 1).await;
    let before = bed.wire.all().len();
    assert!(queue.push(&part("p"), &messages(100)).await.iter().all(Result::is_ok));
    let held = queue.pull(&part("p"), PullRequest::new(100, SOON, LEASE)).await.unwrap();
    assert_eq!(held.len(), 100);
    assert!(crate::common::settled(&settle(&queue, &held, &anyqueue::Action::Remove).await));
    assert_eq!(bed.wire.all().len(), before + 30);
}

#[tokio::test]
async fn a_large_pull_asks_an_empty_level_once_and_a_full_one_as_often_as_it_takes() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(35)).await;
    let pull = || async {
        let got = queue.pull(&part("p"), PullRequest::new(100, Duration::ZERO, LEASE)).await.unwrap();
        (got.len(), bed.wire.seen("ReceiveMessage").len())
    };
    assert_eq!(pull().await, (35, 10));
    assert_eq!(pull().await, (0, 11));
}

#[tokio::test]
async fn waiting_takes_one_request_per_level_at_first_and_ever_fewer() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.builder().levels(3).open().await.unwrap();
    let wait = Duration::from_secs(3);
    assert!(queue.pull(&part("p"), PullRequest::new(1, wait, LEASE)).await.unwrap().is_empty());
    let polls = bed.wire.seen("ReceiveMessage");
    assert!(polls.iter().all(|poll| poll.body["WaitTimeSeconds"].as_i64() >= Some(1)), "nobody spins");
    assert!(polls.len() <= 3 * 4, "{} polls in 3 s at 3 levels", polls.len());
}
