//! The ends of tasks: stored in the statement that removes the message, or not at all; listed, counted and found until they lapse.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::{
    Action, Cancelled, EndedCursor, EndedQuery, EndedTask, InspectQueueStorage, LedgerQueueStorage,
    PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage, RawDelivery, Settlement, TaskEnd,
};
use anyqueue::{
    CancelOutcome, EndState, ErrorKind, MAX_RESULT_BYTES, MessageData, MessageId, Page, PartitionId,
    SettleOutcome,
};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::harness::is_told_of_ends;
use anyqueue_testkit::{Postgres, start_if_installed};

use CancelOutcome::{NotFound, Removed, Requested};

use crate::common::{Bed, LEASE, part, pull, push};
use crate::older_release::{make_old, push_old};
use crate::successor_cost::called;
use crate::successors::{drain, outcomes, removal};

pub(crate) const DAY: Duration = Duration::from_hours(24);

pub(crate) fn done() -> TaskEnd {
    TaskEnd::new(EndState::Succeeded).with_keep(Some(DAY)).with_attempt(1)
}

pub(crate) fn ending(held: &RawDelivery, end: &TaskEnd) -> Settlement {
    removal(held, &[]).with_end(Some(Arc::new(end.clone())))
}

pub(crate) async fn find(queue: &PostgresQueue, partition: &PartitionId, id: MessageId) -> Option<EndedTask> {
    queue.find_ended(partition, &[id]).await.remove(0).unwrap()
}

pub(crate) async fn all(queue: &PostgresQueue, partition: &PartitionId) -> Vec<EndedTask> {
    queue.ended(partition, &EndedQuery::default(), Page::of(1000)).await.unwrap()
}

pub(crate) async fn count(queue: &PostgresQueue, partition: &PartitionId) -> u64 {
    queue.count_ended(partition, &EndedQuery::default(), 1_000_000).await.unwrap()
}

/// Pushes so many messages, and ends them so.
pub(crate) async fn end_new(queue: &PostgresQueue, partition: &PartitionId, number: usize, end: &TaskEnd) {
    push(queue, partition, &vec!["m"; number]).await;
    let held = pull(queue, partition, number).await;
    let ends: Vec<_> = held.iter().map(|held| ending(held, end)).collect();
    for outcome in queue.settle(&ends).await {
        assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
    }
}

#[tokio::test]
async fn an_end_takes_no_statement_more_on_any_path_and_none_costs_nothing() {
    let program = Postgres::new().setting("log_statement", "all");
    let Some(server) = start_if_installed(program).await.unwrap() else { return };
    let queue = PostgresQueue::builder(server.url()).unwrap().notify(false).open().await.unwrap();
    let (p, next) = (part("p"), part("next"));
    let mut stored = 0;
    for (brings, has_end, settled_by, exchanged_by) in [
        (false, false, "remove", "remove+pull"),
        (false, true, "remove+end_tasks", "remove+end_tasks+pull"),
        (true, false, "store_successors+remove_only", "store_successors+remove_only+pull"),
        (true, true, "store_successors+remove_only+end_tasks", "store_successors+remove_only+end_tasks+pull"),
    ] {
        for members in [1, 5] {
            push(&queue, &p, &["m"; 6]).await;
            let held = pull(&queue, &p, 6).await;
            let mut ends: Vec<_> = held
                .iter()
                .map(|held| {
                    let then = [(&next, MessageData::new("m"))];
                    removal(held, if brings { &then } else { &[] })
                })
                .collect();
            if has_end {
                for settlement in ends.iter_mut().skip(1).step_by(2) {
                    settlement.end = Some(Arc::new(done()));
                }
                stored += 3;
            }
            let (settled, used) = called(&server, queue.settle(&ends[..3])).await;
            assert_eq!((settled.len(), used), (3, vec![settled_by.to_owned()]));
            let mut request = PullRequest::new(9, Duration::ZERO, LEASE);
            request.group_members = members;
            let ((exchanged, pulled), used) =
                called(&server, queue.exchange(&ends[3..], &next, request)).await;
            assert_eq!(used, [exchanged_by]);
            for outcome in settled.into_iter().chain(exchanged) {
                assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
            }
            assert_eq!(pulled.unwrap().len(), if brings { 6 } else { 0 });
            queue.purge(&next, 99).await.unwrap();
            assert_eq!(count(&queue, &p).await, stored, "{settled_by}, {members} members");
        }
    }
}

