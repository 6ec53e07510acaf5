//! Pulls over messages that have expired.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::time::Duration;

use anyqueue::adapter::*;
use anyqueue::*;
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use support::{Shared, Spy};

/// A queue whose first messages have expired, on a clock that each pull's call moves.
async fn with_expired(expired: usize, spy: Spy, clock: &ManualClock) -> (Shared, Queue) {
    let spy = Shared(std::sync::Arc::new(spy));
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).build().unwrap();
    let short = || MessageData::new("expired").with_time_to_live(Duration::from_millis(1));
    queue.push_many("p", (0..expired).map(|_| short()).collect()).await.unwrap();
    clock.advance(Duration::from_secs(1));
    (spy, queue)
}

fn spy_on(clock: &ManualClock) -> Spy {
    Spy::new(MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock())))
}

#[tokio::test]
async fn a_pull_asks_for_more_and_more_while_all_that_comes_has_expired() {
    let clock = ManualClock::new();
    let (spy, queue) = with_expired(5_000, spy_on(&clock), &clock).await;
    for n in 0..5_000 {
        queue.push("p", MessageData::new(format!("{n}"))).await.unwrap();
    }
    let got = queue.pull("p").max(2).await.unwrap();
    assert_eq!((got.len(), got[0].payload(), got[1].payload()), (2, &b"0"[..], &b"1"[..]));
    let calls = spy.pull.calls() + spy.exchange.calls();
    assert!(calls <= 20, "{calls} calls over 5000 expired messages");
    // What was asked for beyond the pull's wish is back, and has not been counted.
    let rest = queue.pull("p").max(4998).await.unwrap();
    assert_eq!(rest.len(), 4998);
    assert!(rest.iter().all(|delivery| delivery.delivery_count() == Some(1)));
}

#[tokio::test]
async fn nothing_is_asked_for_beyond_a_pulls_wish_where_giving_back_leaves_traces() {
    let clock = ManualClock::new();
    for counts in [true, false] {
        let mut spy = spy_on(&clock);
        if counts {
            spy.capabilities.delivery_count = DeliveryCount::Deliveries;
        } else {
            spy.capabilities.requeue = Requeue::Back;
        }
        let (spy, queue) = with_expired(10, spy, &clock).await;
        queue.push("p", MessageData::new("fresh")).await.unwrap();
        assert_eq!(queue.pull("p").await.unwrap()[0].payload(), b"fresh");
        assert!(spy.pull.sizes().iter().all(|size| *size == 1), "{:?}", spy.pull.sizes());
    }
}

#[tokio::test]
async fn a_pull_over_expired_messages_ends_with_its_wait() {
    let clock = ManualClock::new();
    let mut inner = spy_on(&clock);
    inner.capabilities.limits.pull_batch = 1;
    inner.capabilities.exchange = false;
    let (spy, queue) = with_expired(1_000, inner, &clock).await;
    let turn = tokio::spawn({
        let spy = spy.clone();
        async move {
            // Each call takes ten milliseconds of the queue's time, and one of everybody's.
            let mut seen = spy.pull.calls();
            loop {
                let calls = spy.pull.calls();
                if calls > seen {
                    clock.advance(Duration::from_millis(10));
                    seen = calls;
                }
                tokio::task::yield_now().await;
            }
        }
    });
    let wait = Duration::from_millis(100);
    spy.pull.takes(Duration::from_millis(1));
    assert!(queue.pull("p").wait(wait).await.unwrap().is_empty());
    let calls = spy.pull.calls();
    turn.abort();
    assert!((10..=12).contains(&calls), "{calls} calls of 10 ms within 100 ms");
}
