//! Waiting pulls: what wakes them, here and across handles on one file.

use std::time::{Duration, Instant};

use crate::common::*;
use anyqueue::PartitionId;
use anyqueue::adapter::{
    Action, PauseQueueStorage, PullQueueStorage, PullRequest, QueueStorage, RawDelivery,
};
use anyqueue_sqlite::SqliteQueue;
use tokio::task::JoinHandle;

fn waiter(queue: &SqliteQueue, partition: &PartitionId, wait: Duration) -> JoinHandle<Vec<RawDelivery>> {
    let (queue, partition) = (queue.clone(), partition.clone());
    tokio::spawn(async move { queue.pull(&partition, PullRequest::new(1, wait, LEASE)).await.unwrap() })
}

/// Lets the waiters find nothing and wait.
async fn settled(queue: &SqliteQueue) {
    for _ in 0..3 {
        pull(queue, &part("elsewhere"), 1).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_push_of_this_handle_and_of_another_wakes_within_the_declared_latency() {
    let bed = Bed::new().await;
    let other = bed.other().await;
    let p = part("p");
    for pusher in [&bed.queue, &other] {
        let waiting = waiter(&bed.queue, &p, SOON);
        settled(&bed.queue).await;
        push_text(pusher, &p, &["m"]).await;
        let pushed = Instant::now();
        let got = waiting.await.unwrap();
        // Generous: the machine may be busy. Without a wake-up the pull would last ten seconds.
        assert!(pushed.elapsed() < Duration::from_secs(8), "{:?}", pushed.elapsed());
        assert_eq!(texts(&got), ["m"]);
        settle(&bed.queue, &got[0].lease, Action::Remove).await;
    }
}

#[tokio::test]
async fn the_first_push_ever_to_a_partition_wakes_other_handles() {
    let bed = Bed::new().await;
    let other = bed.other().await;
    let waiting = waiter(&other, &part("new"), SOON);
    settled(&other).await;
    push_text(&bed.queue, &part("new"), &["m"]).await;
    assert_eq!(waiting.await.unwrap().len(), 1);
}

#[tokio::test]
async fn n_pushes_wake_n_waiters_and_no_two_get_the_same() {
    let bed = Bed::new().await;
    let p = part("p");
    let waiting: Vec<_> = (0..50).map(|_| waiter(&bed.queue, &p, SOON)).collect();
    settled(&bed.queue).await;
    let started = Instant::now();
    push_text(&bed.queue, &p, &(0..25).map(|_| "m").collect::<Vec<_>>()).await;
    for _ in 0..25 {
        push_text(&bed.queue, &p, &["m"]).await;
    }
    let mut ids = std::collections::HashSet::new();
    for waiting in waiting {
        ids.insert(waiting.await.unwrap()[0].lease.id);
    }
    assert_eq!(ids.len(), 50);
    assert!(started.elapsed() < SOON / 2);
}

#[tokio::test]
async fn a_delay_and_the_end_of_another_handles_lease_wake() {
    let bed = Bed::new().await;
    let other = bed.other().await;
    let p = part("p");
    push(&bed.queue, &p, &[message("delayed").with_delay(Duration::from_millis(150))]).await;
    assert_eq!(texts(&pull_wait(&bed.queue, &p, 1).await), ["delayed"]);
    push_text(&bed.queue, &p, &["leased"]).await;
    let lease = Duration::from_millis(150);
    assert_eq!(other.pull(&p, PullRequest::new(1, Duration::ZERO, lease)).await.unwrap().len(), 1);
    let started = Instant::now();
    assert_eq!(texts(&pull_wait(&bed.queue, &p, 1).await), ["leased"]);
    assert!(started.elapsed() < SOON / 2);
}

#[tokio::test]
async fn an_earlier_delay_that_comes_later_wakes_earlier() {
    let bed = Bed::new().await;
    let p = part("p");
    push(&bed.queue, &p, &[message("far").with_delay(Duration::from_mins(1))]).await;
    let waiting = waiter(&bed.queue, &p, SOON);
    settled(&bed.queue).await;
    push(&bed.queue, &p, &[message("near").with_delay(Duration::from_millis(100))]).await;
    let started = Instant::now();
    assert_eq!(texts(&waiting.await.unwrap()), ["near"]);
    assert!(started.elapsed() < SOON / 2);
}

#[tokio::test]
async fn releases_wake_and_a_resumed_partition_wakes_all() {
    let bed = Bed::new().await;
    let other = bed.other().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["a", "b"]).await;
    let held = pull(&bed.queue, &p, 1).await;
    bed.queue.set_paused(&p, true).await.unwrap();
    assert!(other.is_paused(&p).await.unwrap());
    assert!(pull(&other, &p, 1).await.is_empty(), "the other handle sees the pause");
    let waiting = [waiter(&bed.queue, &p, SOON), waiter(&other, &p, SOON)];
    settled(&bed.queue).await;
    settle(&bed.queue, &held[0].lease, Action::Release).await;
    push_text(&bed.queue, &p, &["c"]).await;
    settled(&bed.queue).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    other.set_paused(&p, false).await.unwrap();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_wait_ends_in_time_and_at_stop() {
    let bed = Bed::new().await;
    let started = Instant::now();
    let wait = Duration::from_millis(200);
    assert!(bed.queue.pull(&part("p"), PullRequest::new(1, wait, LEASE)).await.unwrap().is_empty());
    assert!((wait..SOON).contains(&started.elapsed()));
    let request = PullRequest::new(1, SOON, LEASE);
    let stop = request.stop.clone();
    let (queue, p) = (bed.queue.clone(), part("p"));
    let waiting = tokio::spawn(async move { queue.pull(&p, request).await });
    settled(&bed.queue).await;
    stop.cancel();
    assert!(waiting.await.unwrap().unwrap().is_empty());
    assert!(started.elapsed() < SOON / 2);
}

#[tokio::test]
async fn a_dropped_waiter_eats_no_push() {
    let bed = Bed::new().await;
    let p = part("p");
    for _ in 0..20 {
        let dropped = waiter(&bed.queue, &p, SOON);
        let waiting = waiter(&bed.queue, &p, SOON);
        settled(&bed.queue).await;
        push_text(&bed.queue, &p, &["m"]).await;
        dropped.abort();
        let started = Instant::now();
        let got = match dropped.await {
            Ok(got) => {
                waiting.abort();
                got
            }
            Err(_) => waiting.await.unwrap(),
        };
        assert!(started.elapsed() < SOON / 2);
        settle(&bed.queue, &got[0].lease, Action::Remove).await;
    }
}

#[tokio::test]
async fn what_a_dropped_pull_claimed_comes_back_at_once() {
    let bed = Bed::new().await;
    let p = part("p");
    for round in 0..50 {
        push_text(&bed.queue, &p, &["m"]).await;
        let claiming = waiter(&bed.queue, &p, Duration::ZERO);
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        claiming.abort();
        let got = match claiming.await {
            Ok(got) => got,
            Err(_) => pull_wait(&bed.queue, &p, 1).await,
        };
        assert_eq!(got.len(), 1, "round {round}: it would else come back after {LEASE:?}");
        settle(&bed.queue, &got[0].lease, Action::Remove).await;
    }
}

#[tokio::test]
async fn close_ends_waits() {
    let bed = Bed::new().await;
    let waiting = waiter(&bed.queue, &part("p"), SOON);
    settled(&bed.queue).await;
    let started = Instant::now();
    bed.queue.close().await.unwrap();
    assert!(waiting.await.unwrap().is_empty());
    assert!(started.elapsed() < SOON / 2);
}
