//! Control entries that many change at once: one wins, nobody is locked out, and pages stay whole.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::ControlStorage;
use anyqueue::control::{Applied, Change, Expect, MAX_CONTROL_CHANGES};
use anyqueue_postgres::PostgresQueue;
use sqlx::Connection;
use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;

use crate::common::{Bed, SOON, run};
use crate::control::{apply, expire, get, key, put, rows, walk};
use crate::locks::until_locked;

const HANDLES: usize = 4;
const TASKS: usize = 16;

/// Has many tasks over several handles make this change at once. Returns how many of them were made.
async fn race(handles: &[PostgresQueue], change: impl Fn(usize) -> Change) -> usize {
    let start = Arc::new(Barrier::new(TASKS));
    let racers: Vec<_> = (0..TASKS)
        .zip(handles.iter().cycle())
        .map(|(n, queue)| {
            let (queue, start, change) = (queue.clone(), Arc::clone(&start), change(n));
            tokio::spawn(async move {
                start.wait().await;
                apply(&queue, change).await.is_done()
            })
        })
        .collect();
    let mut won = 0;
    for racer in racers {
        won += usize::from(racer.await.unwrap());
    }
    won
}

async fn open_some(bed: &Bed) -> Vec<PostgresQueue> {
    let mut handles = Vec::new();
    for _ in 0..HANDLES {
        handles.push(bed.open().await);
    }
    handles
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_that_race_for_one_entry_one_wins() {
    let Some(bed) = Bed::find().await else { return };
    let handles = open_some(&bed).await;
    for _ in 0..10 {
        // Where nothing is, where something has expired, and where something is.
        let absent = |n: usize| Change::put(key("k"), Expect::Absent, n.to_string());
        assert_eq!(race(&handles, absent).await, 1);
        expire(&bed).await;
        assert_eq!(race(&handles, absent).await, 1);
        let version = get(&handles[0], "k").await.unwrap().version;
        assert_eq!(race(&handles, |_| Change::put(key("k"), Expect::Version(version), "new")).await, 1);
        let version = get(&handles[0], "k").await.unwrap().version;
        assert_eq!(race(&handles, |_| Change::delete(key("k"), Expect::Version(version))).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_of_many_that_count_up_one_entry_is_counted() {
    const ROUNDS: usize = 20;
    let Some(bed) = Bed::find().await else { return };
    let handles = open_some(&bed).await;
    let count_up = |queue: PostgresQueue| async move {
        for _ in 0..ROUNDS {
            let mut there = get(&queue, "count").await;
            loop {
                let count = there
                    .as_ref()
                    .map_or(0, |entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap());
                let expect = there.map_or(Expect::Absent, |entry| Expect::Version(entry.version));
                match apply(&queue, Change::put(key("count"), expect, (count + 1_u32).to_string())).await {
                    Applied::Done => break,
                    Applied::Conflict(entry) => there = entry,
                }
            }
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|n| tokio::spawn(count_up(handles[n % HANDLES].clone()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(get(&handles[0], "count").await.unwrap().value, (TASKS * ROUNDS).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_change_the_same_entries_in_any_order_lock_nobody_out() {
    let Some(bed) = Bed::find().await else { return };
    let handles = open_some(&bed).await;
    let cross = |n: usize, queue: PostgresQueue| async move {
        for round in 0..15 {
            // Each in another order, and each with entries that expire at once and are freed by the others.
            let change = |i: usize| {
                let name = key(&format!("k{}", (i * (2 * n + 1) + round) % MAX_CONTROL_CHANGES));
                match i % 3 {
                    0 => Change::delete(name, Expect::Any),
                    1 => Change::put(name, Expect::Any, "x").with_ttl(Duration::from_millis(1)),
                    _ => Change::put(name, Expect::Absent, "x"),
                }
            };
            let changes: Vec<_> = (0..MAX_CONTROL_CHANGES).map(change).collect();
            assert_eq!(queue.apply(&changes).await.unwrap().value.len(), MAX_CONTROL_CHANGES);
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|n| tokio::spawn(cross(n, handles[n % HANDLES].clone()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn the_place_of_what_somebody_is_just_freeing_can_be_taken() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    for is_freed in [true, false] {
        put(&queue, "k").await;
        expire(&bed).await;
        let mut conn = bed.connect().await;
        let mut tx = conn.begin().await.unwrap();
        run(&mut tx, format!("DELETE FROM {}.control_entry WHERE expires_at = 1000", bed.schema)).await;
        let taking = tokio::spawn({
            let queue = queue.clone();
            async move { apply(&queue, Change::put(key("k"), Expect::Absent, "new")).await }
        });
        until_locked(&bed, 1).await;
        if is_freed {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(taking.await.unwrap(), Applied::Done);
        assert_eq!(get(&queue, "k").await.unwrap().value, "new");
    }
}

#[tokio::test]
async fn what_has_expired_and_is_locked_holds_up_no_call() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    put(&queue, "locked").await;
    expire(&bed).await;
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {}.control_entry FOR UPDATE", bed.schema)).await;
    tokio::time::timeout(SOON, put(&queue, "other")).await.unwrap();
    assert_eq!(rows(&bed).await, 2);
    tx.rollback().await.unwrap();
    put(&queue, "other").await;
    assert_eq!(rows(&bed).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_walk_over_all_pages_has_what_stays_exactly_once_while_others_come_and_go() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (bed.open().await, bed.open().await);
    let stays: Vec<_> = (0..300).step_by(2).map(|n| format!("w/{n:03}")).collect();
    for run in stays.chunks(MAX_CONTROL_CHANGES) {
        let changes: Vec<_> = run.iter().map(|name| Change::put(key(name), Expect::Absent, "")).collect();
        queue.apply(&changes).await.unwrap();
    }
    let stop = CancellationToken::new();
    let writing = tokio::spawn({
        let stop = stop.clone();
        async move {
            let mut n = 0;
            while !stop.is_cancelled() {
                n = (n + 37) % 150;
                let comes = key(&format!("w/{:03}", n * 2 + 1));
                let change = if n % 2 == 0 {
                    Change::put(comes, Expect::Any, "")
                } else {
                    Change::delete(comes, Expect::Any)
                };
                put(&other, &format!("w/{:03}", n * 2)).await;
                assert!(apply(&other, change).await.is_done());
            }
        }
    });
    for _ in 0..20 {
        let mut seen = walk(&queue, "w/", 7).await;
        assert!(seen.is_sorted());
        seen.retain(|name| stays.contains(name));
        assert_eq!(seen, stays);
    }
    stop.cancel();
    writing.await.unwrap();
}