#[tokio::test]
async fn an_end_comes_back_as_it_was_given_with_and_without_prepared_statements() {
    for prepared in [true, false] {
        let Some(bed) = Bed::find().await else { return };
        let builder = PostgresQueue::builder(&bed.url()).unwrap().notify(prepared).prepared(prepared);
        let (queue, p) = (builder.open().await.unwrap(), part("p"));
        let noise: Vec<u8> = (0..MAX_RESULT_BYTES).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect();
        let mut end =
            done().with_generation(3).with_delivery_count(7).with_reason("ä\0 reason").with_result(noise);
        end.ran = Duration::from_micros(1_234_567);
        end.waited = Duration::from_micros(1);
        for keep in [None, Some(Duration::from_mins(1)), Some(DAY), Some(7 * DAY), Some(90 * DAY)] {
            push(&queue, &p, &["m"]).await;
            let held = pull(&queue, &p, 1).await.remove(0);
            let end = end.clone().with_keep(keep);
            assert_eq!(outcomes(&queue.settle(&[ending(&held, &end)]).await), [Ok(SettleOutcome::Settled)]);
            let found = find(&queue, &p, held.message.id()).await.unwrap();
            assert_eq!(*found.end, end.clone().with_keep(None));
            assert_eq!(found.expires_at, keep.map(|keep| found.ended_at + keep));
            let since = found.ended_at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            assert_eq!(since.subsec_nanos() % 1_000_000, 0);
            let listed = all(&queue, &p).await.remove(0);
            let mut without_result = end.with_keep(None);
            without_result.result = None;
            assert_eq!((listed.id, &*listed.end), (found.id, &without_result));
            assert_eq!(find(&queue, &part("other"), found.id).await, None);
        }
        assert_eq!(count(&queue, &p).await, 5);
    }
}

#[tokio::test]
async fn a_lost_lease_stores_no_end_and_one_that_is_refused_harms_no_other() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    bed.run(format!("ALTER TABLE {}.ended ADD CHECK (octet_length(result) <> 3)", bed.schema)).await;
    for exchanges in [false, true] {
        push(&queue, &p, &["m"; 4]).await;
        let held = pull(&queue, &p, 4).await;
        queue.settle(&[removal(&held[0], &[])]).await.remove(0).unwrap();
        let bad = done().with_result("bad");
        let ends = [
            ending(&held[0], &done()),
            ending(&held[1], &bad),
            ending(&held[2], &done()),
            removal(&held[3], &[]),
        ];
        let settled = if exchanges {
            queue.exchange(&ends, &part("none"), PullRequest::new(1, Duration::ZERO, LEASE)).await.0
        } else {
            queue.settle(&ends).await
        };
        let expected = [
            Ok(SettleOutcome::Lost),
            Err(ErrorKind::Internal),
            Ok(SettleOutcome::Settled),
            Ok(SettleOutcome::Settled),
        ];
        assert_eq!(outcomes(&settled), expected);
        let ended: Vec<_> = all(&queue, &p).await.into_iter().map(|ended| ended.id).collect();
        assert_eq!(ended, [held[2].message.id()]);
        assert_eq!(queue.counts(&p).await.unwrap().leased, Some(1), "neither gone nor ended");
        assert!(queue.delete_ended(&p, &ended).await.remove(0).unwrap());
        // Lost beside one that is not, in one statement.
        let settled = queue.settle(&[ending(&held[0], &done()), ending(&held[1], &done())]).await;
        assert_eq!(outcomes(&settled), [Ok(SettleOutcome::Lost), Ok(SettleOutcome::Settled)]);
        let ended: Vec<_> = all(&queue, &p).await.into_iter().map(|ended| ended.id).collect();
        assert_eq!(ended, [held[1].message.id()]);
        assert!(queue.delete_ended(&p, &ended).await.remove(0).unwrap());
    }
}

#[tokio::test]
async fn of_an_id_that_ended_twice_the_last_end_is_found_and_both_are_deleted() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let message = MessageData::new("m");
    for attempt in [9, 3, 5] {
        queue.push(&p, std::slice::from_ref(&message)).await.remove(0).unwrap();
        let held = pull(&queue, &p, 1).await.remove(0);
        let end = done().with_attempt(attempt).with_keep(Some(DAY * attempt));
        queue.settle(&[ending(&held, &end)]).await.remove(0).unwrap();
        assert_eq!(find(&queue, &p, message.id()).await.unwrap().end.attempt, attempt);
    }
    // As if all had come within a millisecond.
    bed.run(format!(
        "UPDATE {0}.ended SET ended_us = rank >> 32 & 7, ended_at = (SELECT min(ended_at) FROM {0}.ended)",
        bed.schema
    ))
    .await;
    assert_eq!(find(&queue, &p, message.id()).await.unwrap().end.attempt, 5, "by microseconds, then");
    let deleted = queue.delete_ended(&p, &[message.id(), message.id(), MessageId::new()]).await;
    assert_eq!(deleted.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!((find(&queue, &p, message.id()).await, count(&queue, &p).await), (None, 0));
}

