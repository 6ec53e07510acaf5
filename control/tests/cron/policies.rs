//! What becomes of times that are missed, late, or come while an earlier task lives.

use std::time::Duration;

use anyqueue::{QueueMessageStatus, TaskState};
use anyqueue_control::cron::{Missed, RunOutcome, Running, Schedule};

use crate::bed::{Bed, HOUR, MINUTE, SECOND, TASKS, minutes, schedule, settle};

#[tokio::test]
async fn a_schedule_is_run_at_each_of_its_times_by_the_second() {
    let bed = Bed::new();
    let full = schedule("* * * * *").with_payload("pay").with_kind("k").with_header("own", "1");
    let info = bed.scheduler.put(&full.with_priority(2)).await.unwrap();
    assert_eq!(
        info.next_at,
        info.schedule.timetable.next_after(info.next_at.unwrap() - SECOND).map(|it| it.at())
    );
    let node = bed.node();
    bed.pass(59 * SECOND).await;
    assert!(bed.done().await.is_empty());
    bed.pass(SECOND).await;
    let mut task = bed.queue.pull(TASKS).await.unwrap().remove(0);
    assert_eq!((task.payload(), task.task_id()), (&b"pay"[..], Some("cron/a")));
    assert_eq!(task.message().options().priority, 2);
    let header = |name: &str| task.headers()[name].clone();
    assert_eq!([header("task-kind"), header("own"), header("cron-name")], ["k", "1", "a"]);
    assert_eq!(header("cron-at"), "2026-01-01T00:01:00Z");
    let last = bed.scheduler.get("a").await.unwrap().unwrap().last.unwrap();
    assert_eq!((last.outcome, last.id), (RunOutcome::Pushed, Some(task.id())));
    task.settle(QueueMessageStatus::Processed).await.unwrap();
    assert_eq!(bed.work_for(3 * MINUTE).await, minutes(2..=4));
    node.stop().await;
}

/// What is run of an outage of ten and a half minutes, and of the minute after it.
async fn after_outage(schedule: &Schedule) -> Vec<u64> {
    let bed = Bed::new();
    bed.scheduler.put(schedule).await.unwrap();
    bed.pass(10 * MINUTE + 30 * SECOND).await;
    let node = bed.node();
    let done = bed.work_for(MINUTE).await;
    node.stop().await;
    done
}

#[tokio::test]
async fn of_times_that_nobody_ran_the_latest_is_run_or_all_or_none() {
    let minutely = schedule("* * * * *").with_running(Running::Allow);
    assert_eq!(after_outage(&minutely).await, minutes(10..=11));
    assert_eq!(after_outage(&minutely.clone().with_missed(Missed::All(3))).await, minutes(8..=11));
    assert_eq!(after_outage(&minutely.clone().with_missed(Missed::All(99))).await, minutes(1..=11));
    assert_eq!(after_outage(&minutely.with_missed(Missed::None)).await, minutes(10..=11), "in time");
    let early = schedule("2-4 * * * *");
    assert_eq!(after_outage(&early).await, minutes(4..=4));
    assert!(after_outage(&early.clone().with_missed(Missed::None)).await.is_empty());
    assert!(after_outage(&early.clone().with_deadline(6 * MINUTE)).await.is_empty());
    assert_eq!(after_outage(&early.with_deadline(7 * MINUTE)).await, minutes(4..=4));
}

#[tokio::test]
async fn what_is_too_late_is_told_and_what_waits_too_long_expires() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("0 * * * *").with_deadline(MINUTE)).await.unwrap();
    bed.pass(HOUR + 2 * MINUTE).await;
    let node = bed.node();
    bed.pass(SECOND).await;
    let last = bed.scheduler.get("a").await.unwrap().unwrap().last.unwrap();
    assert_eq!((last.outcome, last.id), (RunOutcome::Missed, None));
    bed.pass(58 * MINUTE).await;
    assert_eq!(bed.queue.counts(TASKS).await.unwrap().ready, Some(1));
    bed.pass(MINUTE).await;
    assert!(bed.done().await.is_empty(), "it waited for too long");
    node.stop().await;
}

