//! How a stream keeps its window full: by its own pulls, and by the settlements of what it delivered.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::*;
use anyqueue::*;
use futures_util::StreamExt as _;
use support::{Script, Shared, Spy, eventually, safe, spy};

async fn filled(messages: usize) -> (Shared, Queue) {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    push(&queue, messages).await;
    (spy, queue)
}

async fn push(queue: &Queue, messages: usize) {
    let messages = (0..messages).map(|n| MessageData::new(format!("{n}"))).collect();
    queue.push_many("p", messages).await.unwrap();
}

async fn next(stream: &mut HandlerStream) -> Delivery {
    tokio::time::timeout(Duration::from_mins(1), stream.next()).await.unwrap().unwrap().unwrap()
}

async fn settled(mut handler: Delivery) -> Vec<u8> {
    assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Settled);
    handler.payload().to_vec()
}

#[tokio::test]
async fn settlements_bring_the_next_deliveries_with_them_and_in_order() {
    let (spy, queue) = filled(100).await;
    let mut stream = queue.stream("p").window(4).build().unwrap();
    for n in 0..100 {
        let handler = next(&mut stream).await;
        assert_eq!(settled(handler).await, n.to_string().into_bytes());
    }
    assert!(spy.exchange.calls() >= 90, "{} settlements brought something", spy.exchange.calls());
    assert!(spy.pull.calls() <= 10, "{} pulls besides", spy.pull.calls());
}

#[tokio::test]
async fn what_settlements_bring_stays_within_the_window() {
    let (_spy, queue) = filled(100).await;
    let mut stream = queue.stream("p").window(8).build().unwrap();
    for _ in 0..40 {
        let handler = next(&mut stream).await;
        settled(handler).await;
        let leased = queue.counts("p").await.unwrap().leased.unwrap();
        assert!(leased <= 8, "{leased} are held");
    }
}

#[tokio::test]
async fn a_settled_handler_that_lives_on_takes_no_room() {
    // Without deliveries that come with settlements, which would take over the room.
    let (_spy, queue) = filled_broker(20).await;
    let mut stream = queue.stream("p").window(2).build().unwrap();
    let mut kept = Vec::new();
    for _ in 0..20 {
        let mut handler = next(&mut stream).await;
        handler.settle(Processed).await.unwrap();
        kept.push(handler);
    }
    assert_eq!(kept.len(), 20);
}

/// As [`filled`], of a broker whose settlements bring nothing with them.
async fn filled_broker(messages: usize) -> (Shared, Queue) {
    let mut spy = Spy::new(anyqueue_memory::MemoryQueue::new());
    spy.capabilities.exchange = false;
    spy.capabilities.lease.kind = LeaseKind::Connection;
    let spy = Shared(Arc::new(spy));
    let queue = Queue::new(spy.clone()).unwrap();
    push(&queue, messages).await;
    (spy, queue)
}

#[tokio::test]
async fn the_next_pulls_from_a_broker_do_not_wait_for_each_other() {
    let (spy, queue) = filled_broker(100).await;
    let mut stream = queue.stream("p").window(8).build().unwrap();
    let first = next(&mut stream).await;
    spy.pull.hold();
    let mut held = vec![first];
    for _ in 1..8 {
        held.push(next(&mut stream).await);
    }
    for pulls in 2..=5 {
        settled(held.remove(0)).await;
        settled(held.remove(0)).await;
        // Each asks for the quarter of the window that was settled.
        eventually("another pull", || (spy.pull.calls(), spy.pull.items()) == (pulls, 6 + 2 * pulls)).await;
    }
    spy.pull.let_go();
    for n in 8..100 {
        assert_eq!(settled(next(&mut stream).await).await, n.to_string().into_bytes());
    }
}

#[tokio::test]
async fn a_stream_that_a_broker_gave_less_than_it_asked_for_pulls_once_at_a_time() {
    let (spy, queue) = filled_broker(3).await;
    let mut stream = queue.stream("p").window(8).build().unwrap();
    for _ in 0..3 {
        settled(next(&mut stream).await).await;
    }
    // Whatever else the stream would begin it has begun by then.
    tokio::time::sleep(Duration::from_millis(50)).await;
    push(&queue, 1).await;
    let _last = next(&mut stream).await;
    // What brought three, what waited and brought one, and what waits now.
    eventually("a pull that waits", || spy.pull.calls() >= 3).await;
    assert_eq!(spy.pull.calls(), 3);
}

