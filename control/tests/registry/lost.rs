//! Workers that are silent.

use std::time::Duration;

use anyqueue::ErrorKind;
use anyqueue::control::{Applied, Change, Expect, Key};
use anyqueue_control::registry::{MemberOptions, Order, Registry};

use crate::bed::{Bed, killed};

const VALID: Duration = Duration::from_secs(15);

#[tokio::test]
async fn of_many_sweeps_one_names_what_a_silent_worker_held() {
    let bed = Bed::new();
    let id = killed(&bed).await;
    assert!(bed.registry.sweep().await.unwrap().is_empty(), "its last beat still counts");
    bed.pass(VALID).await;
    assert!(bed.registry.list().await.unwrap().workers[0].is_lost(bed.time.clock().wall()));

    let sweeps: Vec<_> = (0..10)
        .map(|_| {
            let registry = Registry::new(bed.queue.control().unwrap());
            tokio::spawn(async move { registry.sweep().await.unwrap() })
        })
        .collect();
    let mut lost = Vec::new();
    for sweep in sweeps {
        lost.extend(sweep.await.unwrap());
    }
    assert_eq!(lost.iter().map(|it| (&*it.name, &*it.held[0].id)).collect::<Vec<_>>(), [("dead", &*id)]);
    assert!(bed.names().await.is_empty());
    assert_eq!(bed.registry.lost().await.unwrap(), lost);
    bed.pass(Duration::from_hours(1)).await;
    assert!(bed.registry.lost().await.unwrap().is_empty(), "it is told for an hour");
}

#[tokio::test]
async fn living_workers_notice_the_dead_by_themselves() {
    let bed = Bed::new();
    let id = killed(&bed).await;
    let (worker, running) = bed.start("alive").await;
    bed.until("the dead one is noticed", async || !bed.registry.lost().await.unwrap().is_empty()).await;
    assert_eq!(bed.registry.lost().await.unwrap()[0].held[0].id, id);
    assert_eq!(bed.names().await, ["alive"]);
    worker.shutdown_now();
    bed.until("it ends", async || running.is_finished()).await;
}

#[tokio::test]
async fn a_living_worker_notices_a_dead_one_within_a_beat_of_its_time() {
    // When it looks is a matter of chance.
    for _ in 0..16 {
        let bed = Bed::new();
        let (worker, running) = bed.start("alive").await;
        worker.set_quiet(true);
        bed.pass(Duration::from_mins(1)).await;
        killed(&bed).await;
        bed.pass(VALID + Duration::from_secs(6)).await;
        assert_eq!(bed.registry.lost().await.unwrap().len(), 1);
        worker.shutdown_now();
        bed.until("it ends", async || running.is_finished()).await;
    }
}

#[tokio::test]
async fn a_living_worker_notices_all_of_very_many_dead() {
    const DEAD: usize = 250;
    let bed = Bed::new();
    killed(&bed).await;
    let store = bed.queue.control().unwrap();
    let entry = store.get(&Key::new("worker/dead").unwrap()).await.unwrap().value.unwrap();
    for number in 1..DEAD {
        let key = Key::new(format!("worker/dead-{number}")).unwrap();
        let copy = Change::put(key, Expect::Absent, entry.value.clone()).with_ttl(Duration::from_mins(5));
        assert_eq!(store.apply(copy).await.unwrap().value, Applied::Done);
    }
    let too_long = Key::new(format!("worker/{}", "a".repeat(500))).unwrap();
    let stray = Change::put(too_long, Expect::Absent, entry.value).with_ttl(Duration::from_mins(5));
    assert_eq!(store.apply(stray).await.unwrap().value, Applied::Done);
    let (worker, running) = bed.start("alive").await;
    bed.until("all are noticed", async || bed.registry.lost().await.unwrap().len() == DEAD).await;
    worker.shutdown_now();
    bed.until("it ends", async || running.is_finished()).await;
}

#[tokio::test]
async fn an_order_is_no_sign_of_life() {
    let bed = Bed::new();
    killed(&bed).await;
    bed.pass(Duration::from_secs(10)).await;
    let seen = bed.info("dead").await.unwrap().seen_at;
    assert!(bed.registry.order("dead", Order::Stop).await.unwrap());
    assert_eq!(bed.info("dead").await.unwrap().seen_at, seen);
    bed.pass(Duration::from_secs(5)).await;
    assert_eq!(bed.registry.sweep().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_worker_that_was_taken_for_dead_registers_anew_when_it_wakes() {
    let bed = Bed::new();
    let (worker, running) = bed.start("frozen").await;
    assert!(bed.registry.forget("frozen").await.unwrap());
    assert!(bed.names().await.is_empty());
    bed.until("it is back", async || !bed.names().await.is_empty()).await;
    worker.shutdown();
    bed.until("it ends", async || running.is_finished()).await;
    assert!(bed.names().await.is_empty());
}

#[tokio::test]
async fn a_name_is_taken_while_its_owner_lives() {
    let bed = Bed::new();
    killed(&bed).await;
    let second = bed.worker("dead");
    let refused = bed.registry.join(&second, MemberOptions::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    bed.pass(VALID).await;
    let running = bed.run(&second).await;
    assert_eq!(bed.registry.lost().await.unwrap().len(), 1, "its predecessor is told of all the same");
    second.shutdown_now();
    bed.until("it ends", async || running.is_finished()).await;
}

#[tokio::test]
async fn beats_must_count_for_longer_than_it_is_to_the_next() {
    let bed = Bed::new();
    let worker = bed.worker("a");
    let short = MemberOptions::default().with_every(VALID);
    let none = MemberOptions::default().with_every(Duration::ZERO);
    let long = MemberOptions::default().with_valid_for(Duration::MAX);
    for wrong in [short, none, long] {
        let refused = bed.registry.join(&worker, wrong).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}
