//! The ledger: what became of tasks is stored with what removes them, and told until its time is over.

mod beside;
mod counted;
mod full;
mod killed;
mod like_memory;
mod many;
mod merged;
mod paged;
mod purged;

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::{
    Action, Cancelled, EndedQuery, EndedTask, InspectQueueStorage, LedgerQueueStorage, PullQueueStorage,
    PullRequest, QueueStorage, RawDelivery, Settlement, Successor, TaskEnd,
};
use anyqueue::{
    CancelOutcome, EndState, ErrorKind, MAX_RESULT_BYTES, MessageId, Page, PartitionId, SettleOutcome,
};
use anyqueue_sqlite::SqliteQueue;

const SECOND: Duration = Duration::from_secs(1);

fn succeeded() -> TaskEnd {
    TaskEnd::new(EndState::Succeeded)
}

/// The removal of what is held, with this end.
fn done(held: &RawDelivery, end: TaskEnd) -> Settlement {
    Settlement::new(held.lease.clone(), Action::Remove).with_end(Some(Arc::new(end)))
}

async fn settle_one(queue: &SqliteQueue, settlement: Settlement) -> SettleOutcome {
    queue.settle(&[settlement]).await.remove(0).unwrap()
}

/// Pushes a message, and ends it so. Returns its id.
async fn end_one(queue: &SqliteQueue, p: &PartitionId, end: TaskEnd) -> MessageId {
    let id = push_text(queue, p, &["m"]).await[0];
    let held = pull(queue, p, 1).await.remove(0);
    assert_eq!(settle_one(queue, done(&held, end)).await, SettleOutcome::Settled);
    id
}

async fn find(queue: &SqliteQueue, p: &PartitionId, id: MessageId) -> Option<EndedTask> {
    queue.find_ended(p, &[id]).await.remove(0).unwrap()
}

async fn all_ended(queue: &SqliteQueue, p: &PartitionId) -> Vec<EndedTask> {
    queue.ended(p, &EndedQuery::default(), Page::of(1000)).await.unwrap()
}

async fn count(queue: &SqliteQueue, p: &PartitionId) -> u64 {
    queue.count_ended(p, &EndedQuery::default(), 1_000_000).await.unwrap()
}

/// An end of which everything is said.
fn full() -> TaskEnd {
    let mut end = TaskEnd::new(EndState::TimedOut).with_generation(2).with_attempt(3).with_delivery_count(7);
    end.waited = Duration::from_micros(1_234_567);
    end.ran = Duration::from_micros(89);
    end.worker = Some("host-1".into());
    end.kind = Some("mail".into());
    end.task_id = Some("order 7".into());
    end.session_id = Some("s".into());
    end.trace = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    end.reason = Some("took too long".into());
    end.errors = Some("[]".into());
    end.with_result(vec![7; MAX_RESULT_BYTES])
}

#[tokio::test]
async fn an_end_comes_with_the_removal_and_is_told_whole_also_after_a_restart() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let keep = Some(Duration::from_hours(1));
    let id = end_one(&bed.queue, &p, full().with_keep(keep)).await;
    bed.queue.close().await.unwrap();
    let again = SqliteQueue::builder(bed.path()).clock(clock.clock()).open().await.unwrap();
    assert_eq!(again.counts(&p).await.unwrap().ready, Some(0));
    let found = find(&again, &p, id).await.unwrap();
    assert_eq!((found.id, &*found.end), (id, &full()));
    let since = clock.clock().wall().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = std::time::UNIX_EPOCH + Duration::from_millis(u64::try_from(since.as_millis()).unwrap());
    assert_eq!((found.ended_at, found.expires_at), (now, Some(now + Duration::from_hours(1))));
    let mut listed = full();
    listed.result = None;
    let page = all_ended(&again, &p).await;
    assert_eq!(page.iter().map(|ended| (ended.id, &*ended.end)).collect::<Vec<_>>(), [(id, &listed)]);
    assert_eq!((page[0].ended_at, page[0].expires_at), (found.ended_at, found.expires_at));
    assert_eq!(find(&again, &part("q"), id).await, None, "partitions are apart");
}