#[tokio::test]
async fn pulls_that_fail_at_the_same_time_are_told_of_once() {
    let (spy, queue) = filled_broker(100).await;
    let mut stream = queue.stream("p").window(4).build().unwrap();
    let mut held = vec![next(&mut stream).await];
    spy.pull.hold();
    for _ in 1..4 {
        held.push(next(&mut stream).await);
    }
    for (settlements, handler) in held.into_iter().enumerate() {
        settled(handler).await;
        eventually("another pull", || spy.pull.calls() == settlements + 2).await;
    }
    let broken = || Script::Fail(Error::new(ErrorKind::AccessDenied, "as the script says"));
    spy.pull.script([broken(), broken(), broken(), broken()]);
    spy.pull.let_go();
    assert!(stream.next().await.unwrap().is_err());
    assert_eq!(settled(next(&mut stream).await).await, b"4");
}

#[tokio::test]
async fn a_settlement_that_fails_together_with_a_pull_is_repeated_alone() {
    let (spy, queue) = filled(3).await;
    let mut stream = queue.stream("p").window(1).build().unwrap();
    let handler = next(&mut stream).await;
    // The pump's own pull has ended, so that the settlement is the one to bring the next.
    eventually("an idle pump", || spy.pull.calls() == 1).await;
    spy.exchange.script([Script::Fail(safe(ErrorKind::Unavailable))]);
    assert_eq!(settled(handler).await, b"0");
    assert_eq!((spy.exchange.calls(), spy.settle.calls()), (1, 1));
    assert_eq!(settled(next(&mut stream).await).await, b"1");
}

/// As [`filled`], of a backend whose settlements may overlap; and the first deliveries, of which a stream has handed out all.
async fn overlapping(window: usize) -> (Shared, Queue, HandlerStream, Vec<Delivery>) {
    let mut spy = Spy::new(anyqueue_memory::MemoryQueue::new());
    spy.capabilities.coalesce_settle.in_flight = 2;
    let spy = Shared(Arc::new(spy));
    let queue = Queue::new(spy.clone()).unwrap();
    push(&queue, 2 * window).await;
    let mut stream = queue.stream("p").window(window).build().unwrap();
    let mut held = Vec::new();
    while held.len() < window {
        held.push(next(&mut stream).await);
    }
    // Its pump has nothing under way.
    eventually("an idle pump", || spy.pull.calls() == 1).await;
    (spy, queue, stream, held)
}

#[tokio::test]
async fn what_overlapping_settlements_bring_arrives_in_the_order_of_the_claims() {
    let (spy, _queue, mut stream, mut held) = overlapping(8).await;
    let first = spy.exchange.answer_later();
    let settling = tokio::spawn(settled(held.remove(0)));
    eventually("a settlement under way", || spy.exchange.calls() == 1).await;
    assert_eq!(settled(held.remove(0)).await, b"1");
    assert_eq!(spy.exchange.calls(), 2, "the second does not wait for the first, and brings something");
    assert!(futures_util::poll!(stream.next()).is_pending(), "what was claimed before is not there yet");
    first.send(()).unwrap();
    assert_eq!(settling.await.unwrap(), b"0");
    assert_eq!(next(&mut stream).await.payload(), b"8");
    assert_eq!(next(&mut stream).await.payload(), b"9");
}

#[tokio::test]
async fn a_settlement_without_an_answer_does_not_hold_up_what_later_ones_bring() {
    let (spy, _queue, mut stream, mut held) = overlapping(8).await;
    let first = spy.exchange.answer_later();
    let mut lost = held.remove(0);
    let settling = tokio::spawn(async move { lost.settle(Processed).await });
    eventually("a settlement under way", || spy.exchange.calls() == 1).await;
    assert_eq!(settled(held.remove(0)).await, b"1");
    spy.settle.hold();
    drop(first);
    assert_eq!(next(&mut stream).await.payload(), b"9", "not even while the first is being repeated");
    spy.settle.let_go();
    assert_eq!(settling.await.unwrap().unwrap(), SettleOutcome::Lost, "the server had settled it");
}

