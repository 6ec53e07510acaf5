//! Several nodes at once.

use anyqueue::{PartitionId, QueueMessageStatus};
use anyqueue_control::cron::{Running, Schedule, Scheduler, TICKS};

use crate::bed::{Bed, HOUR, MINUTE, Node, SECOND, TASKS, counts, minutes, schedule, settle, timetable};
use crate::cut::{Cut, How};

#[tokio::test]
async fn three_nodes_run_each_time_of_many_schedules_once() {
    let bed = Bed::new();
    let nodes = [bed.node(), bed.node(), bed.node()];
    for name in 0..10 {
        let timetable = timetable("* * * * * *");
        let schedule = Schedule::new(format!("s{name}"), timetable, PartitionId::new(TASKS).unwrap());
        bed.scheduler.put(&schedule.with_running(Running::Allow)).await.unwrap();
    }
    let done = bed.work_for(60 * SECOND).await;
    let counts = counts(&done);
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), (1..=60).map(|due| (due, 10)).collect::<Vec<_>>());
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn many_put_the_same_schedule_when_they_start_and_it_is_one() {
    let bed = Bed::new();
    let node = bed.node();
    for round in 0..5 {
        let put = |_| {
            let scheduler = bed.scheduler.clone();
            tokio::spawn(async move { scheduler.put(&schedule("* * * * *")).await })
        };
        for put in (0..8).map(put).collect::<Vec<_>>() {
            put.await.unwrap().unwrap();
        }
        assert_eq!(bed.work_for(MINUTE).await, minutes(round + 1..=round + 1), "undisturbed");
        assert_eq!(bed.queue.counts(TICKS).await.unwrap().delayed, Some(1));
    }
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_is_frozen_with_a_tick_in_hand_does_nothing_when_it_wakes() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("* * * * *").with_running(Running::Allow)).await.unwrap();
    bed.pass(MINUTE).await;
    // Its first calls: a pull of the tick, a list, the next pull, the entry, the settlement.
    let cut = Cut::at(&bed.memory, 4, How::Freezes);
    let frozen = Node::start(Scheduler::new(&bed.queue_over(cut.clone())).unwrap());
    settle().await;
    assert!(cut.is_frozen());
    assert_eq!(bed.queue.counts(TICKS).await.unwrap().leased, Some(1), "it has the tick");
    let other = bed.node();
    let mut done = bed.work_for(2 * MINUTE).await;
    assert_eq!(done, minutes(1..=3), "the other one goes on");
    cut.thaw();
    done = bed.work_for(5 * MINUTE).await;
    assert_eq!(done, minutes(4..=8));
    frozen.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_schedule_that_is_deleted_while_its_tick_is_in_hand_comes_no_more() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
    bed.pass(MINUTE).await;
    let mut tick = bed.queue.pull(TICKS).await.unwrap().remove(0);
    assert!(bed.scheduler.delete("a").await.unwrap());
    tick.settle(QueueMessageStatus::Waiting).await.unwrap();
    let node = bed.node();
    assert!(bed.work_in(MINUTE, HOUR).await.is_empty());
    let ticks = bed.queue.counts(TICKS).await.unwrap();
    assert_eq!((ticks.ready, ticks.delayed, ticks.leased), (Some(0), Some(0), Some(0)));
    assert!(!bed.scheduler.delete("a").await.unwrap());
    bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
    assert_eq!(bed.work_for(MINUTE).await.len(), 1, "it can be put again");
    node.stop().await;
}

#[tokio::test]
async fn nodes_come_and_go_at_any_moment() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("*/2 * * * * *").with_running(Running::Allow)).await.unwrap();
    let mut done = Vec::new();
    let guard = bed.node();
    for round in 0..60_u32 {
        let node = bed.node();
        done.extend(bed.work_for(SECOND).await);
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        if round % 2 == 0 { node.kill().await } else { node.stop().await }
    }
    done.extend(bed.work_for(20 * SECOND).await);
    assert!(done.is_sorted_by(|a, b| a < b), "none twice: {done:?}");
    assert_eq!(done.last(), Some(&80));
    guard.stop().await;
}
