//! Extensions by hand that cross those of the heartbeat.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::time::{Duration, Instant};

use anyqueue::*;
use support::{Shared, eventually, spy_on};

const LEASE: Duration = Duration::from_secs(30);

async fn held_one(clock: &ManualClock) -> (Shared, Queue, Delivery) {
    let spy = spy_on(clock);
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).call_timeout(Duration::from_secs(3));
    let queue = queue.build().unwrap();
    queue.push("p", MessageData::new(b"long work")).await.unwrap();
    let handler = queue.pull("p").await.unwrap().pop().unwrap();
    (spy, queue, handler)
}

#[tokio::test]
async fn an_extension_that_crosses_a_shorter_one_is_trusted_no_longer_than_that() {
    let clock = ManualClock::new();
    let (spy, queue, mut handler) = held_one(&clock).await;
    let (now, long) = (|| clock.clock().now(), LEASE * 20);
    clock.advance(LEASE / 4);
    let lost = handler.lost().clone();
    let (answer, until) = {
        let answer = spy.extend.answer_later();
        let mut extend = std::pin::pin!(handler.extend(long));
        assert!(futures_util::poll!(extend.as_mut()).is_pending());
        // The heartbeat comes after it, and makes the lease short again.
        clock.advance(LEASE / 12);
        eventually("the heartbeat", || spy.extend.calls() == 2).await;
        answer.send(()).unwrap();
        (extend.await.unwrap(), now() + LEASE)
    };
    assert_eq!(answer, ExtendOutcome::Extended);
    assert!(handler.lease_until() <= Some(until), "the lease ends sooner than it is trusted");
    // The next heartbeat makes it as long as was asked for.
    clock.advance(LEASE / 2);
    eventually("the long lease", || handler.lease_until() > Some(now() + LEASE * 19)).await;
    clock.advance(LEASE);
    tokio::task::yield_now().await;
    assert!(!lost.is_cancelled() && queue.pull("p").await.unwrap().is_empty());
}

/// A shorter lease was asked for, and nobody knows whether the server heard of it.
async fn shortened_in_doubt(spy: &Shared, handler: &mut Delivery, is_made: bool) {
    if is_made {
        let _answer = spy.extend.answer_later();
        let mut extend = std::pin::pin!(handler.extend(LEASE / 10));
        assert!(futures_util::poll!(extend.as_mut()).is_pending());
    } else {
        spy.extend.hold();
        let mut extend = std::pin::pin!(handler.extend(LEASE / 10));
        assert!(futures_util::poll!(extend.as_mut()).is_pending());
    }
}

#[tokio::test]
async fn a_lease_that_may_have_been_shortened_is_trusted_no_longer_and_kept() {
    for is_made in [true, false] {
        let clock = ManualClock::new();
        let (spy, queue, mut handler) = held_one(&clock).await;
        let now = || clock.clock().now();
        shortened_in_doubt(&spy, &mut handler, is_made).await;
        spy.extend.let_go();
        assert!(handler.lease_until() <= Some(now() + LEASE / 10));
        let mut calls = spy.extend.calls();
        let doubtful: Instant = now() + Duration::from_secs(6); // twice the longest call
        while now() < doubtful {
            clock.advance(LEASE / 30);
            eventually("a heartbeat for the short lease", || spy.extend.calls() > calls).await;
            eventually("its effect", || handler.lease_until() > Some(now() + LEASE / 20)).await;
            let limit = if now() < doubtful { LEASE / 10 } else { LEASE };
            assert!(handler.lease_until() <= Some(now() + limit));
            calls = spy.extend.calls();
        }
        clock.advance(LEASE / 30);
        eventually("the whole lease", || handler.lease_until() > Some(now() + LEASE / 2)).await;
        assert!(!handler.is_lost() && queue.pull("p").await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_shortened_lease_that_nobody_could_extend_is_lost_when_it_may_have_ended() {
    let clock = ManualClock::new();
    let (spy, _queue, mut handler) = held_one(&clock).await;
    shortened_in_doubt(&spy, &mut handler, false).await;
    let lost = handler.lost().clone();
    clock.advance(LEASE / 10);
    eventually("the loss", || lost.is_cancelled()).await;
}
