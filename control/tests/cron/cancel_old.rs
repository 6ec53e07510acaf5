//! Schedules that cancel the task of an earlier time.

use std::time::Duration;

use anyqueue::{PushOutcome, QueueMessageStatus};
use anyqueue_control::cron::{RunOutcome, Running, Schedule, Scheduler};

use crate::bed::{Bed, MINUTE, Node, TASKS, minutes, schedule};
use crate::cut::{ALL, Cut};

const STEP: Duration = Duration::from_secs(5);

fn cancelling() -> Schedule {
    schedule("* * * * *").with_running(Running::CancelOld)
}

async fn waiting(bed: &Bed) -> Vec<u64> {
    bed.done().await.into_iter().map(|(due, _)| due).collect()
}

#[tokio::test]
async fn an_earlier_task_that_waits_is_removed_and_one_that_runs_is_asked_to_stop() {
    let bed = Bed::new();
    bed.scheduler.put(&cancelling()).await.unwrap();
    let node = bed.node();
    bed.pass(3 * MINUTE).await;
    assert_eq!(bed.queue.counts(TASKS).await.unwrap().ready, Some(1));
    let mut running = bed.queue.pull(TASKS).await.unwrap().remove(0);
    // It hears of it with its next heartbeat.
    bed.pass(MINUTE + MINUTE / 2).await;
    assert!(running.cancel_requested().is_cancelled());
    assert_eq!(waiting(&bed).await, minutes(4..=4), "it does not wait for that one");
    running.settle(QueueMessageStatus::Processed).await.unwrap();
    let last = bed.scheduler.get("a").await.unwrap().unwrap().last.unwrap();
    assert_eq!(last.outcome, RunOutcome::Pushed);
    node.stop().await;
}

#[tokio::test]
async fn it_cancels_across_a_new_content_and_what_was_run_by_hand() {
    let bed = Bed::new();
    bed.scheduler.put(&cancelling()).await.unwrap();
    let node = bed.node();
    bed.pass(MINUTE).await;
    bed.scheduler.put(&cancelling().with_payload("another")).await.unwrap();
    bed.pass(MINUTE).await;
    assert_eq!(bed.queue.counts(TASKS).await.unwrap().ready, Some(1));
    for _ in 0..2 {
        let pushed = bed.scheduler.run_now("a").await.unwrap().unwrap();
        assert!(matches!(pushed, PushOutcome::Stored(_)));
        assert_eq!(bed.queue.counts(TASKS).await.unwrap().ready, Some(1));
    }
    bed.pass(MINUTE).await;
    assert_eq!(waiting(&bed).await, minutes(3..=3));
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_is_cut_at_any_call_leaves_the_latest_task_and_no_other() {
    for how in ALL {
        for at in 0..16 {
            let bed = Bed::new();
            bed.scheduler.put(&cancelling()).await.unwrap();
            let cut = Cut::at(&bed.memory, at, how);
            let node = Node::start(Scheduler::new(&bed.queue_over(cut.clone())).unwrap());
            bed.work_in(STEP, MINUTE).await;
            bed.pass(MINUTE + STEP).await;
            let other = bed.node();
            bed.pass(MINUTE).await;
            cut.thaw();
            bed.pass(MINUTE.checked_sub(STEP).unwrap()).await;
            assert_eq!(waiting(&bed).await, minutes(4..=4), "{how:?} at {at}");
            node.kill().await;
            other.stop().await;
        }
    }
}
