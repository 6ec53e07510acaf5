//! A node that is cut at each of its calls, one after the other, while another one goes on: each time is run once.

use std::time::Duration;

use anyqueue_control::cron::{Running, Scheduler};

use crate::bed::{Bed, MINUTE, Node, SECOND, minutes, schedule, timetable};
use crate::cut::{ALL, Cut, How};

/// How many of its first calls a node is cut at: the work on two ticks, and looks at the entries.
const CALLS: usize = 16;
/// No shorter than needed: a lease lasts 10 s.
const STEP: Duration = Duration::from_secs(5);
/// How many calls a put makes at least: the entry, its change, the tick, the note, and a look at what came of it.
const CALLS_OF_PUT: usize = 5;

#[tokio::test]
async fn a_node_that_is_cut_at_any_call_neither_loses_nor_doubles_a_time() {
    for how in ALL {
        for at in 0..CALLS {
            is_once_with_a_cut(at, how).await;
        }
    }
}

async fn is_once_with_a_cut(at: usize, how: How) {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("* * * * *").with_running(Running::Allow)).await.unwrap();
    let cut = Cut::at(&bed.memory, at, how);
    let node = Node::start(Scheduler::new(&bed.queue_over(cut.clone())).unwrap());
    // Alone, so that it is the one that works on the ticks.
    let mut done = bed.work_in(STEP, 2 * MINUTE + 5 * SECOND).await;
    let other = bed.node();
    done.extend(bed.work_in(STEP, 45 * SECOND).await);
    cut.thaw();
    done.extend(bed.work_in(STEP, 80 * SECOND).await);
    assert!(!cut.is_frozen());
    // A node that was alone and dead for minutes makes up for the latest.
    let expected = minutes(1..=4);
    let missed: Vec<_> = expected.iter().filter(|due| !done.contains(due)).collect();
    let is_cut_off = matches!(how, How::DiesBefore | How::DiesAfter | How::Freezes);
    assert!(missed.len() <= usize::from(is_cut_off), "{how:?} at {at}: {done:?}");
    assert!(missed.iter().all(|due| **due < 120), "{how:?} at {at}: {done:?}");
    let mut once = done.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once, done, "{how:?} at {at}: each once, in order");
    assert!(cut.has_met_it(), "{how:?} at {at}");
    node.kill().await;
    other.stop().await;
}

#[tokio::test]
async fn a_put_that_is_cut_at_any_call_can_be_made_again_and_each_time_is_run_once() {
    for how in ALL {
        let mut cuts = 0;
        while is_once_with_a_cut_put(cuts, how).await {
            cuts += 1;
        }
        assert!((CALLS_OF_PUT..CALLS).contains(&cuts), "{how:?}: it was cut {cuts} times");
    }
}

async fn is_once_with_a_cut_put(at: usize, how: How) -> bool {
    let bed = Bed::new();
    let before = schedule("* * * * *").with_running(Running::Allow);
    bed.scheduler.put(&before).await.unwrap();
    let node = bed.node();
    let mut done = bed.work_in(STEP, MINUTE + 30 * SECOND).await;
    let cut = Cut::at(&bed.memory, at, how);
    let scheduler = Scheduler::new(&bed.queue_over(cut.clone())).unwrap();
    let after = before.with_payload("another");
    let put = after.clone();
    let putting = tokio::spawn(async move { scheduler.put(&put).await });
    // What it left half done is completed by the node.
    done.extend(bed.work_in(STEP, MINUTE).await);
    assert!(bed.scheduler.put(&after).await.is_ok());
    done.extend(bed.work_in(STEP, MINUTE).await);
    cut.thaw();
    done.extend(bed.work_in(STEP, MINUTE).await);
    assert_eq!(done, minutes(1..=4), "{how:?} at {at}");
    assert_eq!(bed.scheduler.get("a").await.unwrap().unwrap().schedule, after);
    putting.abort();
    node.stop().await;
    cut.has_met_it()
}

#[tokio::test]
async fn a_node_that_looks_after_lost_ticks_can_be_cut_at_any_call() {
    for how in ALL {
        for at in 0..CALLS / 2 {
            let bed = Bed::new();
            bed.scheduler.put(&schedule("* * * * *").with_running(Running::Allow)).await.unwrap();
            assert_eq!(bed.queue.purge(anyqueue_control::cron::TICKS).await.unwrap(), 1);
            let cut = Cut::at(&bed.memory, at, how);
            let node = Node::start(Scheduler::new(&bed.queue_over(cut.clone())).unwrap());
            let mut done = bed.work_in(STEP, MINUTE + 5 * SECOND).await;
            let other = bed.node();
            done.extend(bed.work_in(STEP, 50 * SECOND).await);
            cut.thaw();
            done.extend(bed.work_in(STEP, 70 * SECOND).await);
            assert!(done.ends_with(&minutes(3..=3)), "{how:?} at {at}: {done:?}");
            assert!(done.is_sorted_by(|a, b| a < b), "{how:?} at {at}: {done:?}");
            node.kill().await;
            other.stop().await;
            assert!(cut.has_met_it(), "{how:?} at {at}");
        }
    }
}

#[tokio::test]
async fn a_schedule_that_is_put_with_another_spec_runs_by_that_one_alone() {
    let bed = Bed::new();
    let node = bed.node();
    bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
    let mut done = bed.work_in(STEP, 2 * MINUTE + 30 * SECOND).await;
    let mut hourly = schedule("* * * * *");
    hourly.timetable = timetable("*/5 * * * *");
    bed.scheduler.put(&hourly).await.unwrap();
    done.extend(bed.work_in(STEP, 10 * MINUTE).await);
    assert_eq!(done, [60, 120, 300, 600]);
    let ticks = bed.queue.counts(anyqueue_control::cron::TICKS).await.unwrap();
    assert_eq!((ticks.ready, ticks.delayed), (Some(0), Some(1)), "the earlier tick is gone");
    node.stop().await;
}
