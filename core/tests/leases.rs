//! What happens to a lease while its handler lives, and when it is dropped or lost. On a clock that the tests turn.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::*;
use support::{Script, Shared, eventually, safe, spy_on};

const LEASE: Duration = Duration::from_secs(30);

async fn held_one(clock: &ManualClock) -> (Shared, Queue, Delivery) {
    let spy = spy_on(clock);
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).build().unwrap();
    queue.push("p", MessageData::new(b"long work")).await.unwrap();
    let handler = queue.pull("p").await.unwrap().pop().unwrap();
    (spy, queue, handler)
}

#[tokio::test]
async fn the_heartbeat_holds_a_delivery_beyond_many_leases() {
    let clock = ManualClock::new();
    let (spy, queue, mut handler) = held_one(&clock).await;
    for beat in 1..=20 {
        clock.advance(LEASE / 3);
        eventually("an extension", || spy.extend.calls() >= beat).await;
        eventually("its effect", || handler.lease_until() > Some(clock.clock().now() + LEASE / 2)).await;
        assert!(queue.pull("p").await.unwrap().is_empty(), "somebody else got it");
    }
    assert!(!handler.is_lost());
    assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Settled);
}

#[tokio::test]
async fn extensions_of_all_that_is_held_share_one_call() {
    let clock = ManualClock::new();
    let spy = spy_on(&clock);
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).build().unwrap();
    queue.push_many("p", (0..50).map(|n: u8| MessageData::new([n])).collect()).await.unwrap();
    let held = queue.pull("p").max(50).await.unwrap();
    clock.advance(LEASE / 3);
    eventually("extensions", || spy.extend.items() >= 50).await;
    assert_eq!(spy.extend.calls(), 1);
    drop(held);
}

#[tokio::test]
async fn a_server_out_of_reach_makes_the_handler_learn_its_loss_when_the_lease_ends() {
    let clock = ManualClock::new();
    let (spy, _queue, mut handler) = held_one(&clock).await;
    // The extension hangs: that must not delay the news.
    spy.extend.hold();
    let lost = handler.lost().clone();
    clock.advance(LEASE / 3);
    eventually("an attempt", || spy.extend.calls() >= 1).await;
    clock.advance(LEASE / 2);
    tokio::task::yield_now().await;
    assert!(!lost.is_cancelled(), "the lease is still good");
    clock.advance(LEASE / 3);
    eventually("the loss", || lost.is_cancelled()).await;
    assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Lost);
    assert_eq!(spy.settle.calls(), 0, "nothing is sent under a lost lease");
}

#[tokio::test]
async fn a_failed_extension_is_tried_again_before_the_lease_ends() {
    let clock = ManualClock::new();
    let (spy, _queue, handler) = held_one(&clock).await;
    spy.extend.script([Script::Fail(safe(ErrorKind::Unavailable))]);
    clock.advance(LEASE / 3);
    eventually("the first attempt", || spy.extend.calls() == 1).await;
    clock.advance(LEASE / 6 + Duration::from_millis(1));
    eventually("the second", || spy.extend.calls() == 2).await;
    eventually("its effect", || handler.lease_until() > Some(clock.clock().now() + LEASE / 2)).await;
    assert!(!handler.is_lost());
}

#[tokio::test]
async fn a_lease_that_the_server_has_given_away_is_reported_at_the_next_heartbeat() {
    let clock = ManualClock::new();
    let (spy, _queue, mut handler) = held_one(&clock).await;
    spy.extend.script([Script::Lost]);
    let lost = handler.lost().clone();
    clock.advance(LEASE / 3);
    eventually("the loss", || lost.is_cancelled()).await;
    assert_eq!(handler.lease_until(), None);
    assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Lost);
    assert_eq!(spy.settle.calls(), 0);
}

#[tokio::test]
async fn without_keep_alive_the_lease_ends_and_the_message_goes_to_somebody_else() {
    let clock = ManualClock::new();
    let spy = spy_on(&clock);
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).build().unwrap();
    queue.push("p", MessageData::new(b"x")).await.unwrap();
    let mut handler = queue.pull("p").keep_alive(false).await.unwrap().pop().unwrap();
    let lost = handler.lost().clone();
    clock.advance(LEASE);
    eventually("the loss", || lost.is_cancelled()).await;
    assert_eq!(spy.extend.calls(), 0);
    let again = queue.pull("p").await.unwrap();
    assert_eq!(again[0].id(), handler.id());
    assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Lost);
    assert!(!again[0].is_lost());
}