#[tokio::test]
async fn pages_by_state_and_time_go_through_equal_moments_in_all_tables_once() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    for keep in [None, Some(DAY), Some(7 * DAY)] {
        for state in EndState::ALL {
            end_new(&queue, &p, 5, &TaskEnd::new(state).with_keep(keep)).await;
        }
    }
    // Few moments, each in all tables.
    bed.run(format!("UPDATE {}.ended SET ended_at = 1000000 + abs(uuid_hash(id)) % 4", bed.schema)).await;
    let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
    let whole = all(&queue, &p).await;
    assert_eq!(whole.len(), 60);
    assert!(whole.is_sorted_by(|a, b| a.cursor() > b.cursor()));
    for states in [vec![], vec![EndState::Failed], vec![EndState::Succeeded, EndState::Cancelled]] {
        for (since, before) in
            [(None, None), (Some(at(1_000_001)), None), (Some(at(1_000_001)), Some(at(1_000_003)))]
        {
            let mut query = EndedQuery::default();
            (query.states, query.since, query.before) = (states.clone(), since, before);
            let matches = |ended: &&EndedTask| query.matches(ended.end.state, ended.ended_at);
            let expected: Vec<_> = whole.iter().filter(matches).map(EndedTask::cursor).collect();
            let (mut got, mut after): (Vec<EndedCursor>, _) = (Vec::new(), None);
            loop {
                let page = queue.ended(&p, &query, Page::of(7).after(after)).await.unwrap();
                let Some(last) = page.last() else { break };
                after = Some(last.cursor());
                got.extend(page.iter().map(EndedTask::cursor));
            }
            assert_eq!(got, expected, "{query:?}");
            let number = expected.len() as u64;
            assert_eq!(queue.count_ended(&p, &query, 1000).await.unwrap(), number);
            assert_eq!(queue.count_ended(&p, &query, 4).await.unwrap(), number.min(4));
        }
    }
}

#[tokio::test]
async fn a_cancellation_stores_the_end_of_what_it_removes_in_its_statement() {
    let program = Postgres::new().setting("log_statement", "all");
    let Some(server) = start_if_installed(program).await.unwrap() else { return };
    let queue = PostgresQueue::builder(server.url()).unwrap().notify(false).open().await.unwrap();
    let p = part("p");
    let member = |text: &str| MessageData::new(text).with_group("g");
    let messages = [
        member("held"),
        member("behind"),
        MessageData::new("waits").with_delay(DAY),
        MessageData::new("no end"),
    ];
    for outcome in queue.push(&p, &messages).await {
        outcome.unwrap();
    }
    let held = pull(&queue, &p, 1).await.remove(0);
    let end = Some(Arc::new(TaskEnd::new(EndState::Cancelled).with_result("r")));
    let task = |id, end: &Option<Arc<TaskEnd>>| Cancelled { id, end: end.clone() };
    let [first, behind, waits, no_end] = [0, 1, 2, 3].map(|n: usize| messages[n].id());
    let tasks = [
        task(behind, &end),
        task(no_end, &None),
        task(first, &end),
        task(MessageId::new(), &end),
        task(waits, &end),
    ];
    let (cancelled, used) = called(&server, queue.cancel(&p, &tasks)).await;
    let cancelled: Vec<_> = cancelled.into_iter().map(Result::unwrap).collect();
    assert_eq!(cancelled, [Removed, Removed, Requested, NotFound, Removed]);
    assert_eq!(used, ["cancel_counted"]);
    assert_eq!(count(&queue, &p).await, 2);
    for id in [behind, waits] {
        assert_eq!(find(&queue, &p, id).await.unwrap().end.result.as_deref(), Some(&b"r"[..]));
    }
    let (_, used) = called(&server, queue.cancel(&p, &[task(first, &None)])).await;
    assert_eq!(used, ["take_out"], "without ends, as ever");
    queue.settle(&[Settlement::new(held.lease, Action::Remove)]).await.remove(0).unwrap();
    let again = queue.cancel(&p, &tasks).await;
    assert!(again.into_iter().all(|outcome| outcome.unwrap() == NotFound));
    assert_eq!(count(&queue, &p).await, 2);
}

#[tokio::test]
async fn a_schema_of_the_release_before_gets_the_tables_and_keeps_its_messages() {
    let Some(bed) = Bed::empty().await else { return };
    let (mut conn, schema, p) = (bed.connect().await, &bed.schema, part("p"));
    make_old(&mut conn, schema, 3).await;
    push_old(&mut conn, schema, &MessageData::new("old")).await;
    let queue = bed.open().await;
    queue.check().await.unwrap();
    let held = pull(&queue, &p, 1).await.remove(0);
    push_old(&mut conn, schema, &MessageData::new("later")).await;
    queue.settle(&[ending(&held, &done())]).await.remove(0).unwrap();
    assert_eq!(find(&queue, &p, held.message.id()).await.unwrap().end.state, EndState::Succeeded);
    assert_eq!(drain(&queue, &p).await, ["later"]);
}

#[tokio::test]
async fn who_waits_in_one_process_is_told_when_another_ends_the_task() {
    let Some(bed) = Bed::find().await else { return };
    is_told_of_ends(bed.open().await, bed.open().await).await.unwrap();
}
