//! Redrives beside consumers that let everything die again.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::*;
use support::{Shared, spy};
use tokio::task::JoinHandle;

/// Takes what there is and lets it die; for each, so many others are pushed, to die as well.
fn killer(spy: &Shared, others: usize) -> JoinHandle<()> {
    let queue = Queue::new(spy.memory.client()).unwrap();
    tokio::spawn(async move {
        loop {
            let mut held = queue.pull("p").max(1000).wait(Duration::from_mins(1)).await.unwrap();
            let more = (0..others * held.len()).map(|_| MessageData::new("other")).collect();
            let all = held.iter_mut().map(|one| (one, QueueMessageStatus::poisonous("again")));
            queue.settle_many(all).await;
            queue.push_many("p", more).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await; // lets others work: memory never makes anybody wait
        }
    })
}

async fn dead(count: usize) -> (Shared, Queue) {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    queue.push_many("p", (0..count).map(|n| MessageData::new(format!("{n}"))).collect()).await.unwrap();
    let mut held = queue.pull("p").max(count).await.unwrap();
    let all = held.iter_mut().map(|one| (one, QueueMessageStatus::poisonous("first")));
    assert_eq!(queue.settle_many(all).await.len(), count);
    drop(held);
    // Each look of the redrive gives the killer time for all that was put back before.
    spy.pull.takes(Duration::from_millis(20));
    (spy, queue)
}

async fn ended(redrive: Redrive) -> Redriven {
    tokio::time::timeout(Duration::from_secs(30), redrive).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_redrive_puts_each_back_once_though_all_die_again() {
    const DEAD: usize = 2500;
    let (spy, queue) = dead(DEAD).await;
    let letters = queue.dead_letters("p").unwrap();
    for _ in 0..2 {
        let killer = killer(&spy, 0);
        let pages = Arc::new(Mutex::new(Vec::new()));
        let told = pages.clone();
        let done =
            ended(letters.redrive().progress(move |so_far| told.lock().unwrap().push(so_far.moved))).await;
        assert_eq!((done.moved, done.scanned, done.more), (DEAD as u64, DEAD as u64, false));
        let pages = pages.lock().unwrap().clone();
        assert!(pages.len() >= 3 && pages[0] == 1000 && pages.is_sorted(), "{pages:?}");
        while queue.counts("p").await.unwrap().dead != Some(DEAD as u64) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        killer.abort();
    }
    // The next one, of the same moment too, puts back what this one left dead.
    assert_eq!(ended(letters.redrive()).await.moved, DEAD as u64);
}

#[tokio::test]
async fn a_redrive_ends_though_others_die_without_end() {
    let (spy, queue) = dead(10).await;
    queue.push_many("p", (0..500).map(|_| MessageData::new("other")).collect()).await.unwrap();
    let killer = killer(&spy, 1);
    let done = ended(queue.dead_letters("p").unwrap().redrive()).await;
    killer.abort();
    assert!(done.more && done.moved >= 10, "{done:?}");
}

#[tokio::test]
async fn a_filter_and_a_limit_hold_beside_a_consumer_that_kills() {
    let (spy, queue) = dead(2500).await;
    let letters = queue.dead_letters("p").unwrap();
    let killer = killer(&spy, 0);
    let even = |message: &MessageData| message.payload().last().is_some_and(|digit| digit % 2 == 0);
    let done = ended(letters.redrive().filter(even)).await;
    assert_eq!((done.moved, done.scanned, done.more), (1250, 2500, false));
    let done = ended(letters.redrive().limit(1500)).await;
    assert_eq!((done.moved, done.more), (1500, true));
    killer.abort();
}
