//! A ledger beside a queue that keeps none itself.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod gone;
mod lab;
mod live;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyqueue::QueueMessageStatus::{Failed, Processed};
use anyqueue::{
    Beside, CancelOutcome, ErrorKind, Keep, LedgerDown, MessageData, MessageId, MessageState, Queue,
    QueueMessageStatus, SettleOutcome, Successors, TaskFilter, TaskState,
};

use lab::{Bare, Lab, lab};

#[tokio::test]
async fn an_end_is_kept_and_read_beside_the_queue() {
    let lab = lab(LedgerDown::Hold);
    let id = lab.push().await;
    assert_eq!(lab.state(id).await, Some(TaskState::Queued));
    lab.queue.pull("jobs").await.unwrap()[0].settle(Processed).await.unwrap();
    assert_eq!(lab.state(id).await, Some(TaskState::Succeeded));
    assert_eq!(lab.queue.pull("jobs").await.unwrap().len(), 0);
}

#[tokio::test]
async fn what_had_ended_before_its_settlement_was_lost_is_settled_without_being_run_again() {
    let lab = lab(LedgerDown::Hold);
    let (first, second) = (lab.push().await, lab.push().await);
    lab.cut.store(true, SeqCst);
    let mut held = lab.queue.pull("jobs").await.unwrap();
    assert!(
        held[0].settle(Processed).await.is_err(),
        "the crash: its end is kept, its settlement never sent"
    );
    assert_eq!(lab.ends().await.len(), 1);
    lab.cut.store(false, SeqCst);
    held[0].settle(QueueMessageStatus::Waiting).await.unwrap();
    // It comes again first, and is passed over: the pull brings the next, without a second call by its caller.
    let held = lab.queue.pull("jobs").wait(Duration::from_secs(5)).await.unwrap();
    assert_eq!(held.iter().map(anyqueue::Delivery::id).collect::<Vec<_>>(), [second]);
    assert_eq!(lab.state(first).await, Some(TaskState::Succeeded));
    drop(held);
}

/// A task that has ended, and comes again since its settlement was lost.
async fn one_that_comes_again(lab: &Lab) -> MessageId {
    let id = lab.push().await;
    lab.cut.store(true, SeqCst);
    let mut held = lab.queue.pull("jobs").await.unwrap();
    assert!(held[0].settle(Processed).await.is_err());
    lab.cut.store(false, SeqCst);
    held[0].settle(QueueMessageStatus::Waiting).await.unwrap();
    id
}

#[tokio::test]
async fn what_may_have_ended_is_not_handed_out_while_the_ledger_cannot_tell() {
    let lab = lab(LedgerDown::Hold);
    let ended = one_that_comes_again(&lab).await;
    let fresh = lab.push().await;
    lab.down.store(true, SeqCst); // which nobody has met so far
    let error = lab.queue.pull("jobs").max(2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("ledger"), "{error}");
    assert_eq!(lab.state_of_message(fresh).await, Some(MessageState::Ready), "it was released");

    lab.down.store(false, SeqCst);
    let held = lab.queue.pull("jobs").max(2).wait(Duration::from_secs(5)).await.unwrap();
    assert_eq!(held.iter().map(anyqueue::Delivery::id).collect::<Vec<_>>(), [fresh]);
    assert_eq!(lab.state(ended).await, Some(TaskState::Succeeded));
}

#[tokio::test]
async fn where_ends_may_be_dropped_what_may_have_ended_is_handed_out() {
    let lab = lab(LedgerDown::Drop);
    let ended = one_that_comes_again(&lab).await;
    lab.down.store(true, SeqCst);
    let held = lab.queue.pull("jobs").await.unwrap();
    assert_eq!(held.iter().map(anyqueue::Delivery::id).collect::<Vec<_>>(), [ended]);
}

#[tokio::test]
async fn what_brought_successors_runs_again_so_that_none_is_missing() {
    let lab = lab(LedgerDown::Hold);
    let id = lab.push().await;
    lab.cut.store(true, SeqCst);
    let mut held = lab.queue.pull("jobs").await.unwrap();
    let then = || Successors::new().then("next", MessageData::new("y")).unwrap();
    assert!(held[0].settle_with(Processed, then()).await.is_err());
    lab.cut.store(false, SeqCst);
    drop(held);
    let mut held = lab.queue.pull("jobs").wait(Duration::from_secs(5)).await.unwrap();
    assert_eq!(held[0].id(), id);
    held[0].settle_with(Processed, then()).await.unwrap();
    assert_eq!(lab.queue.pull("next").await.unwrap().len(), 1);
    assert_eq!(lab.ends().await.len(), 1, "of two ends of a task the greater is left");
}

