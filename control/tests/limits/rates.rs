//! Rates: starts that the store grants.

use std::time::Duration;

use anyqueue_control::limits::Limit;
use anyqueue_worker::Permits;

use crate::bed::{Bed, Process, mail, millis, secs};

fn rate(per_second: f64, burst: u64) -> Limit {
    Limit::partition("mail").unwrap().rate(per_second, burst)
}

/// Pulls and starts as many as may start now.
async fn start_all(bed: &Bed, process: &Process) -> usize {
    let mut started = 0;
    loop {
        let pulled = process.take(100);
        let mut unstarted = pulled;
        while unstarted > 0 {
            if !process.permits.can_start(&mail(), unstarted) {
                bed.turns().await;
                if !process.permits.can_start(&mail(), unstarted) {
                    break;
                }
            }
            process.start().unwrap();
            unstarted -= 1;
        }
        process.release(unstarted);
        process.end(pulled - unstarted);
        started += pulled - unstarted;
        if pulled == unstarted {
            return started;
        }
    }
}

#[tokio::test]
async fn after_a_burst_processes_together_start_no_faster_than_the_rate() {
    for (per_second, burst) in [(10.0, 3), (200.0, 20), (0.5, 1)] {
        let bed = Bed::new();
        bed.limits.put("l", &rate(per_second, burst)).await.unwrap();
        let processes = [bed.process("a").await, bed.process("b").await];
        let (mut started, step) = (Vec::new(), millis(50));
        let mut now = Duration::ZERO;
        for turn in 0..200 {
            let process = &processes[turn % 2];
            started.push((now, start_all(&bed, process).await));
            bed.pass(step).await;
            now += step;
        }
        for (place, (from, _)) in started.iter().enumerate() {
            let mut sum = 0;
            for (at, count) in &started[place..] {
                sum += count;
                let most = burst as f64 + per_second * at.checked_sub(*from).unwrap().as_secs_f64();
                assert!(sum as f64 <= most + 1e-6, "{sum} of {most}, {per_second}/s");
            }
        }
        let all: usize = started.iter().map(|(_, count)| count).sum();
        let most = burst as f64 + per_second * now.as_secs_f64();
        assert!(all as f64 >= most * 0.8 - 2.0, "{all} of {most}, {per_second}/s");
    }
}

#[tokio::test]
async fn while_a_rate_is_used_up_nothing_is_pulled_and_then_the_worker_is_woken() {
    let bed = Bed::new();
    bed.limits.put("l", &rate(0.1, 1)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(start_all(&bed, &a).await, 1);
    assert_eq!(a.permits.room(&mail(), 5), Some(0));
    bed.turns().await;
    // What was told until now.
    while futures_util::FutureExt::now_or_never(a.permits.changed()).is_some() {}
    a.permits.room(&mail(), 5);
    let woken = tokio::spawn({
        let permits = a.permits.clone();
        async move { permits.changed().await }
    });
    let mut waited = Duration::ZERO;
    while a.permits.room(&mail(), 5) == Some(0) {
        bed.pass(millis(250)).await;
        waited += millis(250);
    }
    assert!((secs(9)..=millis(10_250)).contains(&waited), "{waited:?}");
    bed.turns().await;
    assert!(woken.is_finished());
}

#[tokio::test]
async fn what_was_granted_and_not_used_at_once_is_forgone() {
    let bed = Bed::new();
    bed.limits.put("l", &rate(1.0, 1)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.take(1), 1);
    assert!(!a.permits.can_start(&mail(), 1), "nothing was granted yet");
    bed.turns().await;
    assert!(a.permits.can_start(&mail(), 1));
    bed.pass(millis(250)).await;
    assert!(!a.permits.can_start(&mail(), 1));
    assert!(a.start().is_none(), "it is too late");
    bed.pass(secs(1)).await;
    a.permits.can_start(&mail(), 1);
    bed.turns().await;
    assert!(a.start().is_some());
}

#[tokio::test]
async fn a_cap_and_a_rate_of_one_limit_both_hold() {
    let bed = Bed::new();
    bed.limits.put("l", &rate(100.0, 5).cap(2)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 9).await, 2);
    a.release(2);
    bed.limits.put("l", &rate(0.1, 1).cap(2)).await.unwrap();
    bed.pass(secs(6)).await;
    assert_eq!(a.get(&bed, 9).await, 1);
}

#[tokio::test]
async fn who_waits_for_permits_of_a_cap_starts_as_the_rate_allows_with_those_that_it_has() {
    let bed = Bed::new();
    bed.limits.put("l", &rate(20.0, 1).cap(2)).await.unwrap();
    let processes = [bed.process("a").await, bed.process("b").await];
    let mut started = 0;
    for _ in 0..200 {
        for process in &processes {
            process.permits.room(&mail(), 9);
            started += start_all(&bed, process).await;
        }
        bed.pass(millis(50)).await;
    }
    assert!((150..=201).contains(&started), "{started} started in 10 s");
}
