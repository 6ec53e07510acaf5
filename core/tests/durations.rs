//! The longest durations that a user can give: none makes anything panic, or wrap round to nothing.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::*;
use anyqueue::*;
use anyqueue_memory::MemoryQueue;
use support::{Script, Shared, Spy, eventually, safe, spy};

const MAX: Duration = Duration::MAX;

/// A backend that declares no bounds of its own.
fn boundless() -> Shared {
    let mut spy = Spy::new(MemoryQueue::new());
    spy.capabilities.lease.max = MAX;
    spy.capabilities.push_delay =
        spy.capabilities.push_delay.map(|delay| DelayCapability { max: MAX, ..delay });
    spy.capabilities.postpone_delay = spy.capabilities.push_delay;
    Shared(Arc::new(spy))
}

fn longest(spy: &Shared) -> Queue {
    let options = PartitionOptions::default().with_max_hold(MAX);
    Queue::builder(spy.clone()).call_timeout(MAX).defaults(options).build().unwrap()
}

fn lasting(payload: &str) -> MessageData {
    MessageData::new(payload).with_time_to_live(MAX).with_max_duration(MAX)
}

#[tokio::test]
async fn the_longest_timeouts_and_waits_are_as_good_as_none() {
    let spy = spy();
    let queue = longest(&spy);
    queue.push("p", lasting("a")).await.unwrap();
    let mut held = queue.pull("p").wait(MAX).await.unwrap();
    assert_eq!(held[0].message().options().max_duration, Some(MAX));
    assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.pull("p").wait(MAX).await.unwrap().len() }
    });
    eventually("a waiting pull", || spy.pull.calls() == 2).await;
    queue.push_many("p", vec![lasting("b")]).await.unwrap();
    assert_eq!(waiting.await.unwrap(), 1);
    queue.init().await.unwrap();
    queue.check().await.unwrap();
    assert_eq!(queue.dead_letters("p").unwrap().redrive().await.unwrap().moved, 0);
    queue.close().await.unwrap();
}

#[tokio::test]
async fn what_is_longer_than_declared_is_refused() {
    let queue = longest(&spy());
    let refused = |error: Error| assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    refused(queue.push("p", lasting("a").with_delay(MAX)).await.unwrap_err());
    refused(queue.pull("p").lease(MAX).await.unwrap_err());
    refused(queue.stream("p").lease(MAX).build().unwrap_err());
    refused(queue.settle_pulls("p", Some(MAX)).unwrap_err());
    queue.push("p", lasting("a")).await.unwrap();
    let mut held = queue.pull("p").await.unwrap();
    refused(held[0].extend(MAX).await.unwrap_err());
    refused(held[0].settle(QueueMessageStatus::postponed(MAX)).await.unwrap_err());
    assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
}

#[tokio::test]
async fn the_longest_leases_and_delays_of_a_backend_without_bounds_do_no_harm() {
    let spy = boundless();
    let queue = longest(&spy);
    queue.push("p", lasting("a")).await.unwrap();
    let mut held = queue.pull("p").await.unwrap();
    spy.extend.script([Script::Fail(safe(ErrorKind::Unavailable))]);
    assert!(held[0].extend(MAX).await.is_err());
    assert!(!held[0].is_lost());
    // The storage beneath has bounds; what core makes of the longest must reach it all the same.
    assert_eq!(queue.pull("p").lease(MAX).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let _ = held[0].settle(QueueMessageStatus::postponed(MAX)).await;
    let _ = queue.push("p", lasting("b").with_delay(MAX)).await;
    assert!(queue.counts("p").await.is_ok());
}

#[tokio::test]
async fn the_longest_pause_before_a_repetition_is_no_panic() {
    let mut retry = RetryPolicy::default();
    (retry.base, retry.cap) = (MAX, MAX);
    for _ in 0..20 {
        let spy = spy();
        let queue = Queue::builder(spy.clone()).retry(retry).build().unwrap();
        spy.push.script([Script::Fail(safe(ErrorKind::Unavailable))]);
        let mut push = std::pin::pin!(queue.push("p", lasting("a")));
        assert!(futures_util::poll!(push.as_mut()).is_pending(), "it is paused, not at its end");
        tokio::task::yield_now().await;
        assert!(futures_util::poll!(push.as_mut()).is_pending());
        assert_eq!(spy.push.calls(), 1);
    }
}

#[test]
fn a_clock_by_hand_ends_at_a_century() {
    let manual = ManualClock::new();
    let (clock, start) = (manual.clock(), manual.clock().now());
    for _ in 0..2 {
        manual.advance(MAX);
    }
    assert!(clock.now() > start && clock.wall() > std::time::SystemTime::UNIX_EPOCH);
}
