//! No room for ends.

use super::*;
use crate::disk::SmallDisk;
use anyqueue::MessageData;
use anyqueue::adapter::PushQueueStorage;

#[tokio::test]
async fn an_end_for_which_there_is_no_room_leaves_its_message_held_and_nothing_half() {
    const TASKS: usize = 400;
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::builder(dir.path().join("q.db")).max_bytes(512 * 1024).open().await.unwrap();
    let p = part("p");
    push_text(&queue, &p, &["m"; TASKS]).await;
    let held = pull(&queue, &p, TASKS).await;
    // What it takes is more than its message leaves.
    let large = || TaskEnd::new(EndState::Failed).with_reason("x".repeat(8000));
    let mut stored = 0;
    let refused = loop {
        match queue.settle(&[done(&held[stored], large())]).await.remove(0) {
            Ok(outcome) => assert_eq!(outcome, SettleOutcome::Settled),
            Err(error) => break error,
        }
        stored += 1;
    };
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    assert!(stored > 20, "{stored}");
    let full = &held[stored..];
    assert_eq!(find(&queue, &p, full[0].lease.id).await, None);
    assert_eq!(queue.counts(&p).await.unwrap().leased, Some((TASKS - stored) as u64));

    let plain = |held: &RawDelivery| Settlement::new(held.lease.clone(), Action::Remove);
    let settled = queue.settle(&[plain(&full[1]), done(&full[0], large()), plain(&full[2])]).await;
    assert_eq!(settled[1].as_ref().unwrap_err().kind(), ErrorKind::Full);
    for other in [&settled[0], &settled[2]] {
        assert_eq!(*other.as_ref().unwrap(), SettleOutcome::Settled, "it harms no other");
    }
    assert_eq!(count(&queue, &p).await, stored as u64);

    let ids: Vec<_> = held[..stored].iter().map(|held| held.lease.id).collect();
    assert!(queue.delete_ended(&p, &ids).await.into_iter().all(|deleted| deleted.unwrap()));
    assert_eq!(
        settle_one(&queue, done(&full[0], large())).await,
        SettleOutcome::Settled,
        "there is room again"
    );
}

#[tokio::test]
async fn on_a_disk_that_is_nearly_full_tasks_end_but_bring_no_results() {
    let Some(disk) = SmallDisk::mount(1024 * 1024) else {
        eprintln!(
            "NOT RUN: on_a_disk_that_is_nearly_full_tasks_end_but_bring_no_results (mounting a tmpfs needs root)"
        );
        return;
    };
    let queue = SqliteQueue::open(disk.path().join("q.db")).await.unwrap();
    let p = part("p");
    let ids = push_text(&queue, &p, &["a", "b", "c"]).await;
    let held = pull(&queue, &p, 3).await;
    while queue.push(&p, &[MessageData::new(vec![7; 4000])]).await[0].is_ok() {}
    let ends = [
        done(&held[0], succeeded()),
        done(&held[1], succeeded().with_result("r")),
        done(&held[2], succeeded()),
    ];
    let settled = queue.settle(&ends).await;
    assert_eq!(settled[1].as_ref().unwrap_err().kind(), ErrorKind::Full);
    for settled in [&settled[0], &settled[2]] {
        assert_eq!(*settled.as_ref().unwrap(), SettleOutcome::Settled);
    }
    let found = queue.find_ended(&p, &ids).await;
    let found: Vec<_> = found.into_iter().map(|found| found.unwrap().is_some()).collect();
    assert_eq!(found, [true, false, true]);
    let recorded = queue.record_ended(&p, &[(ids[1], Arc::new(succeeded()))]).await.remove(0);
    assert_eq!(recorded.unwrap_err().kind(), ErrorKind::Full, "nothing is taken out for it");
}
