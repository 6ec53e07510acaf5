//! Settlements that are asked for while an earlier one of the same delivery is under way.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use anyqueue::QueueMessageStatus::{Failed, Processed, Waiting};
use anyqueue::*;
use support::{Script, Shared, eventually, spy};

/// Held deliveries, of which the last has a settlement under way that nobody waits for any more.
async fn one_under_way(held: usize, status: QueueMessageStatus) -> (Shared, Queue, Vec<Delivery>) {
    let spy = spy();
    let queue = Queue::builder(spy.clone()).retry(RetryPolicy::NEVER).build().unwrap();
    queue.push_many("p", (0..held).map(|n| MessageData::new(format!("{n}"))).collect()).await.unwrap();
    let mut held = queue.pull("p").max(held).await.unwrap();
    spy.settle.hold();
    {
        let mut settle = std::pin::pin!(held.last_mut().unwrap().settle(status));
        assert!(futures_util::poll!(settle.as_mut()).is_pending());
    }
    (spy, queue, held)
}

fn fail() -> Script {
    Script::Fail(Error::new(ErrorKind::Unavailable, "cut"))
}

#[tokio::test]
async fn settle_many_that_was_polled_once_is_carried_through_behind_earlier_settlements() {
    let (spy, queue, mut held) = one_under_way(3, Processed).await;
    held.reverse(); // the one under way comes first
    {
        let mut many = std::pin::pin!(queue.settle_many(held.iter_mut().map(|one| (one, Processed))));
        assert!(futures_util::poll!(many.as_mut()).is_pending());
    }
    spy.settle.let_go();
    eventually("all settled", || spy.settle.items() + spy.exchange.items() == 3).await;
    for one in &mut held {
        assert_eq!(one.settle(Processed).await.unwrap(), SettleOutcome::Settled);
    }
    assert_eq!(queue.counts("p").await.unwrap().leased, Some(0));
}

#[tokio::test]
async fn a_settlement_behind_one_that_fails_is_carried_through_without_its_future() {
    let (spy, queue, mut held) = one_under_way(1, Failed).await;
    spy.settle.script([fail()]);
    {
        let mut settle = std::pin::pin!(held[0].settle(Processed));
        assert!(futures_util::poll!(settle.as_mut()).is_pending());
    }
    assert_eq!(held[0].status(), &Processed);
    drop(held);
    spy.settle.let_go();
    eventually("the second", || spy.settle.calls() == 2).await;
    let gone = async || queue.counts("p").await.unwrap().leased == Some(0);
    while !gone().await {
        tokio::task::yield_now().await;
    }
    assert_eq!(queue.counts("p").await.unwrap().ready, Some(0), "processed, not failed");
}

#[tokio::test]
async fn a_settlement_behind_one_that_succeeds_changes_nothing_and_says_so() {
    let (spy, _queue, mut held) = one_under_way(1, Processed).await;
    {
        let mut settle = std::pin::pin!(held[0].settle(Failed));
        assert!(futures_util::poll!(settle.as_mut()).is_pending());
    }
    {
        // And a third behind the second.
        let mut settle = std::pin::pin!(held[0].settle(Waiting));
        assert!(futures_util::poll!(settle.as_mut()).is_pending());
    }
    spy.settle.let_go();
    assert_eq!(held[0].settle(Failed).await.unwrap(), SettleOutcome::Lost);
    assert_eq!((held[0].status(), spy.settle.calls()), (&Processed, 1));
    assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
}

#[tokio::test]
async fn close_waits_for_a_settlement_that_follows_another() {
    let (spy, queue, mut held) = one_under_way(1, Failed).await;
    spy.settle.script([fail()]);
    {
        let mut settle = std::pin::pin!(held[0].settle(Processed));
        assert!(futures_util::poll!(settle.as_mut()).is_pending());
    }
    let closing = tokio::spawn({
        let queue = queue.clone();
        async move { queue.close().await }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!closing.is_finished());
    spy.settle.let_go();
    closing.await.unwrap().unwrap();
    let fresh = Queue::new(spy.memory.client()).unwrap();
    assert!(fresh.pull("p").await.unwrap().is_empty(), "it was processed before the end");
}
