//! Counts the statements of pushes, pulls and ends.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{Action, Lease, Settlement, Successor, TaskEnd};
use anyqueue::{Clock, EndState, MessageData, MessageId, OnDuplicate, PartitionId};
use rusqlite::{Connection, StatementStatus};
use tokio_util::sync::CancellationToken;

use crate::ending::Ending;
use crate::job::{Answer, Claim, Work};
use crate::new_message::NewMessage;
use crate::plans::STATEMENTS;
use crate::token::token;
use crate::tx::Parts;
use crate::{
    SqliteQueue, claim, connect, due, ends, group, insert, often, place, record, series, settle, taken,
};

/// How often each statement has run, in the order of [`STATEMENTS`].
fn runs(conn: &Connection) -> Vec<i32> {
    let runs = |text| conn.prepare_cached(text).unwrap().get_status(StatementStatus::Run);
    STATEMENTS.into_iter().map(runs).collect()
}

fn p() -> PartitionId {
    PartitionId::new("p").unwrap()
}

/// Runs a request in its own transaction. Returns the answer, and which statements that took.
fn done(
    queue: &SqliteQueue,
    conn: &Connection,
    parts: &mut Parts,
    work: &Work,
) -> (Answer, Vec<&'static str>) {
    let before = runs(conn);
    let done = group::run(conn, parts, &queue.inner.config, &[work]);
    let answer = done.unwrap_or_else(|failure| panic!("{}", failure.error)).0.remove(0);
    let ran = STATEMENTS.into_iter().zip(before).zip(runs(conn));
    (answer, ran.flat_map(|((text, before), after)| (before..after).map(move |_| text)).collect())
}

/// Pushes a message. Returns which statements that took.
fn pushed(
    queue: &SqliteQueue,
    conn: &Connection,
    parts: &mut Parts,
    message: &MessageData,
) -> Vec<&'static str> {
    let message = NewMessage::prepare(message, 1000, &Clock::system()).unwrap();
    done(queue, conn, parts, &Work::Push { partition: p(), messages: vec![message] }).1
}

/// Pulls one message, of its group up to `group_members`. Returns its lease, and which statements that took.
fn claimed(
    queue: &SqliteQueue,
    conn: &Connection,
    parts: &mut Parts,
    group_members: usize,
) -> (Lease, Vec<&'static str>) {
    let stop = CancellationToken::new();
    let claim = Claim { partition: p(), max: 10, group_members, lease: Duration::from_secs(30), stop };
    let pull = Work::Settle { endings: Vec::new(), claim: Some(claim) };
    let (Answer::Settle(_, Ok(claimed)), to_pull) = done(queue, conn, parts, &pull) else {
        panic!("not claimed")
    };
    let (all, secret) = claimed.take();
    assert_eq!(all.len(), 1);
    let token = token(all[0].stored.seq, secret);
    (Lease { partition: p(), id: MessageId::from_bytes([0; 16]), token }, to_pull)
}

/// Pulls one message, of its group up to `group_members`, and releases it. Returns which statements each
/// took.
fn pulled_and_released(
    queue: &SqliteQueue,
    conn: &Connection,
    parts: &mut Parts,
    group_members: usize,
) -> [Vec<&'static str>; 2] {
    let (lease, to_pull) = claimed(queue, conn, parts, group_members);
    let release = Work::Settle { endings: vec![Ending::release(lease)], claim: None };
    [to_pull, done(queue, conn, parts, &release).1]
}

#[tokio::test]
async fn only_groups_pay_for_being_claimed_whole() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::open(dir.path().join("q.db")).await.unwrap();
    let conn = connect::writer(&queue.inner.config).unwrap();
    let mut parts = Parts::default();
    pushed(&queue, &conn, &mut parts, &MessageData::new("without a group"));
    let to_pull = vec![claim::FIRST, claim::LEASE, claim::UNREADY, claim::NEXT_DUE, due::DUE];
    let to_release = vec![due::BRING, often::READY, settle::HELD, settle::PLACE];
    for group_members in [1, 10] {
        let ran = pulled_and_released(&queue, &conn, &mut parts, group_members);
        assert_eq!(ran, [to_pull.clone(), to_release.clone()], "{group_members}");
    }

    conn.execute_batch("DELETE FROM anyqueue_message; DELETE FROM anyqueue_ready").unwrap();
    pushed(&queue, &conn, &mut parts, &MessageData::new("head").with_group("g"));
    let looks =
        [due::BRING, often::READY, place::LEAVE_HEADS, place::NEXT_OF_GROUP, settle::HELD, settle::PLACE];
    let ran = pulled_and_released(&queue, &conn, &mut parts, 1);
    assert_eq!(ran, [to_pull, looks.to_vec()], "who asks for the first alone pays for it at its end at most");
}

