//! Pushes that change what has their key: what becomes of it, and whom they wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyqueue::OnDuplicate::{self, Behind, Earlier, Keep, Replace};
use anyqueue::adapter::{
    Action, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, Settlement,
};
use anyqueue::{Error, ErrorKind, MessageData, PartitionId, PushOutcome, Result, RetryClass, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use sqlx::Connection;

use crate::common::{Bed, LEASE, SOON, part, pull, pull_wait, push, remove, run, texts};
use crate::locks::until_locked;
use crate::successors::{drain, removal};

pub(crate) fn keyed(text: &str, on_duplicate: OnDuplicate) -> MessageData {
    MessageData::new(text).with_dedup_key("k").with_on_duplicate(on_duplicate)
}

pub(crate) async fn push_one(
    queue: &PostgresQueue,
    partition: &PartitionId,
    message: MessageData,
) -> PushOutcome {
    queue.push(partition, &[message]).await.remove(0).unwrap()
}

#[tokio::test]
async fn a_member_behind_others_is_replaced_where_it_stands_and_holds_up_no_other() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let member = |text: &str| MessageData::new(text).with_group("g");
    let behind = member("old").with_dedup_key("k");
    queue.push(&p, &[member("head"), behind.clone(), member("last")]).await;
    let other = |what| member("other").with_dedup_key("other").with_on_duplicate(what);
    let batch = [
        keyed("new", Replace).with_group("h"),
        other(Replace),
        keyed("newer", Replace),
        keyed("not", Earlier),
    ];
    let outcomes: Vec<_> = queue.push(&p, &batch).await.into_iter().map(Result::unwrap).collect();
    let replaced = PushOutcome::Replaced(behind.id());
    let kept = PushOutcome::Duplicate(Some(behind.id()));
    assert_eq!(outcomes, [replaced, PushOutcome::Stored(batch[1].id()), replaced, kept]);
    assert_eq!(drain(&queue, &p).await, ["head", "newer", "last", "other"]);
}

/// The one that is removed waits for its group, where the next member is replaced; the push waits for the key of the one that is removed.
#[tokio::test]
async fn replacing_a_member_while_its_group_goes_on_locks_nobody_out() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let member = |text: &str, key: &str| MessageData::new(text).with_group("g").with_dedup_key(key);
    queue.push(&p, &[member("head", "z"), member("old", "a")]).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {schema}.message_group FOR UPDATE")).await;
    let removing = tokio::spawn({
        let (queue, lease) = (queue.clone(), held.lease.clone());
        async move { remove(&queue, &lease).await }
    });
    until_locked(&bed, 1).await;
    let pushing = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        let batch =
            [member("new", "a"), member("after", "z")].map(|message| message.with_on_duplicate(Replace));
        async move { queue.push(&p, &batch).await }
    });
    until_locked(&bed, 2).await;
    tx.rollback().await.unwrap();
    assert_eq!(removing.await.unwrap(), SettleOutcome::Settled);
    for pushed in pushing.await.unwrap() {
        pushed.unwrap();
    }
    assert_eq!(drain(&queue, &p).await, ["new", "after"]);
}

fn all<T>(outcomes: Vec<Result<T>>) -> Result<Vec<T>> {
    outcomes.into_iter().collect()
}

/// What a call returned, or `None` if the server ended it in favour of another, so that it has to be made again, as core does.
/// Counts how often.
fn unless_ended<T>(ended: &AtomicU32, outcome: Result<T>) -> Option<T> {
    let count = |error: Error| {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Safe), "{error}");
        ended.fetch_add(1, Ordering::Relaxed);
    };
    outcome.map_err(count).ok()
}

