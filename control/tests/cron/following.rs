//! Schedules that count from the end of their last run.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Delivery, Keep, Queue, QueueMessageStatus, SettleOutcome, TaskState};
use anyqueue_control::cron::{Missed, RunOutcome, Running, Schedule, Scheduler, TICKS};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

use crate::bed::{Bed, HOUR, MINUTE, Node, SECOND, TASKS, done, schedule};
use crate::cut::{ALL, Cut};

const STEP: Duration = Duration::from_secs(5);

fn following() -> Schedule {
    schedule("@after 1m")
}

async fn first(bed: &Bed, queue: &Queue) -> Delivery {
    bed.pass(MINUTE + SECOND).await;
    queue.pull(TASKS).await.unwrap().remove(0)
}

#[tokio::test]
async fn the_next_run_comes_so_long_after_the_last_one_has_ended_however_that_was() {
    for end in [QueueMessageStatus::Processed, QueueMessageStatus::poisonous("bad")] {
        let bed = Bed::new();
        bed.scheduler.put(&following()).await.unwrap();
        let node = bed.node();
        let mut task = first(&bed, &bed.queue).await;
        bed.pass(10 * MINUTE).await;
        assert!(bed.done().await.is_empty(), "it still runs");
        let info = bed.scheduler.get("a").await.unwrap().unwrap();
        assert_eq!(info.last.unwrap().outcome, RunOutcome::Pushed, "looks are no runs");
        task.settle(end).await.unwrap();
        bed.pass(59 * SECOND).await;
        assert!(bed.done().await.is_empty());
        // It is looked every six seconds.
        bed.pass(8 * SECOND).await;
        assert_eq!(bed.done().await.len(), 1);
        assert_eq!(bed.queue.counts(TICKS).await.unwrap().delayed, Some(1), "one tick");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_task_that_is_retried_has_not_ended() {
    let bed = Bed::new();
    bed.scheduler.put(&following()).await.unwrap();
    let node = bed.node();
    let mut task = first(&bed, &bed.queue).await;
    let id = task.id();
    task.settle(QueueMessageStatus::postponed(HOUR)).await.unwrap();
    bed.pass(59 * MINUTE).await;
    assert_eq!(bed.queue.task(TASKS, id).await.unwrap().unwrap().state, TaskState::Scheduled);
    assert!(bed.done().await.is_empty());
    bed.pass(2 * MINUTE).await;
    assert_eq!(bed.done().await.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), [id]);
    node.stop().await;
}

#[tokio::test]
async fn where_ends_are_kept_it_is_to_the_second() {
    let bed = Bed::new();
    let queue = || {
        let storage = bed.memory.client();
        Queue::builder(storage).clock(bed.time.clock()).ledger(Keep::default()).build().unwrap()
    };
    let tasks = queue();
    let scheduler = Scheduler::new(&queue()).unwrap();
    scheduler.put(&following()).await.unwrap();
    let node = Node::start(scheduler);
    let mut task = first(&bed, &tasks).await;
    bed.pass(2 * SECOND).await;
    task.settle(QueueMessageStatus::Processed).await.unwrap();
    bed.pass(59 * SECOND).await;
    assert!(done(&tasks).await.is_empty());
    bed.pass(SECOND).await;
    assert_eq!(done(&tasks).await.into_iter().map(|(due, _)| due).collect::<Vec<_>>(), [123]);
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_is_cut_at_any_call_runs_none_twice_and_none_too_early() {
    for how in ALL {
        for at in 0..16 {
            let bed = Bed::new();
            bed.scheduler.put(&following()).await.unwrap();
            let cut = Cut::at(&bed.memory, at, how);
            let node = Node::start(Scheduler::new(&bed.queue_over(cut.clone())).unwrap());
            let mut done = bed.work_in(STEP, 3 * MINUTE).await;
            let other = bed.node();
            done.extend(bed.work_in(STEP, 2 * MINUTE).await);
            cut.thaw();
            let before = done.len();
            done.extend(bed.work_in(STEP, 4 * MINUTE).await);
            assert!(done.len() > before + 1, "{how:?} at {at}: it goes on: {done:?}");
            assert!(done.is_sorted_by(|a, b| a + 60 <= *b), "{how:?} at {at}: {done:?}");
            let ticks = bed.queue.counts(TICKS).await.unwrap();
            assert_eq!((ticks.delayed, ticks.ready), (Some(1), Some(0)), "{how:?} at {at}");
            node.kill().await;
            other.stop().await;
        }
    }
}

#[tokio::test]
async fn a_lost_tick_is_put_back_and_does_not_run_beside_a_task_that_lives() {
    let bed = Bed::new();
    bed.scheduler.put(&following().with_running(Running::Allow)).await.unwrap();
    let node = bed.node();
    let mut task = first(&bed, &bed.queue).await;
    assert_eq!(bed.queue.purge(TICKS).await.unwrap(), 1);
    bed.pass(5 * MINUTE).await;
    assert_eq!(bed.queue.counts(TICKS).await.unwrap().delayed, Some(1));
    assert!(bed.done().await.is_empty());
    task.settle(QueueMessageStatus::Processed).await.unwrap();
    bed.pass(2 * MINUTE).await;
    assert_eq!(bed.done().await.len(), 1);
    node.stop().await;
}

#[tokio::test]
async fn it_is_kept_beside_another_queue_paused_and_refused_like_any_other() {
    let bed = Bed::new();
    let all = following().with_running(Running::Allow).with_missed(Missed::All(3));
    let refused = bed.scheduler.put(&all).await;
    assert!(refused.unwrap_err().message().contains("use latest or none"));
    let other = MemoryQueue::with_config(MemoryConfig::default().with_clock(bed.time.clock()));
    let tasks = bed.queue_over(Arc::new(other));
    let scheduler = Scheduler::beside(&tasks, &bed.queue).unwrap();
    scheduler.put(&following()).await.unwrap();
    let node = Node::start(scheduler.clone());
    let mut task = first(&bed, &tasks).await;
    bed.pass(3 * MINUTE).await;
    assert_eq!(task.settle(QueueMessageStatus::Processed).await.unwrap(), SettleOutcome::Settled);
    scheduler.pause("a").await.unwrap();
    bed.pass(5 * MINUTE).await;
    assert!(done(&tasks).await.is_empty());
    scheduler.resume("a").await.unwrap();
    bed.pass(MINUTE + SECOND).await;
    let info = scheduler.get("a").await.unwrap().unwrap();
    assert_eq!(done(&tasks).await.len(), 1, "{info:?}");
    node.stop().await;
}