#[tokio::test]
async fn only_the_head_of_a_group_is_looked_at_before_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::open(dir.path().join("q.db")).await.unwrap();
    let conn = connect::writer(&queue.inner.config).unwrap();
    let mut parts = Parts::default();
    let mut removed = |message: MessageData| {
        pushed(&queue, &conn, &mut parts, &message);
        let settlement = Settlement::new(claimed(&queue, &conn, &mut parts, 1).0, Action::Remove);
        let ending = Ending::prepare(&settlement, &queue.inner.config);
        done(&queue, &conn, &mut parts, &Work::Settle { endings: vec![ending], claim: None }).1
    };
    assert_eq!(removed(MessageData::new("m")), [often::TAKE, often::REMOVE]);
    let of_a_head = [
        due::BRING,
        often::TAKE,
        often::REMOVE,
        place::LEAVE_HEADS,
        place::END_GROUP,
        place::NEXT_OF_GROUP,
        settle::HELD,
        settle::PLACE,
    ];
    assert_eq!(removed(MessageData::new("head").with_group("g")), of_a_head);
}

#[tokio::test]
async fn only_a_settlement_with_an_end_pays_for_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::open(dir.path().join("q.db")).await.unwrap();
    let conn = connect::writer(&queue.inner.config).unwrap();
    let mut parts = Parts::default();
    let mut removed_with = |end: Option<TaskEnd>| {
        pushed(&queue, &conn, &mut parts, &MessageData::new("m"));
        let lease = claimed(&queue, &conn, &mut parts, 1).0;
        let settlement = Settlement::new(lease, Action::Remove).with_end(end.map(Arc::new));
        let ending = Ending::prepare(&settlement, &queue.inner.config);
        done(&queue, &conn, &mut parts, &Work::Settle { endings: vec![ending], claim: None }).1
    };
    assert_eq!(removed_with(None), [often::TAKE, often::REMOVE]);
    let stored = removed_with(Some(TaskEnd::new(EndState::Succeeded).with_result("42")));
    assert_eq!(stored, [ends::STORE, often::TAKE, often::REMOVE, series::COUNT]);
    let only_counted = removed_with(Some(TaskEnd::new(EndState::Succeeded).with_keep(Some(Duration::ZERO))));
    assert_eq!(only_counted, [often::TAKE, often::REMOVE, series::COUNT]);
}

#[tokio::test]
async fn a_settlement_with_a_successor_costs_a_removal_and_a_push() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::open(dir.path().join("q.db")).await.unwrap();
    let conn = connect::writer(&queue.inner.config).unwrap();
    let mut parts = Parts::default();
    let mut endings = Vec::new();
    for _ in 0..2 {
        pushed(&queue, &conn, &mut parts, &MessageData::new("m"));
        let lease = claimed(&queue, &conn, &mut parts, 1).0;
        let then = vec![Successor { partition: p(), message: MessageData::new("next") }];
        let settlement = Settlement::new(lease, Action::Remove).with_then(then);
        endings.push(Ending::prepare(&settlement, &queue.inner.config));
    }
    let ran = done(&queue, &conn, &mut parts, &Work::Settle { endings, claim: None }).1;
    let twice = [often::INSERT, often::TAKE, often::REMOVE].map(|text| [text; 2]);
    assert_eq!(ran, [&[due::DUE], twice.as_flattened(), &[place::READY_RUN, insert::HAS_DEAD]].concat());
}

#[tokio::test]
async fn only_who_asks_for_more_than_to_keep_pays_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::open(dir.path().join("q.db")).await.unwrap();
    let conn = connect::writer(&queue.inner.config).unwrap();
    let mut parts = Parts::default();
    let keyed = |key: &str, what| MessageData::new("m").with_dedup_key(key).with_on_duplicate(what);
    pushed(&queue, &conn, &mut parts, &MessageData::new("makes the partition"));

    let free = [due::DUE, often::INSERT, often::READY, insert::HAS_DEAD];
    let kept = [due::DUE, often::INSERT, insert::HAS_DEAD, taken::KNOWN];
    for (key, what) in [("a", OnDuplicate::Keep), ("b", OnDuplicate::Replace), ("c", OnDuplicate::Behind)] {
        assert_eq!(pushed(&queue, &conn, &mut parts, &keyed(key, what)), free, "{what:?}");
        assert_eq!(pushed(&queue, &conn, &mut parts, &keyed(key, OnDuplicate::Keep)), kept);
    }
    let replaced = [&kept[..3], &[record::STORED, record::REPLACE, taken::KNOWN, taken::HOLDER]].concat();
    assert_eq!(pushed(&queue, &conn, &mut parts, &keyed("a", OnDuplicate::Replace)), replaced);
    let refused = [&kept[..], &[taken::HOLDER]].concat();
    for what in [OnDuplicate::Behind, OnDuplicate::Earlier] {
        assert_eq!(pushed(&queue, &conn, &mut parts, &keyed("a", what)), refused, "{what:?}");
    }
}
