//! Pulls and streams that share the room for what a queue may hold.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::*;
use anyqueue_memory::MemoryQueue;
use futures_util::StreamExt as _;
use support::eventually;

/// Longer than any test may take.
const LONG: Duration = Duration::from_hours(1);

/// Counts how often a future is polled.
struct Polls<F>(Pin<Box<F>>, Arc<AtomicUsize>);

impl<F: Future> Future for Polls<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, SeqCst);
        self.0.as_mut().poll(cx)
    }
}

async fn push(queue: &Queue, partition: &str, messages: usize) {
    let messages = (0..messages).map(|n| MessageData::new(format!("{n}"))).collect();
    queue.push_many(partition, messages).await.unwrap();
}

/// Many pulls wait for room, and each bit of room that comes free serves one of them, without anybody going round in circles.
async fn freed_room_serves_one_each(queue: Queue) {
    const WAITERS: usize = 10;
    push(&queue, "p", 100).await;
    let mut held = queue.pull("p").max(2).await.unwrap();
    let (got, mut pulled) = tokio::sync::mpsc::channel(WAITERS);
    let polls = Arc::new(AtomicUsize::new(0));
    for _ in 0..WAITERS {
        let pull = Polls(Box::pin(queue.pull("p").wait(LONG).into_future()), polls.clone());
        let got = got.clone();
        tokio::spawn(async move { got.send(pull.await.unwrap()).await.unwrap() });
    }
    eventually("all wait", || polls.load(SeqCst) >= WAITERS).await;
    for served in 1..=WAITERS {
        let mut one = held.pop().unwrap();
        one.settle(Processed).await.unwrap();
        drop(one);
        let batch = tokio::time::timeout(Duration::from_mins(1), pulled.recv()).await;
        let batch =
            batch.unwrap_or_else(|_| panic!("room came free {served} times, and nobody got it")).unwrap();
        assert_eq!(batch.len(), 1);
        held.extend(batch);
    }
    let polls = polls.load(SeqCst);
    assert!(polls <= 10 * WAITERS, "{WAITERS} pulls were polled {polls} times");
}

fn two(io: Option<&IoThread>) -> Queue {
    let builder = Queue::builder(MemoryQueue::new()).max_held(2);
    match io {
        Some(io) => builder.io(io),
        None => builder,
    }
    .build()
    .unwrap()
}

#[tokio::test]
async fn freed_room_serves_one_waiting_pull_each_on_one_thread() {
    freed_room_serves_one_each(two(None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn freed_room_serves_one_waiting_pull_each_on_several_threads() {
    freed_room_serves_one_each(two(None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn freed_room_serves_one_waiting_pull_each_on_an_io_thread() {
    let io = IoThread::start().unwrap();
    freed_room_serves_one_each(two(Some(&io))).await;
}

#[tokio::test]
async fn a_pull_that_waited_for_room_takes_all_that_came_free() {
    let queue = Queue::builder(MemoryQueue::new()).max_held(4).build().unwrap();
    push(&queue, "p", 8).await;
    let held = queue.pull("p").max(4).await.unwrap();
    let mut pull = Box::pin(queue.pull("p").max(3).wait(LONG).into_future());
    assert!(futures_util::poll!(pull.as_mut()).is_pending());
    drop(held);
    assert_eq!(pull.await.unwrap().len(), 3);
}

#[tokio::test]
async fn streams_that_share_little_room_all_go_on() {
    let queue = Queue::builder(MemoryQueue::new()).max_held(3).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for partition in ["a", "b", "c", "d"] {
        push(&queue, partition, 200).await;
    }
    for partition in ["a", "b", "c", "d"] {
        let mut stream = queue.stream(partition).window(8).build().unwrap();
        tasks.spawn(async move {
            for _ in 0..50 {
                let mut delivery = stream.next().await.unwrap().unwrap();
                delivery.settle(Processed).await.unwrap();
            }
        });
    }
    let all = tasks.join_all();
    tokio::time::timeout(Duration::from_mins(1), all).await.expect("all streams get their messages");
}

#[tokio::test]
async fn a_stream_that_waits_goes_on_after_a_settlement_that_brought_only_what_had_expired() {
    const WINDOW: usize = 8;
    let clock = ManualClock::new();
    let spy = support::spy_on(&clock);
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).build().unwrap();
    push(&queue, "p", WINDOW).await;
    let mut stream = queue.stream("p").window(WINDOW).build().unwrap();
    let mut held = Vec::new();
    while held.len() < WINDOW {
        held.push(stream.next().await.unwrap().unwrap());
    }
    // It has nothing left, and says so once: nobody polls it again without cause.
    let next = tokio::spawn(async move { stream.next().await.unwrap().unwrap() });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    queue.push("p", MessageData::new("late").with_time_to_live(Duration::from_millis(1))).await.unwrap();
    clock.advance(Duration::from_secs(1));
    let mut one = held.pop().unwrap();
    one.settle(Processed).await.unwrap();
    drop(one);
    assert_eq!(spy.exchange.calls(), 1, "the settlement brings what has expired");
    queue.push("p", MessageData::new("fresh")).await.unwrap();
    let fresh = tokio::time::timeout(Duration::from_mins(1), next).await.expect("there is room for one");
    assert_eq!(fresh.unwrap().payload(), b"fresh");
}
