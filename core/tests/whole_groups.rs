//! Pulls of whole groups: what comes together, what is refused, and what becomes of members that nobody settles.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::*;
use anyqueue_memory::MemoryQueue;
use support::{Script, Shared, Spy, eventually, spy, spy_on};

async fn push(queue: &Queue, group: &str, payloads: &[&str]) {
    for payload in payloads {
        queue.push("p", MessageData::new(*payload).with_group(group)).await.unwrap();
    }
}

/// The payloads of each group's members.
fn payloads(groups: &[GroupDelivery]) -> Vec<Vec<String>> {
    let text = |member: &Delivery| String::from_utf8(member.payload().to_vec()).unwrap();
    groups.iter().map(|group| group.members().iter().map(text).collect()).collect()
}

async fn ready(queue: &Queue) -> Option<u64> {
    queue.counts("p").await.unwrap().ready
}

#[tokio::test]
async fn groups_come_whole_and_a_message_without_one_comes_alone() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    push(&queue, "a", &["a1", "a2"]).await;
    queue.push("p", MessageData::new("alone")).await.unwrap();
    queue.push("p", MessageData::new("alone too")).await.unwrap();
    push(&queue, "b", &["b1"]).await;
    push(&queue, "a", &["a3"]).await;

    let groups = queue.pull("p").max(100).whole_groups(10).await.unwrap();
    assert_eq!(payloads(&groups), [vec!["a1", "a2", "a3"], vec!["alone"], vec!["alone too"], vec!["b1"]]);
    let names: Vec<_> = groups.iter().map(GroupDelivery::group).collect();
    assert_eq!(names, [Some("a"), None, None, Some("b")]);
    push(&queue, "a", &["a4"]).await;
    assert!(queue.pull("p").max(100).whole_groups(10).await.unwrap().is_empty(), "one puller has the group");
    drop(groups);
}

#[tokio::test]
async fn a_backend_that_does_not_declare_whole_groups_refuses_more_than_one_member_and_pulls_nothing() {
    let mut spy = Spy::new(MemoryQueue::new());
    spy.capabilities.whole_groups = false;
    let spy = Shared(Arc::new(spy));
    let queue = Queue::new(spy.clone()).unwrap();
    push(&queue, "a", &["a1", "a2"]).await;
    let refused = queue.pull("p").max(9).whole_groups(2).await.unwrap_err();
    assert_eq!((refused.kind(), refused.operation()), (ErrorKind::Unsupported, Some(Operation::Pull)));
    assert!(refused.message().contains("whole_groups"), "it says what is missing: {refused}");
    assert_eq!(spy.pull.calls() + spy.exchange.calls(), 0);

    let one = queue.pull("p").max(9).whole_groups(1).await.unwrap();
    assert_eq!(payloads(&one), [["a1"]], "the head alone is what every backend with groups can give");
}

#[tokio::test]
async fn no_members_are_refused_and_nothing_is_pulled() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    push(&queue, "a", &["a1"]).await;
    let refused = queue.pull("p").whole_groups(0).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert_eq!(spy.pull.calls() + spy.exchange.calls(), 0);
}

#[tokio::test]
async fn max_counts_messages_and_cuts_the_last_group() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    push(&queue, "a", &["a1", "a2", "a3"]).await;
    push(&queue, "b", &["b1", "b2"]).await;
    let mut cut = queue.pull("p").max(4).whole_groups(10).await.unwrap();
    assert_eq!(payloads(&cut), [vec!["a1", "a2", "a3"], vec!["b1"]]);
    for group in &mut cut {
        group.settle(Processed).await;
    }
    assert_eq!(payloads(&queue.pull("p").max(4).whole_groups(10).await.unwrap()), [["b2"]]);
}

#[tokio::test]
async fn a_group_has_at_most_the_members_that_were_asked_for() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    push(&queue, "a", &["a1", "a2", "a3"]).await;
    let mut two = queue.pull("p").max(100).whole_groups(2).await.unwrap();
    assert_eq!(payloads(&two), [["a1", "a2"]]);
    two[0].settle(Processed).await;
    assert_eq!(payloads(&queue.pull("p").max(100).whole_groups(2).await.unwrap()), [["a3"]]);
}

#[tokio::test]
async fn what_a_queue_may_hold_cuts_a_group() {
    let queue = Queue::builder(MemoryQueue::new()).max_held(2).build().unwrap();
    push(&queue, "a", &["a1", "a2", "a3"]).await;
    let groups = queue.pull("p").max(100).whole_groups(10).await.unwrap();
    assert_eq!(payloads(&groups), [["a1", "a2"]]);
    assert_eq!(queue.counts("p").await.unwrap().leased, Some(2));
}

#[tokio::test]
async fn members_that_are_dropped_come_back_in_order() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    push(&queue, "a", &["a1", "a2", "a3", "a4"]).await;
    let mut groups = queue.pull("p").max(3).whole_groups(10).await.unwrap();
    let mut members = groups.remove(0).into_members();
    members[0].settle(Processed).await.unwrap();
    members.reverse(); // whichever is dropped first
    for member in members {
        drop(member);
        tokio::task::yield_now().await;
    }
    while ready(&queue).await != Some(3) {
        tokio::task::yield_now().await;
    }
    assert_eq!(payloads(&queue.pull("p").max(9).whole_groups(10).await.unwrap()), [["a2", "a3", "a4"]]);
}

#[tokio::test]
async fn settling_all_tells_of_each_whether_it_was_lost() {
    let clock = ManualClock::new();
    let spy = spy_on(&clock);
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).build().unwrap();
    push(&queue, "a", &["a1", "a2", "a3"]).await;
    let mut groups = queue.pull("p").max(9).whole_groups(9).await.unwrap();
    spy.extend.script([Script::Lost]);
    let second = &mut groups[0].members_mut()[1];
    assert_eq!(second.extend(Duration::from_secs(30)).await.unwrap(), ExtendOutcome::Lost);
    let outcomes: Vec<_> = groups[0].settle(Processed).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [SettleOutcome::Settled, SettleOutcome::Lost, SettleOutcome::Settled]);
    assert_eq!(spy.settlements(), 2, "nothing is settled for a lease that is lost");
}

#[tokio::test]
async fn all_members_are_settled_in_one_call() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    push(&queue, "a", &["a1", "a2", "a3"]).await;
    let mut groups = queue.pull("p").max(9).whole_groups(9).await.unwrap();
    groups[0].settle(Processed).await;
    assert_eq!((spy.settle.calls(), spy.settle.items()), (1, 3));
}

#[tokio::test]
async fn a_pull_that_is_dropped_on_its_way_loses_no_member() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    push(&queue, "a", &["a1", "a2", "a3"]).await;
    let answer = spy.pull.answer_later();
    {
        let mut pull = queue.pull("p").max(9).whole_groups(9).into_future();
        assert!(futures_util::poll!(pull.as_mut()).is_pending());
        eventually("the pull", || spy.pull.calls() == 1).await;
    }
    answer.send(()).unwrap();
    while ready(&queue).await != Some(3) {
        tokio::task::yield_now().await;
    }
    let again = queue.pull("p").max(9).whole_groups(9).await.unwrap();
    assert_eq!(payloads(&again), [["a1", "a2", "a3"]]);
    let counts: Vec<_> = again[0].members().iter().map(Delivery::delivery_count).collect();
    assert_eq!(counts, [Some(1); 3], "what nobody got is not counted");
}
