//! That a task is gone is the last that the ledger is told of it: if that is lost, it is found out all the same.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::Storage;
use anyqueue::{Beside, LedgerDown, ManualClock, MessageId, PartitionId, TaskState, header};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

use crate::lab::{Bare, Fate, Lab, Remote, blind_labs, blind_labs_on};
use crate::live::{HOUR, SOON, mail};

/// Waits until this is so, which nobody tells.
async fn until(is_so: impl AsyncFn() -> bool) {
    let looks = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, looks).await.unwrap();
}

/// Waits until a call that tells facts has come to nothing.
async fn until_unheard(fate: &Fate) {
    until(async || fate.unheard.load(SeqCst) > 0).await;
}

#[tokio::test]
async fn that_a_task_is_gone_is_told_again_also_where_other_facts_are_dropped() {
    let [lab, other] = blind_labs(LedgerDown::Drop);
    let id = lab.push_message(mail().with_header(header::TASK_KEEP_SUCCESS, "0s")).await;
    other.once(id, |_| true).await;
    lab.down.store(true, SeqCst);
    lab.settle_next(Processed).await;
    until_unheard(&lab.fate).await;
    lab.down.store(false, SeqCst);
    until(async || other.state(id).await.is_none()).await;
}

#[tokio::test]
async fn whoever_finds_the_end_of_a_task_that_seems_to_wait_tells_that_it_is_gone() {
    let clock = ManualClock::new();
    let ledger = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
    let [lab, looks, lists, after]: [Lab; 4] = blind_labs_on(&ledger, LedgerDown::Hold);
    let mut ids = Vec::new();
    for looker in [&looks, &lists] {
        let id = lab.push_message(mail()).await;
        looker.once(id, |_| true).await;
        ids.push(id);
    }
    lab.fate.deaf.store(true, SeqCst); // so that what it tells last is lost
    lab.settle_next(Processed).await;
    assert_eq!(looks.state(ids[0]).await, Some(TaskState::Succeeded));
    looks.queue.close().await.unwrap(); // which waits until the ledger has been told
    lab.settle_next(Processed).await;
    assert_eq!(lists.listed().await, [TaskState::Succeeded; 2]);
    lists.queue.close().await.unwrap();
    clock.advance(25 * HOUR); // ends are kept for a day
    for id in ids {
        assert_eq!(after.state(id).await, None);
    }
}

#[test]
fn what_was_on_its_way_when_its_runtime_ended_is_sent_from_another() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (fate, p) = (Fate::default(), PartitionId::new("jobs").unwrap());
    let remote = Remote::new(MemoryQueue::new(), &fate);
    let queue: Arc<dyn Storage> = Arc::new(Beside::new(Bare::new(&Arc::default()).blind(), remote).unwrap());
    let push = async || {
        let message = mail();
        queue.push(&p, std::slice::from_ref(&message)).await.remove(0).unwrap();
        message.id()
    };
    fate.hangs.store(true, SeqCst);
    let ends = runtime();
    let first = ends.block_on(async {
        let id = push().await;
        until_unheard(&fate).await;
        id
    });
    drop(ends);
    fate.hangs.store(false, SeqCst);
    let is_known = async |id: MessageId| {
        let live = queue.ledger().unwrap().live_tasks().unwrap();
        live.find_live(&p, &[id]).await.remove(0).unwrap().is_some()
    };
    runtime().block_on(async {
        let second = push().await;
        until(async || is_known(second).await && is_known(first).await).await;
    });
}
