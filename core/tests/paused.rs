//! Queues in a tokio runtime whose clock is paused.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::*;
use anyqueue::*;
use anyqueue_memory::MemoryQueue;
use support::{Shared, Spy};

const HOUR: Duration = Duration::from_hours(1);

/// By the clock that the test sees. Timers tick in milliseconds.
async fn takes<T>(expected: Duration, what: impl Future<Output = T>) -> T {
    let (begun, really) = (tokio::time::Instant::now(), Instant::now());
    let answer = what.await;
    let took = begun.elapsed();
    assert!(took >= expected && took <= expected + Duration::from_millis(10), "{took:?}, not {expected:?}");
    assert!(really.elapsed() < Duration::from_secs(30), "it took {:?} of real time", really.elapsed());
    answer
}

#[tokio::test(start_paused = true)]
async fn waits_and_delays_in_memory_go_by_the_paused_clock() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    assert!(takes(HOUR, queue.pull("p").wait(HOUR).into_future()).await.unwrap().is_empty());
    queue.push("p", MessageData::new("later").with_delay(HOUR)).await.unwrap();
    tokio::time::advance(HOUR / 2).await;
    let mut held = takes(HOUR / 2, queue.pull("p").wait(HOUR).into_future()).await.unwrap();
    takes(Duration::ZERO, held[0].settle(Processed)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn leases_in_memory_are_kept_and_end_by_the_paused_clock() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    queue.push("p", MessageData::new("long work")).await.unwrap();
    let held = queue.pull("p").await.unwrap().remove(0);
    takes(HOUR, tokio::time::sleep(HOUR)).await;
    assert!(!held.is_lost() && queue.pull("p").await.unwrap().is_empty());
    drop(held);
    let lease = Duration::from_secs(30);
    let held = queue.pull("p").wait(lease).lease(lease).keep_alive(false).await.unwrap().remove(0);
    takes(lease, held.lost().cancelled()).await;
    assert_eq!(queue.pull("p").wait(lease).await.unwrap().len(), 1);
}

/// A backend in another process, as far as it says.
fn elsewhere(call_timeout: Duration) -> (Shared, Queue) {
    let mut spy = Spy::new(MemoryQueue::new());
    spy.capabilities.reach = Reach::Network;
    let spy = Shared(Arc::new(spy));
    let queue =
        Queue::builder(spy.clone()).call_timeout(call_timeout).retry(RetryPolicy::NEVER).build().unwrap();
    (spy, queue)
}

/// Lets calls be answered after a while of real time, by a thread that tokio knows nothing of.
fn answer_in(time: Duration, spy: &Shared) -> std::thread::JoinHandle<()> {
    spy.push.hold();
    let spy = spy.clone();
    std::thread::spawn(move || {
        std::thread::sleep(time);
        spy.push.let_go();
    })
}

#[tokio::test(start_paused = true)]
async fn real_calls_take_no_paused_time_and_do_not_time_out() {
    let (spy, queue) = elsewhere(Duration::from_secs(30));
    for _ in 0..3 {
        let server = answer_in(Duration::from_millis(20), &spy);
        takes(Duration::ZERO, queue.push("p", MessageData::new("x"))).await.unwrap();
        server.join().unwrap();
    }
    // A slow one does not time out either.
    let server = answer_in(Duration::from_millis(500), &spy);
    queue.push("p", MessageData::new("x")).await.unwrap();
    server.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn real_calls_without_an_answer_time_out_in_real_time() {
    let timeout = Duration::from_millis(300);
    let (spy, queue) = elsewhere(timeout);
    spy.push.hold();
    let begun = Instant::now();
    let error = queue.push("p", MessageData::new("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(begun.elapsed() >= timeout);
}