#[tokio::test]
async fn an_exchange_stores_ends_and_successors_in_one_transaction() {
    const MESSAGES: usize = 100;
    let bed = Bed::new().await;
    let (p, next) = (part("p"), part("next"));
    push_text(&bed.queue, &p, &["m"; MESSAGES]).await;
    let held = pull(&bed.queue, &p, MESSAGES).await;
    let before = commits(&bed);
    let successor = || vec![Successor { partition: next.clone(), message: message("next") }];
    let ends: Vec<_> = held.iter().map(|held| done(held, succeeded()).with_then(successor())).collect();
    let request = PullRequest::new(MESSAGES, Duration::ZERO, LEASE);
    let (settled, pulled) = bed.queue.exchange(&ends, &next, request).await;
    assert!(settled.iter().all(|outcome| *outcome.as_ref().unwrap() == SettleOutcome::Settled));
    assert_eq!((pulled.unwrap().len(), commits(&bed) - before), (MESSAGES, 1));
    assert_eq!(count(&bed.queue, &p).await, MESSAGES as u64);
    assert_eq!(count(&bed.queue, &next).await, 0);
}

#[tokio::test]
async fn ends_of_a_group_that_was_claimed_whole_are_kept_of_each_member() {
    let bed = Bed::new().await;
    let p = part("p");
    let members: Vec<_> = ["a", "b", "c", "d"].map(|text| message(text).with_group("g")).to_vec();
    let ids = push(&bed.queue, &p, &members).await;
    let held = pull_whole(&bed.queue, &p, 10, 3).await;
    let ends: Vec<_> = held.iter().map(|held| done(held, succeeded())).collect();
    assert!(bed.queue.settle(&ends).await.iter().all(Result::is_ok));
    let found = bed.queue.find_ended(&p, &ids).await;
    let found: Vec<_> = found.into_iter().map(|found| found.unwrap().is_some()).collect();
    assert_eq!(found, [true, true, true, false]);
    assert_eq!(drain(&bed.queue, &p).await, ["d"]);
}

#[tokio::test]
async fn only_the_removal_of_what_is_held_stores_an_end() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let id = push_text(&bed.queue, &p, &["m"]).await[0];
    let late = pull(&bed.queue, &p, 1).await.remove(0);
    clock.advance(LEASE);
    let held = pull(&bed.queue, &p, 1).await.remove(0);
    assert_eq!(settle_one(&bed.queue, done(&late, succeeded())).await, SettleOutcome::Lost);
    assert_eq!(find(&bed.queue, &p, id).await, None, "the lease was lost");
    let mut released = done(&held, succeeded());
    released.action = Action::Release;
    assert_eq!(settle_one(&bed.queue, released).await, SettleOutcome::Settled);
    assert_eq!(find(&bed.queue, &p, id).await, None, "it is still there");
    let held = pull(&bed.queue, &p, 1).await.remove(0);
    assert_eq!(settle(&bed.queue, &held.lease, Action::Remove).await, SettleOutcome::Settled);
    assert_eq!(find(&bed.queue, &p, id).await, None, "nothing was to be kept");
    assert_eq!(settle_one(&bed.queue, done(&held, succeeded())).await, SettleOutcome::Lost);
    assert_eq!(count(&bed.queue, &p).await, 0);
}