#[tokio::test]
async fn a_settlement_that_concerns_another_partition_brings_something_only_if_no_other_is_under_way() {
    let (spy, queue, _stream, mut held) = overlapping(8).await;
    queue.push("q", MessageData::new(b"other")).await.unwrap();
    let mut other = queue.pull("q").await.unwrap().remove(0);
    let first = spy.exchange.answer_later();
    let (mut both, next) = (held.remove(0), held.remove(0));
    let settling = tokio::spawn(async move {
        let both = [(&mut both, Processed), (&mut other, Processed)];
        // The lanes of the two are the same one, and they are taken together.
        queue.settle_many(both).await.into_iter().flatten().count()
    });
    eventually("a settlement under way", || spy.exchange.calls() == 1).await;
    assert_eq!(settled(next).await, b"1");
    assert_eq!((spy.exchange.calls(), spy.settle.calls()), (1, 1));
    first.send(()).unwrap();
    assert_eq!(settling.await.unwrap(), 2);
}

#[tokio::test]
async fn what_a_settlement_brings_to_a_stream_that_is_gone_is_released() {
    let (spy, queue) = filled(2).await;
    let mut stream = queue.stream("p").window(1).build().unwrap();
    let handler = next(&mut stream).await;
    spy.exchange.hold();
    let settling = tokio::spawn(settled(handler));
    eventually("a settlement under way", || spy.exchange.calls() == 1).await;
    drop(stream);
    spy.exchange.let_go();
    assert_eq!(settling.await.unwrap(), b"0");
    let mut found = queue.pull("p").wait(Duration::from_secs(10)).await.unwrap();
    let handler = found.pop().unwrap();
    assert_eq!((handler.payload(), handler.delivery_count()), (&b"1"[..], Some(1)));
}

async fn pulled(queue: &Queue) -> Delivery {
    queue.pull("p").await.unwrap().remove(0)
}

#[tokio::test]
async fn refills_come_with_the_settlements_of_what_is_bound_while_they_are_open() {
    let (spy, queue) = filled(10).await;
    let mut settle_pulls = queue.settle_pulls("p", None).unwrap();
    settled(settle_pulls.bind(pulled(&queue).await)).await;
    assert!(settle_pulls.take().is_empty(), "they were not opened");
    settle_pulls.set_open(true);
    settled(pulled(&queue).await).await;
    assert!(settle_pulls.take().is_empty(), "nothing was bound");
    let mut handler = settle_pulls.bind(pulled(&queue).await);
    for n in 3..10 {
        assert_eq!(settled(handler).await, (n - 1).to_string().into_bytes());
        let mut next = settle_pulls.next().await;
        assert_eq!(next.len(), 1);
        handler = next.remove(0);
    }
    settled(handler).await;
    assert!(settle_pulls.take().is_empty(), "there is nothing more");
    assert_eq!(spy.pull.calls(), 3);
}

#[tokio::test]
async fn what_is_settled_together_brings_as_many_in_one_call() {
    let (spy, queue) = filled(10).await;
    let mut settle_pulls = queue.settle_pulls("p", None).unwrap();
    settle_pulls.set_open(true);
    let held = queue.pull("p").max(4).await.unwrap();
    let mut held: Vec<_> = held.into_iter().map(|delivery| settle_pulls.bind(delivery)).collect();
    let all = held.iter_mut().map(|delivery| (delivery, Processed));
    assert_eq!(queue.settle_many(all).await.into_iter().flatten().count(), 4);
    assert_eq!(settle_pulls.next().await.len(), 4);
    assert_eq!((spy.exchange.calls(), spy.exchange.items()), (1, 4));
    assert_eq!(spy.settle.calls(), 0);
}

#[tokio::test]
async fn refills_that_nobody_takes_end_and_are_released() {
    let (_spy, queue) = filled(100).await;
    let settle_pulls = queue.settle_pulls("p", None).unwrap();
    settle_pulls.set_open(true);
    for _ in 0..40 {
        settled(settle_pulls.bind(pulled(&queue).await)).await;
    }
    let leased = async || queue.counts("p").await.unwrap().leased.unwrap();
    assert_eq!(leased().await, 16, "as many as may wait");
    drop(settle_pulls);
    let released = async {
        while leased().await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), released).await.expect("they are released");
    assert_eq!(queue.counts("p").await.unwrap().ready, Some(60));
}

#[tokio::test]
async fn a_lease_that_the_backend_cannot_give_is_refused_for_refills() {
    let (_spy, queue) = filled(0).await;
    let error = queue.settle_pulls("p", Some(Duration::ZERO)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_stream_dropped_before_its_first_turn_asks_the_storage_for_nothing() {
    let (spy, queue) = filled(1).await;
    for _ in 0..20 {
        // This thread is the runtime's only one: the stream's task has its first turn when the test lets go of it.
        drop(queue.stream("p").build().unwrap());
        tokio::task::yield_now().await;
    }
    assert_eq!(spy.pull.calls(), 0);
}