/// Batches of the same few keys, in all orders, each message of another kind.
#[tokio::test]
async fn many_that_follow_and_replace_each_other_while_deliveries_end_hardly_ever_lock_one_out() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 60;
    const MOST: u32 = 4; // of nearly a thousand calls
    let Some(bed) = Bed::find().await else { return };
    let (p, ended) = (part("p"), Arc::new(AtomicU32::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (queue, p, ended) = (bed.open().await, p.clone(), Arc::clone(&ended));
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let message = |n: usize| {
                    let message = MessageData::new("m").with_dedup_key(format!("k{}", (n * 5 + task) % 9));
                    let message =
                        message.with_on_duplicate([Behind, Replace, Keep, Earlier][(n + round) % 4]);
                    match n % 3 {
                        0 => message.with_group(format!("g{}", (n + round) % 4)),
                        1 => message.with_delay(Duration::from_millis(5)),
                        _ => message,
                    }
                };
                let batch: Vec<_> = (0..6).map(message).collect();
                while unless_ended(&ended, all(queue.push(&p, &batch).await)).is_none() {}
                let held = loop {
                    let pulled = queue.pull(&p, PullRequest::new(4, Duration::ZERO, LEASE)).await;
                    if let Some(held) = unless_ended(&ended, pulled) {
                        break held;
                    }
                };
                let ends: Vec<_> = held.iter().map(|held| removal(held, &[])).collect();
                while unless_ended(&ended, all(queue.settle(&ends).await)).is_none() {}
            }
            queue
        });
    }
    let queues = tasks.join_all().await;
    let ended = ended.load(Ordering::Relaxed);
    assert!(ended <= MOST, "{ended} calls were ended");
    tokio::time::sleep(Duration::from_millis(50)).await; // until all delays are over
    while queues[0].counts(&p).await.unwrap().ready != Some(0) {
        assert!(!drain(&queues[0], &p).await.is_empty(), "what waits can be pulled");
    }
}

#[tokio::test]
async fn who_is_followed_keeps_nobody_from_the_key_whatever_becomes_of_it() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let dead = Action::Move { to: p.dead_letters(), headers: None };
    for end in [Action::Remove, Action::Release, Action::Retry, dead] {
        push_one(&queue, &p, keyed("followed", Keep)).await;
        let held = pull(&queue, &p, 1).await.remove(0);
        let next = keyed("next", Behind);
        assert_eq!(push_one(&queue, &p, next.clone()).await, PushOutcome::Stored(next.id()));
        let settled = queue.settle(&[Settlement::new(held.lease.clone(), end.clone())]).await.remove(0);
        assert_eq!(settled.unwrap(), SettleOutcome::Settled, "{end:?}");
        let taken = PushOutcome::Duplicate(Some(next.id()));
        assert_eq!(push_one(&queue, &p, keyed("third", Keep)).await, taken, "{end:?}");
        queue.delete(&p, &[held.lease.id]).await.remove(0).unwrap();
        assert_eq!(push_one(&queue, &p, keyed("third", Keep)).await, taken, "{end:?}");
        assert_eq!(drain(&queue, &p).await, ["next"], "{end:?}");
    }
}

#[tokio::test]
async fn a_lease_that_ended_is_waiting_though_nobody_has_looked() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let first = keyed("old", Keep);
    push_one(&queue, &p, first.clone()).await;
    let short = PullRequest::new(1, Duration::ZERO, Duration::from_millis(50));
    let held = queue.pull(&p, short).await.unwrap().remove(0);
    tokio::time::sleep(Duration::from_millis(60)).await;
    let waits = PushOutcome::Duplicate(Some(first.id()));
    assert_eq!(push_one(&queue, &p, keyed("behind", Behind)).await, waits);
    assert_eq!(push_one(&queue, &p, keyed("earlier", Earlier)).await, waits);
    assert_eq!(push_one(&queue, &p, keyed("new", Replace)).await, PushOutcome::Replaced(first.id()));
    assert_eq!(remove(&queue, &held.lease).await, SettleOutcome::Lost);
    let again = pull(&queue, &p, 9).await;
    assert_eq!((texts(&again), again[0].delivery_count), (vec!["new".to_owned()], Some(2)));
}

