//! Messages that cannot be read: what is damaged dies, what a newer release wrote is left to newer consumers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at anything")]

mod support;

use anyqueue::Page;
use std::time::Duration;

use anyqueue::*;
use anyqueue_memory::MemoryQueue;
use support::{Shared, Spy};

const PAUSE: Duration = Duration::from_secs(5);

fn unreadable(spy: &Shared, kind: ErrorKind) {
    *spy.unreadable.lock().unwrap() = Some(Error::new(kind, "it does not parse"));
}

#[tokio::test]
async fn a_damaged_message_goes_to_the_dead_letters_at_once_and_can_be_put_back_as_it_is() {
    let spy = support::spy();
    let queue = Queue::new(spy.clone()).unwrap();
    queue.push("p", MessageData::new("stored").with_header("kept", "yes")).await.unwrap();
    unreadable(&spy, ErrorKind::Corrupt);
    assert!(queue.pull("p").await.unwrap().is_empty(), "a handler got it");
    let dead = queue.dead_letters("p").unwrap();
    support::eventually("the move", || spy.settlements() > 0).await;
    let letters = dead.list(Page::of(10)).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].reason.as_deref(), Some("cannot be read: it does not parse"));
    assert_eq!(letters[0].deliveries, Some(1));

    // A release that can read it, say.
    *spy.unreadable.lock().unwrap() = None;
    assert_eq!(dead.redrive().await.unwrap().moved, 1);
    let back = queue.pull("p").await.unwrap().remove(0);
    assert_eq!((back.payload(), back.headers()["kept"].as_str()), (&b"stored"[..], "yes"));
}

#[tokio::test]
async fn a_message_of_a_newer_release_is_left_to_newer_consumers_and_not_counted() {
    let clock = ManualClock::new();
    let spy = support::spy_on(&clock);
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).build().unwrap();
    queue.push("p", MessageData::new("new")).await.unwrap();
    unreadable(&spy, ErrorKind::Incompatible);
    for round in 1..=3 {
        assert!(queue.pull("p").await.unwrap().is_empty(), "a handler got it");
        support::eventually("the postponement", || spy.settlements() == round).await;
        assert!(queue.pull("p").await.unwrap().is_empty(), "taken again at once");
        assert_eq!(spy.settlements(), round);
        clock.advance(PAUSE);
    }
    *spy.unreadable.lock().unwrap() = None;
    let held = queue.pull("p").await.unwrap().remove(0);
    assert_eq!((held.payload(), held.delivery_count()), (&b"new"[..], Some(1)));
    assert_eq!(queue.counts("p").await.unwrap().dead, Some(0));
}

#[tokio::test]
async fn a_message_of_a_newer_release_that_cannot_be_postponed_is_left_to_its_leases_end() {
    let mut inner = Spy::new(MemoryQueue::new());
    inner.capabilities.postpone_delay = None;
    let spy = Shared(std::sync::Arc::new(inner));
    let queue = Queue::new(spy.clone()).unwrap();
    queue.push("p", MessageData::new("new")).await.unwrap();
    unreadable(&spy, ErrorKind::Incompatible);
    assert!(queue.pull("p").await.unwrap().is_empty());
    assert!(queue.pull("p").await.unwrap().is_empty());
    assert_eq!((spy.settlements(), queue.counts("p").await.unwrap().leased), (0, Some(1)));
}
