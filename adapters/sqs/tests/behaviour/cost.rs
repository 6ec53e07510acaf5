//! What it costs: requests are what the service bills.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::{PullQueueStorage, PullRequest, PushQueueStorage};
use anyqueue::{
    Beside, Delivery, Keep, MessageData, PartitionOptions, Queue, QueueBuilder, TaskFilter, TaskState,
};
use anyqueue_memory::MemoryQueue;

use crate::common::{Bed, LEASE, SOON, messages, part, push, settle, take};

const RECEIVE: &str = "ReceiveMessage";
/// Calls of one message each, all under way at once.
const CALLS: usize = 1280;
/// The longest there is, so that a busy machine has time to make its calls. Only what does not fill a request waits for it.
const LINGER: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_message_each_share_full_requests() {
    cost_of_single_calls(1, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_cost_no_more_than_what_does_not_fill_the_last_request_of_each() {
    cost_of_single_calls(10, 1).await;
    cost_of_single_calls(10, 3).await;
}

async fn hold_all(queue: &Queue, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        let more = queue.pull("p").max(count - all.len()).wait(SOON).await.unwrap();
        assert!(!more.is_empty(), "{} of {count} came", all.len());
        all.extend(more);
    }
    all
}

/// With so many levels, of which so many are used. Requests are counted, and are full whatever the machine's speed: one that is not
/// full has waited for all others.
async fn cost_of_single_calls(levels: u8, used: u8) {
    let Some(bed) = Bed::find().await else { return };
    let queue =
        Arc::new(Queue::new(bed.builder().levels(levels).linger(LINGER).open().await.unwrap()).unwrap());
    // All queues are made before, and empty.
    let first = (0..levels).map(|level| MessageData::new("first").with_priority(level)).collect();
    assert!(queue.push_many("p", first).await.unwrap().iter().all(Result::is_ok));
    let mut held = hold_all(&queue, usize::from(levels)).await;
    let first = queue.settle_many(held.iter_mut().map(|held| (held, Processed))).await;
    assert!(crate::common::settled(&first));
    let before = bed.wire.all().len();

    let pushing = (0..CALLS).map(|index| {
        let queue = queue.clone();
        let level = u8::try_from(index % usize::from(used)).unwrap();
        let message = MessageData::new(format!("{index}")).with_priority(level);
        tokio::spawn(async move { queue.push("p", message).await })
    });
    for pushed in pushing.collect::<Vec<_>>() {
        pushed.await.unwrap().unwrap();
    }
    let held = hold_all(&queue, CALLS).await;
    let settling =
        held.into_iter().map(|mut handler| tokio::spawn(async move { handler.settle(Processed).await }));
    for settled in settling.collect::<Vec<_>>() {
        settled.await.unwrap().unwrap();
    }

    let requests = |action: &str| {
        let of_action = |seen: &&crate::wire::Seen| seen.action == action;
        bed.wire.all()[before..]
            .iter()
            .filter(of_action)
            .filter(|seen| action != RECEIVE || seen.brought > 0)
            .count()
    };
    let full = CALLS.div_ceil(10) + usize::from(used) - 1;
    let (sent, received, deleted) =
        (requests("SendMessageBatch"), requests(RECEIVE), requests("DeleteMessageBatch"));
    println!(
        "{levels} levels, {used} used: {sent} to push, {received} to receive, {deleted} to delete {CALLS}"
    );
    assert!(sent <= full, "{sent} requests to push {CALLS} messages");
    assert!(deleted <= full, "{deleted} requests to delete {CALLS} messages");
    assert!(received <= full + full / 5, "{received} requests to receive {CALLS} messages");
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
    assert!(crate::common::settled(&settle(&queue, &held, &anyqueue::adapter::Action::Remove).await));
    assert_eq!(bed.wire.all().len(), before + 30);
}

/// Builds a queue whose heartbeat sends nothing in the time of a test.
fn quiet(builder: QueueBuilder) -> Queue {
    builder.defaults(PartitionOptions::default().with_lease(Duration::from_hours(1))).build().unwrap()
}

/// How many requests of each action a hundred messages take, from their push to their end.
async fn requests_for_a_hundred(bed: &Bed, queue: &Queue) -> BTreeMap<String, usize> {
    // After it the queue is there, and empty.
    queue.push("p", MessageData::new("first")).await.unwrap();
    hold_all(queue, 1).await[0].settle(Processed).await.unwrap();
    let before = bed.wire.all().len();
    assert!(queue.push_many("p", messages(100)).await.unwrap().iter().all(Result::is_ok));
    let mut held = hold_all(queue, 100).await;
    let ended = queue.settle_many(held.iter_mut().map(|held| (held, Processed))).await;
    assert!(crate::common::settled(&ended));
    let mut requests = BTreeMap::new();
    for seen in &bed.wire.all()[before..] {
        *requests.entry(seen.action.clone()).or_default() += 1;
    }
    requests
}

#[tokio::test]
async fn a_ledger_beside_the_queue_costs_no_request() {
    let (Some(bare_bed), Some(bed)) = (Bed::find().await, Bed::find().await) else { return };
    let bare = quiet(Queue::builder(bare_bed.open().await));
    let beside = Beside::new(bed.open().await, MemoryQueue::new()).unwrap();
    let queue = quiet(Queue::builder(beside).ledger(Keep::default()));
    let expected = requests_for_a_hundred(&bare_bed, &bare).await;
    let full = ["DeleteMessageBatch", RECEIVE, "SendMessageBatch"].map(|action| (action.to_owned(), 10));
    assert_eq!(expected, BTreeMap::from(full), "ten in each request, and no other requests");
    assert_eq!(requests_for_a_hundred(&bed, &queue).await, expected);
    let succeeded = TaskFilter::new().in_state(TaskState::Succeeded);
    let kept = queue.count_tasks("p", &succeeded, 1000).await.unwrap();
    assert_eq!((kept.value, kept.exact), (101, true), "it has kept each end");
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