#[tokio::test]
async fn what_waits_is_cancelled_with_its_end_in_one_step() {
    let bed = Bed::new().await;
    let p = part("p");
    let ids = push_text(&bed.queue, &p, &["held", "waits", "unkept"]).await;
    pull(&bed.queue, &p, 1).await;
    let unknown = MessageId::new();
    let end = Arc::new(TaskEnd::new(EndState::Cancelled).with_reason("not wanted").with_result("r"));
    let cancelled = |id, end| Cancelled { id, end };
    let tasks = [
        cancelled(ids[0], Some(Arc::clone(&end))),
        cancelled(ids[1], Some(Arc::clone(&end))),
        cancelled(ids[2], None),
        cancelled(unknown, Some(Arc::clone(&end))),
        cancelled(ids[1], Some(Arc::new(succeeded()))),
    ];
    let before = commits(&bed);
    let outcomes: Vec<_> =
        bed.queue.cancel(&p, &tasks).await.into_iter().map(std::result::Result::unwrap).collect();
    let (requested, removed, not_found) =
        (CancelOutcome::Requested, CancelOutcome::Removed, CancelOutcome::NotFound);
    assert_eq!(outcomes, [requested, removed, removed, not_found, not_found]);
    assert_eq!(commits(&bed) - before, 1);
    let found = bed.queue.find_ended(&p, &[ids[0], ids[1], ids[2], unknown]).await;
    let found: Vec<_> = found.into_iter().map(|found| found.unwrap().map(|found| found.end)).collect();
    assert_eq!(found, [None, Some(end), None, None]);
    let nowhere = bed.queue.cancel(&part("nowhere"), &tasks[..1]).await.remove(0);
    assert_eq!(nowhere.unwrap(), not_found);
}

#[tokio::test]
async fn an_end_that_cannot_be_read_fails_by_itself() {
    let bed = Bed::new().await;
    let p = part("p");
    let damaged = end_one(&bed.queue, &p, succeeded()).await;
    let newer = end_one(&bed.queue, &p, succeeded()).await;
    let right = end_one(&bed.queue, &p, succeeded()).await;
    let conn = rusqlite::Connection::open(bed.path()).unwrap();
    for (body, id) in [(&b"\x01"[..], damaged), (b"\x63", newer)] {
        let update = "UPDATE anyqueue_ended SET body = ? WHERE id = ?";
        assert_eq!(conn.execute(update, (body, id.as_bytes())).unwrap(), 1);
    }
    let mut found = bed.queue.find_ended(&p, &[damaged, newer, right]).await.into_iter();
    for kind in [ErrorKind::Corrupt, ErrorKind::Incompatible] {
        let error = found.next().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.backend()), (kind, Some("sqlite")), "{error}");
    }
    assert!(found.next().unwrap().unwrap().is_some());
    assert!(bed.queue.ended(&p, &EndedQuery::default(), Page::of(9)).await.is_err());
    assert_eq!(count(&bed.queue, &p).await, 3);
    let deleted = bed.queue.delete_ended(&p, &[damaged, newer]).await;
    assert!(deleted.into_iter().all(|deleted| deleted.unwrap()), "it can be deleted all the same");
}

#[tokio::test]
async fn a_partition_keeps_its_ends_under_its_name_and_is_forgotten_when_they_and_their_counts_are_gone() {
    const OTHERS: usize = 200;
    let bed = Bed::new().await;
    let p = part("p");
    let id = end_one(&bed.queue, &p, succeeded()).await;
    let use_others = async |round: &str| {
        for n in 0..OTHERS {
            let other = part(&format!("{round}-{n}"));
            push_text(&bed.queue, &other, &["m"]).await;
            drain(&bed.queue, &other).await;
        }
    };
    let row_of_p = || {
        let conn = rusqlite::Connection::open(bed.path()).unwrap();
        let select = "SELECT count(*) FROM anyqueue_partition WHERE name = 'p'";
        conn.query_row(select, (), |row| row.get::<_, i64>(0)).unwrap()
    };
    use_others("first").await;
    assert!(find(&bed.queue, &p, id).await.is_some());
    assert_eq!(row_of_p(), 1);
    assert!(bed.queue.partitions(Page::of(9)).await.unwrap().is_empty(), "ends are no messages");
    assert!(bed.queue.delete_ended(&p, &[id]).await.remove(0).unwrap());
    use_others("second").await;
    assert_eq!(row_of_p(), 1, "its ends are counted still");
    rusqlite::Connection::open(bed.path()).unwrap().execute("DELETE FROM anyqueue_series", ()).unwrap();
    use_others("third").await;
    assert_eq!(row_of_p(), 0);
}