#[tokio::test]
async fn what_failed_before_is_run_again() {
    let lab = lab(LedgerDown::Hold);
    let id = lab.push().await;
    lab.queue.pull("jobs").await.unwrap()[0].settle(Failed).await.unwrap();
    let held = lab.queue.pull("jobs").await.unwrap();
    assert_eq!((held[0].id(), held[0].delivery_count()), (id, Some(2)));
}

#[tokio::test]
async fn what_was_put_back_from_the_dead_letters_is_run_whatever_it_ended_as_before() {
    let lab = lab(LedgerDown::Hold);
    let id = lab.push().await;
    // Its end is kept, its settlement lost, and then it dies all the same.
    lab.cut.store(true, SeqCst);
    let mut held = lab.queue.pull("jobs").await.unwrap();
    assert!(held[0].settle(Processed).await.is_err());
    lab.cut.store(false, SeqCst);
    held[0].settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
    lab.queue.dead_letters("jobs").unwrap().redrive().await.unwrap();
    let held = lab.queue.pull("jobs").await.unwrap();
    drop(held); // Counted twice from here on, so that it is looked for.
    let mut held = lab.queue.pull("jobs").wait(Duration::from_secs(5)).await.unwrap();
    assert_eq!(held[0].id(), id);
    held[0].settle(Processed).await.unwrap();
    assert_eq!(lab.state(id).await, Some(TaskState::Succeeded));
}

#[tokio::test]
async fn while_the_ledger_is_down_nothing_is_settled_nor_pulled_and_nothing_is_lost() {
    let lab = lab(LedgerDown::Hold);
    let (first, _) = (lab.push().await, lab.push().await);
    let mut held = lab.queue.pull("jobs").await.unwrap();
    lab.down.store(true, SeqCst);
    let error = held[0].settle(Processed).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("ledger"), "{error}");
    assert!(!held[0].is_lost());
    let pulls = lab.pulls.load(SeqCst);
    assert_eq!(lab.queue.pull("jobs").await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(lab.pulls.load(SeqCst), pulls, "the queue was not asked");
    assert!(lab.queue.check().await.is_err());

    lab.down.store(false, SeqCst);
    assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(lab.state(first).await, Some(TaskState::Succeeded));
    assert_eq!(lab.queue.pull("jobs").await.unwrap().len(), 1);
}

#[tokio::test]
async fn where_ends_may_be_dropped_work_goes_on_without_a_ledger() {
    let lab = lab(LedgerDown::Drop);
    let id = lab.push().await;
    let mut held = lab.queue.pull("jobs").await.unwrap();
    lab.down.store(true, SeqCst);
    assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
    lab.push().await;
    assert_eq!(lab.queue.pull("jobs").await.unwrap().len(), 1);
    lab.down.store(false, SeqCst);
    assert_eq!(lab.state(id).await, None);
}

#[tokio::test]
async fn one_end_that_is_refused_holds_no_other_settlement_back() {
    let lab = lab(LedgerDown::Hold);
    lab.push().await;
    let dead = lab.push().await;
    let mut held = lab.queue.pull("jobs").max(2).await.unwrap();
    lab.down.store(true, SeqCst);
    let statuses = [Processed, QueueMessageStatus::poisonous("bad")];
    let outcomes = lab.queue.settle_many(held.iter_mut().zip(statuses)).await;
    assert!(outcomes[0].is_err());
    assert_eq!(outcomes[1].as_ref().unwrap(), &SettleOutcome::Settled, "a dead letter needs no ledger");
    let listed = lab.queue.dead_letters("jobs").unwrap().list(anyqueue::Page::of(10)).await.unwrap();
    assert_eq!(listed.iter().map(|it| it.message.id()).collect::<BTreeSet<_>>(), BTreeSet::from([dead]));
}