#[tokio::test]
async fn a_time_that_comes_while_an_earlier_task_lives_is_left_out() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
    let node = bed.node();
    bed.pass(MINUTE).await;
    let mut first = bed.queue.pull(TASKS).await.unwrap().remove(0);
    let last = async || bed.scheduler.get("a").await.unwrap().unwrap().last.unwrap();
    for _ in 0..3 {
        bed.pass(MINUTE).await;
        assert!(bed.done().await.is_empty());
        assert_eq!(last().await.outcome, RunOutcome::Running);
    }
    first.settle(QueueMessageStatus::Processed).await.unwrap();
    assert_eq!(bed.work_for(2 * MINUTE).await, minutes(5..=6));
    assert_eq!(last().await.outcome, RunOutcome::Pushed);
    node.stop().await;
}

#[tokio::test]
async fn one_can_wait_behind_a_task_that_runs_and_any_number_if_they_may_run_at_once() {
    for (running, expected) in [(Running::BufferOne, minutes(2..=2)), (Running::Allow, minutes(2..=4))] {
        let bed = Bed::new();
        bed.scheduler.put(&schedule("* * * * *").with_running(running)).await.unwrap();
        let node = bed.node();
        bed.pass(MINUTE).await;
        let first = bed.queue.pull(TASKS).await.unwrap().remove(0);
        bed.pass(3 * MINUTE).await;
        assert_eq!(bed.queue.task(TASKS, first.id()).await.unwrap().unwrap().state, TaskState::Running);
        let behind: Vec<_> = bed.done().await.into_iter().map(|(due, _)| due).collect();
        assert_eq!(behind, expected, "{running:?}");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_paused_schedule_passes_its_times_and_counts_from_its_resumption() {
    for has_node in [true, false] {
        let bed = Bed::new();
        bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
        let mut node = bed.node();
        assert_eq!(bed.work_for(MINUTE).await, minutes(1..=1));
        assert!(bed.scheduler.pause("a").await.unwrap());
        if !has_node {
            node.stop().await;
            node = bed.node();
        }
        assert!(bed.work_for(3 * MINUTE).await.is_empty());
        let info = bed.scheduler.get("a").await.unwrap().unwrap();
        assert_eq!((info.is_paused, info.last.unwrap().outcome), (true, RunOutcome::Paused));
        if has_node {
            assert!(bed.scheduler.resume("a").await.unwrap());
            assert_eq!(bed.work_for(2 * MINUTE).await, minutes(5..=6));
        } else {
            node.stop().await;
            bed.pass(3 * MINUTE + SECOND).await;
            assert!(bed.scheduler.resume("a").await.unwrap());
            node = bed.node();
            assert_eq!(bed.work_for(MINUTE).await, minutes(8..=8), "none of those before");
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn what_is_run_by_hand_comes_at_once_also_of_a_paused_schedule() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("@yearly")).await.unwrap();
    bed.scheduler.pause("a").await.unwrap();
    let pushed = bed.scheduler.run_now("a").await.unwrap().unwrap();
    assert!(matches!(pushed, anyqueue::PushOutcome::Stored(_)));
    let again = bed.scheduler.run_now("a").await.unwrap().unwrap();
    assert!(matches!(again, anyqueue::PushOutcome::Duplicate(_)), "the earlier one lives: {again:?}");
    assert_eq!(bed.done().await.len(), 1);
    assert_eq!(bed.scheduler.run_now("b").await.unwrap(), None);
}

#[tokio::test]
async fn a_schedule_by_the_second_keeps_to_it() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("* * * * * *")).await.unwrap();
    let node = bed.node();
    settle().await;
    assert_eq!(bed.work_for(20 * SECOND).await, (1..=20).collect::<Vec<_>>());
    node.stop().await;
}

#[tokio::test]
async fn a_schedule_that_is_put_is_run_though_its_first_time_is_years_away() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("0 0 29 2 *")).await.unwrap();
    let node = bed.node();
    settle().await;
    for _ in 0..1000 {
        bed.time.advance(Duration::from_hours(24));
        settle().await;
    }
    assert_eq!(bed.done().await.len(), 1, "2028-02-29");
    node.stop().await;
}