#[tokio::test]
async fn max_hold_ends_a_hold_that_nobody_else_would_end() {
    let clock = ManualClock::new();
    let spy = spy_on(&clock);
    let options = PartitionOptions::default().with_max_hold(LEASE * 2);
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).defaults(options).build().unwrap();
    queue.push("p", MessageData::new(b"x")).await.unwrap();
    let handler = queue.pull("p").await.unwrap().pop().unwrap();
    for _ in 0..12 {
        clock.advance(LEASE / 3);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    eventually("the loss", || handler.is_lost()).await;
    assert_eq!(queue.pull("p").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_for_cancellation_reaches_the_handler_and_does_not_take_the_lease() {
    let clock = ManualClock::new();
    let (_spy, queue, mut handler) = held_one(&clock).await;
    let requested = handler.cancel_requested().clone();
    let answers = queue.request_cancel("p", &[handler.id(), MessageId::new()]).await.unwrap();
    assert!(matches!(answers[0], Ok(CancelOutcome::Requested)));
    assert!(matches!(answers[1], Ok(CancelOutcome::NotFound)));
    assert!(!requested.is_cancelled());
    clock.advance(LEASE / 3);
    eventually("the request", || requested.is_cancelled()).await;
    assert!(!handler.is_lost());
    assert_eq!(handler.settle(QueueMessageStatus::Cancelled).await.unwrap(), SettleOutcome::Settled);
}

#[tokio::test]
async fn a_dropped_handler_gives_its_message_back_also_from_a_thread_without_a_runtime() {
    let clock = ManualClock::new();
    let (spy, queue, handler) = held_one(&clock).await;
    std::thread::spawn(move || drop(handler)).join().unwrap();
    eventually("the release", || spy.settle.calls() == 1).await;
    let again = queue.pull("p").wait(Duration::from_secs(5)).await.unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].delivery_count(), Some(1), "a release is no failed attempt");
}

#[tokio::test]
async fn a_settlement_whose_future_was_dropped_is_carried_through_and_not_followed_by_a_release() {
    let clock = ManualClock::new();
    let (spy, queue, mut handler) = held_one(&clock).await;
    spy.settle.hold();
    {
        let mut settle = std::pin::pin!(handler.settle(Processed));
        let first = futures_util::poll!(settle.as_mut());
        assert!(first.is_pending());
    }
    drop(handler);
    spy.settle.let_go();
    eventually("the settlement", || spy.settle.calls() == 1).await;
    eventually("its effect", || true).await;
    assert_eq!(spy.settle.items(), 1, "no release behind it");
    assert!(queue.pull("p").await.unwrap().is_empty());
}

#[tokio::test]
async fn settling_again_answers_as_before_and_another_status_changes_nothing() {
    let clock = ManualClock::new();
    let (spy, _queue, mut handler) = held_one(&clock).await;
    assert_eq!(handler.status(), &QueueMessageStatus::Waiting);
    assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(handler.settle(QueueMessageStatus::Failed).await.unwrap(), SettleOutcome::Lost);
    assert_eq!((handler.status(), spy.settle.calls()), (&Processed, 1));
}

#[tokio::test]
async fn close_lets_settlements_finish_releases_what_is_held_and_refuses_the_rest() {
    let clock = ManualClock::new();
    let (spy, queue, mut handler) = held_one(&clock).await;
    queue.push("p", MessageData::new(b"second")).await.unwrap();
    let mut second = queue.pull("p").await.unwrap().pop().unwrap();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.pull("empty").wait(Duration::from_hours(1)).await.map(|found| found.len()) }
    });
    eventually("the waiting pull", || spy.pull.calls() == 3).await;
    spy.settle.hold();
    let settling = tokio::spawn(async move { handler.settle(Processed).await });
    eventually("a settlement under way", || spy.settle.calls() == 1).await;
    let closing = tokio::spawn({
        let queue = queue.clone();
        async move { queue.close().await }
    });
    assert_eq!(waiting.await.unwrap().unwrap(), 0, "a waiting pull is woken");
    spy.settle.let_go();
    assert_eq!(settling.await.unwrap().unwrap(), SettleOutcome::Settled);
    closing.await.unwrap().unwrap();
    assert!(second.is_lost());
    assert_eq!(second.settle(Processed).await.unwrap(), SettleOutcome::Lost);
    queue.close().await.unwrap();
    assert_eq!(queue.push("p", MessageData::new(b"x")).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(queue.pull("p").await.unwrap_err().kind(), ErrorKind::Closed);
    let fresh = Queue::new(spy.memory.client()).unwrap();
    assert_eq!(
        fresh.pull("p").max(10).await.unwrap().len(),
        1,
        "what was held came back, what was settled did not"
    );
}

#[test]
fn a_blocked_executor_loses_no_lease_with_an_io_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let io = IoThread::start().unwrap();
        let memory = anyqueue_memory::MemoryQueue::new();
        // Its heartbeat may be late by more than a second on a busy machine; without any it ends while this is blocked.
        let options = PartitionOptions::default().with_lease(Duration::from_secs(2));
        let queue = Queue::builder(memory.client()).defaults(options).io(&io).build().unwrap();
        queue.push("p", MessageData::new(b"x")).await.unwrap();
        let mut handler = queue.pull("p").await.unwrap().pop().unwrap();
        std::thread::sleep(Duration::from_millis(2500)); // what a handler must not do, and does
        assert!(!handler.is_lost());
        assert!(queue.pull("p").await.unwrap().is_empty());
        assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Settled);
    });
}