#[tokio::test]
async fn a_cancellation_is_kept_only_if_it_removed_something() {
    let lab = lab(LedgerDown::Hold);
    let held_id = lab.push().await;
    let held = lab.queue.pull("jobs").await.unwrap();
    let waiting = lab.push().await;
    let outcomes = lab.queue.request_cancel("jobs", &[held_id, waiting, MessageId::new()]).await.unwrap();
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [CancelOutcome::Requested, CancelOutcome::Removed, CancelOutcome::NotFound]);
    drop(held);
    assert_eq!(lab.state(waiting).await, Some(TaskState::Cancelled));
    let cancelled = TaskFilter::new().in_state(TaskState::Cancelled);
    assert_eq!(lab.queue.count_tasks("jobs", &cancelled, 10).await.unwrap().value, 1);
}

#[test]
fn a_storage_without_a_ledger_keeps_none_for_another() {
    let bare = || Bare::new(&Arc::default());
    assert_eq!(Beside::new(bare(), bare()).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_queue_whose_backend_keeps_no_ends_refuses_a_ledger() {
    let built = Queue::builder(Bare::new(&Arc::default())).ledger(Keep::default()).build();
    assert_eq!(built.unwrap_err().kind(), ErrorKind::Unsupported);
    let queue = Queue::new(Bare::new(&Arc::default())).unwrap();
    let wanted = TaskFilter::new().in_state(TaskState::Succeeded);
    let refused = queue.tasks("jobs", wanted).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.message().contains("this backend has no ledger"), "{refused}");
    assert_eq!(queue.purge_ended(1).await.unwrap_err().kind(), ErrorKind::Unsupported);
    let dead = TaskFilter::new().since(std::time::SystemTime::UNIX_EPOCH).by_worker("w");
    assert!(queue.tasks("jobs", dead).is_ok(), "a dead letter says who ran it");
    assert!(queue.tasks("jobs", TaskFilter::new()).is_ok(), "what lives is known without a ledger");
}

#[tokio::test]
async fn each_end_is_counted_once_however_often_it_is_told() {
    let lab = lab(LedgerDown::Hold);
    let since = anyqueue::SeriesQuery::since(std::time::SystemTime::now() - Duration::from_mins(1))
        .by(anyqueue::SeriesStep::Day);
    let counted = async || {
        let rows = lab.queue.series("jobs", &since).await.unwrap();
        rows.iter().map(|row| (row.state.as_str(), row.tasks)).collect::<Vec<_>>()
    };
    lab.push().await;
    let mut held = lab.queue.pull("jobs").await.unwrap();
    lab.cut.store(true, SeqCst);
    for _ in 0..2 {
        held[0].settle(Processed).await.unwrap_err();
        assert_eq!(counted().await, [("succeeded", 1)]);
    }
    lab.cut.store(false, SeqCst);
    held[0].settle(Processed).await.unwrap();
    assert_eq!(counted().await, [("succeeded", 1)]);

    // What dies is counted when its settlement has arrived.
    lab.push().await;
    let mut held = lab.queue.pull("jobs").await.unwrap();
    lab.cut.store(true, SeqCst);
    held[0].settle(QueueMessageStatus::poisonous("bad")).await.unwrap_err();
    assert_eq!(counted().await, [("succeeded", 1)]);
    lab.cut.store(false, SeqCst);
    held[0].settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
    assert_eq!(counted().await, [("failed", 1), ("succeeded", 1)]);
    assert_eq!(lab.ends().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_does_not_return_delays_one_settlement_that_it_should_count_and_not_the_next() {
    let lab = lab(LedgerDown::Drop);
    let dies = async || {
        lab.push().await;
        let mut held = lab.queue.pull("jobs").await.unwrap();
        held[0].settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
    };
    lab.hangs.store(true, SeqCst);
    let began = tokio::time::Instant::now();
    for _ in 0..5 {
        dies().await;
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    lab.hangs.store(false, SeqCst);
    tokio::time::advance(Duration::from_mins(1)).await;
    dies().await;
    let since = std::time::SystemTime::now() - Duration::from_mins(5);
    let rows = lab.queue.series("jobs", &anyqueue::SeriesQuery::since(since)).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.tasks).sum::<u64>(), 1, "it is asked again after a while");
}

#[tokio::test]
async fn a_ledger_that_does_not_return_keeps_nobody_from_knowing_that_a_task_is_dead() {
    let lab = lab(LedgerDown::Hold);
    lab.push().await;
    let mut held = lab.queue.pull("jobs").await.unwrap();
    lab.hangs.store(true, SeqCst);
    let outcome = held[0].settle(QueueMessageStatus::poisonous("bad")).await;
    assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
}