#[tokio::test]
async fn what_is_brought_forward_wakes_pulls_and_comes_behind_what_is_ready() {
    let Some(bed) = Bed::find().await else { return };
    let open = async || {
        let builder = PostgresQueue::builder(&bed.url()).unwrap().poll_interval(Duration::from_mins(1));
        builder.open().await.unwrap()
    };
    let (queue, other, p) = (open().await, open().await, part("p"));
    for (delay, waiter) in [(0, &queue), (0, &other), (300, &queue), (300, &other)] {
        let late = keyed("late", Keep).with_delay(LEASE);
        push_one(&queue, &p, late.clone()).await;
        let waiting = tokio::spawn({
            let (waiter, p) = (waiter.clone(), p.clone());
            async move { pull_wait(&waiter, &p, 1).await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await; // until it listens
        let earlier = keyed("early", Earlier).with_delay(Duration::from_millis(delay));
        assert_eq!(push_one(&queue, &p, earlier).await, PushOutcome::Replaced(late.id()));
        let got = tokio::time::timeout(SOON / 2, waiting).await.expect("it is woken").unwrap();
        assert_eq!(texts(&got), ["early"]);
        remove(&queue, &got[0].lease).await;
    }
    push_one(&queue, &p, keyed("late", Keep).with_delay(LEASE)).await;
    push(&queue, &p, &["ready"]).await;
    push_one(&queue, &p, keyed("early", Earlier)).await;
    push(&queue, &p, &["later"]).await;
    assert_eq!(drain(&queue, &p).await, ["ready", "early", "later"]);
}

#[tokio::test]
async fn successors_do_what_pushes_after_the_end_would() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, next) = (bed.open().await, part("p"), part("next"));
    let waiting = keyed("waiting", Keep);
    push_one(&queue, &next, waiting.clone()).await;
    let member = |text: &str| MessageData::new(text).with_group("g");
    queue
        .push(
            &p,
            &[member("1").with_dedup_key("own"), member("2").with_dedup_key("two"), MessageData::new("3")],
        )
        .await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let over = |text: &str, key: &str, what| member(text).with_dedup_key(key).with_on_duplicate(what);
    let then = [
        (&next, keyed("replaced", Replace)),
        (&p, over("2 replaced", "two", Replace)),
        (&p, over("stored", "own", Replace)),
        (&p, over("replaced at once", "own", Replace)),
        (&p, over("not stored", "own", Behind)),
    ];
    let lost = removal(&held, &then);
    assert_eq!(queue.settle(&[removal(&held, &then)]).await.remove(0).unwrap(), SettleOutcome::Settled);
    assert_eq!(queue.settle(&[lost]).await.remove(0).unwrap(), SettleOutcome::Lost);
    assert_eq!(drain(&queue, &next).await, ["replaced"]);
    assert_eq!(drain(&queue, &p).await, ["2 replaced", "3", "replaced at once"]);

    // Of two that end only one brings something, and is lost: the other's group goes on.
    queue.push(&p, &[member("head"), member("next of the group"), MessageData::new("lost")]).await;
    let held = pull(&queue, &p, 2).await;
    remove(&queue, &held[1].lease).await;
    let ends = [removal(&held[0], &[]), removal(&held[1], &[(&p, keyed("of the lost", Replace))])];
    let settled: Vec<_> = queue.settle(&ends).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(settled, [SettleOutcome::Settled, SettleOutcome::Lost]);
    assert_eq!(drain(&queue, &p).await, ["next of the group"]);
}

#[tokio::test]
async fn a_transaction_of_the_application_changes_what_waits_when_it_is_committed() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let member = |text: &str, key: &str, what| {
        MessageData::new(text).with_group("g").with_dedup_key(key).with_on_duplicate(what)
    };
    let first = [member("head", "1", Keep), member("behind", "2", Keep)];
    queue.push(&p, &first).await;
    let late = keyed("late", Keep).with_delay(LEASE);
    push_one(&queue, &p, late.clone()).await;
    let held = pull(&queue, &p, 9).await.remove(0);
    let batch = [
        member("after", "1", Behind),
        member("behind, new", "2", Replace),
        keyed("early", Earlier),
        keyed("no key", Replace).with_options(anyqueue::TaskOptions::default()),
        MessageData::new("no key").with_on_duplicate(Replace),
    ];
    let mut conn = bed.connect().await;
    for is_kept in [false, true] {
        let mut tx = conn.begin().await.unwrap();
        let pushed = queue.push_in(&mut tx, &p, &batch).await.unwrap();
        let outcomes: Vec<_> =
            pushed.outcomes.iter().map(|outcome| outcome.as_ref().map_err(anyqueue::Error::kind)).collect();
        let expected = [
            PushOutcome::Stored(batch[0].id()),
            PushOutcome::Replaced(first[1].id()),
            PushOutcome::Replaced(late.id()),
            PushOutcome::Stored(batch[3].id()),
        ];
        assert_eq!(outcomes[..4], expected.each_ref().map(Ok));
        assert_eq!(outcomes[4], Err(ErrorKind::InvalidInput));
        if is_kept {
            tx.commit().await.unwrap();
            pushed.after_commit.notify();
        } else {
            tx.rollback().await.unwrap();
            assert_eq!(queue.counts(&p).await.unwrap().delayed, Some(1));
        }
    }
    assert_eq!(remove(&queue, &held.lease).await, SettleOutcome::Settled);
    let mut left = drain(&queue, &p).await;
    left.sort_unstable();
    assert_eq!(left, ["after", "behind, new", "early", "no key"]);
}
