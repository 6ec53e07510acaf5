//! What others keep locked: nobody else waits for it, asks for it without a pause, or leaves a server process behind.

use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement,
};
use anyqueue::{CancelOutcome, MessageData, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::common::{Bed, LEASE, SOON, part, pull, push, run, texts};
use crate::successors;

fn removal(held: &RawDelivery) -> Settlement {
    Settlement::new(held.lease.clone(), Action::Remove)
}

pub(crate) async fn number(conn: &mut PgConnection, sql: String) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(conn).await.unwrap()
}

/// Waits until this many of the bed's connections wait for a lock.
pub(crate) async fn until_locked(bed: &Bed, count: i64) {
    let mut watcher = bed.connect().await;
    let text = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '{}'",
        bed.schema
    );
    while number(&mut watcher, text.clone()).await < count {
        run(&mut watcher, "SELECT pg_sleep(0.01)".to_owned()).await;
    }
}

#[tokio::test]
async fn calls_that_are_given_up_leave_no_server_process_behind() {
    const CONNECTIONS: u32 = 2;
    let Some(bed) = Bed::find().await else { return };
    let (owner, p) = (bed.open().await, part("p"));
    push(&owner, &p, &["held"]).await;
    let held = pull(&owner, &p, 1).await.remove(0);
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {}.message FOR UPDATE", bed.schema)).await;

    let url = bed.url().replace(&format!("application_name={}", bed.schema), "application_name=given_up");
    // The shorter one is enough to open the handle, also on a busy machine.
    for (call_timeout, patience) in [(Duration::from_secs(1), SOON), (SOON, Duration::from_millis(200))] {
        let queue = PostgresQueue::builder(&url).unwrap().max_connections(CONNECTIONS);
        let queue = queue.call_timeout(call_timeout).open().await.unwrap();
        let processes = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'given_up'";
        let (mut watcher, mut most) = (bed.connect().await, 0);
        for _ in 0..12 {
            let (first, second) = ([removal(&held)], [removal(&held)]);
            let calls = async { tokio::join!(queue.settle(&first), queue.settle(&second)) };
            // Dropped half-way where it does not end by itself.
            if let Ok((first, _)) = tokio::time::timeout(patience, calls).await {
                assert!(first[0].is_err());
            }
            most = most.max(number(&mut watcher, processes.to_owned()).await);
        }
        assert!(most <= i64::from(CONNECTIONS) + 1, "{most} server processes");
        drop(queue);
        // Or the last of them would do what it was asked for after all.
        while number(&mut watcher, processes.to_owned()).await > 0 {
            run(&mut watcher, "SELECT pg_sleep(0.01)".to_owned()).await;
        }
    }
    tx.rollback().await.unwrap();
    assert_eq!(*owner.settle(&[removal(&held)]).await[0].as_ref().unwrap(), SettleOutcome::Settled);
}

#[tokio::test]
async fn waiting_pulls_do_not_ask_without_a_pause_for_what_is_due_but_locked() {
    const WATCHED: Duration = Duration::from_secs(3);
    const CLAIMS_PER_SECOND: f64 = 30.0;
    let Some(bed) = Bed::find().await else { return };
    let (owner, p) = (bed.open().await, part("p"));
    push(&owner, &p, &["held"]).await;
    let short = PullRequest::new(1, Duration::ZERO, Duration::from_millis(200));
    assert_eq!(owner.pull(&p, short).await.unwrap().len(), 1);
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {}.message FOR UPDATE", bed.schema)).await;

    // Each claim takes a value, which no rollback releases.
    bed.run(format!(
        "CREATE SEQUENCE {0}.claims; ALTER FUNCTION {0}.pull RENAME TO counted_pull;
         CREATE FUNCTION {0}.pull(text, boolean, integer, bigint, uuid, smallint[], bigint[], smallint[], bigint)
         RETURNS TABLE (part integer, id uuid, lane smallint, pos bigint, deliveries integer, age interval, headers bytea, body bytea, place bytea, looked_us integer, number integer)
         LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''{0}.claims''); RETURN QUERY SELECT * FROM {0}.counted_pull($1, $2, $3, $4, $5, $6, $7, $8, $9); END'",
        bed.schema
    ))
    .await;
    let waiter = bed.open().await;
    let waiting = tokio::spawn({
        let p = p.clone();
        async move { waiter.pull(&p, PullRequest::new(1, SOON, LEASE)).await.unwrap() }
    });
    let mut watcher = bed.connect().await;
    let mut claims =
        async || number(&mut watcher, format!("SELECT last_value FROM {}.claims", bed.schema)).await;
    let begun = Instant::now();
    while claims().await < 2 {
        assert!(begun.elapsed() < SOON, "it does not ask again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (before, since) = (claims().await, Instant::now());
    tokio::time::sleep(WATCHED).await;
    let made = f64::from(i32::try_from(claims().await - before).unwrap());
    let took = since.elapsed();
    assert!(made <= CLAIMS_PER_SECOND * took.as_secs_f64(), "{made} claims in {took:?}");
    tx.rollback().await.unwrap();
    assert_eq!(texts(&waiting.await.unwrap()), ["held"]);
}

#[tokio::test]
async fn a_purge_passes_over_what_is_locked_and_deletes_all_the_rest() {
    const MESSAGES: usize = 5000;
    let Some(bed) = Bed::find().await else { return };
    let (queue, schema) = (bed.open().await, &bed.schema);
    for _ in 0..MESSAGES / 1000 {
        push(&queue, &part("p"), &["x"; 1000]).await;
    }
    let grouped: Vec<_> =
        (0..1000).map(|n| MessageData::new("x").with_group(format!("g{}", n % 10))).collect();
    queue.push(&part("p"), &grouped).await;
    // As pulls do with what comes first.
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let first =
        format!("SELECT FROM {schema}.message WHERE state = 0 ORDER BY lane, pos LIMIT 1500 FOR UPDATE");
    run(&mut tx, first).await;
    let mut purged = 0;
    loop {
        let page = queue.purge(&part("p"), 1000).await.unwrap();
        purged += page;
        if page < 1000 {
            break;
        }
    }
    assert_eq!(purged, MESSAGES - 1500 + grouped.len());
    tx.rollback().await.unwrap();
    assert_eq!(queue.counts(&part("p")).await.unwrap().ready, Some(1500));
}

#[tokio::test]
async fn a_purge_waits_for_what_is_just_being_released() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, &part("p"), &["x"; 10]).await;
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {}.message FOR UPDATE", bed.schema)).await;
    let purging = tokio::spawn({
        let queue = queue.clone();
        async move { queue.purge(&part("p"), 1000).await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    tx.rollback().await.unwrap();
    assert_eq!(purging.await.unwrap(), 10);
}

/// The group's lock is held until both wait: whoever locks the group first must not need a message of the other's.
#[tokio::test]
async fn cancelling_the_held_head_of_a_group_while_it_is_settled_locks_nobody_out() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let messages: Vec<_> = (0..2).map(|n| MessageData::new(format!("{n}")).with_group("g")).collect();
    queue.push(&p, &messages).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {schema}.message_group FOR UPDATE")).await;
    let cancelling = tokio::spawn({
        let (queue, p, ids) = (queue.clone(), p.clone(), [messages[0].id(), messages[1].id()]);
        async move { queue.request_cancel(&p, &ids).await }
    });
    until_locked(&bed, 1).await;
    let settling = tokio::spawn({
        let (queue, removal) = (queue.clone(), removal(&held));
        async move { queue.settle(&[removal]).await.remove(0) }
    });
    until_locked(&bed, 2).await;
    tx.rollback().await.unwrap();
    assert_eq!(settling.await.unwrap().unwrap(), SettleOutcome::Settled);
    let cancelled: Vec<_> = cancelling.await.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(cancelled, [CancelOutcome::Requested, CancelOutcome::Removed]);
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(0));
}

/// Each removes the head of a group that the other's successor joins. Both wait for a message of the same id first, which one of them
/// then has to wait for again: it must not hold a group meanwhile.
#[tokio::test]
async fn ends_whose_successors_join_each_others_groups_lock_nobody_out() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, links, other) = (bed.open().await, [part("a"), part("b")], part("other"));
    let member = || MessageData::new("m").with_group("g");
    let shared = MessageData::new("shared");
    push(&queue, &other, &["the partition is known"]).await;
    let mut ends = Vec::new();
    for (link, next) in [(&links[0], &links[1]), (&links[1], &links[0])] {
        queue.push(link, &[member(), member()]).await;
        let held = pull(&queue, link, 1).await.remove(0);
        ends.push(successors::removal(&held, &[(&other, shared.clone()), (next, member())]));
    }
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let pushed = queue.push_in(&mut tx, &other, std::slice::from_ref(&shared)).await.unwrap();
    assert!(pushed.outcomes[0].is_ok());
    let settling = ends.into_iter().map(|end| {
        let queue = queue.clone();
        tokio::spawn(async move { queue.settle(&[end]).await.remove(0) })
    });
    let settling: Vec<_> = settling.collect();
    until_locked(&bed, 2).await;
    tx.rollback().await.unwrap();
    for settled in settling {
        assert_eq!(settled.await.unwrap().unwrap(), SettleOutcome::Settled);
    }
    for link in &links {
        assert_eq!(queue.counts(link).await.unwrap().ready, Some(2));
    }
    assert_eq!(queue.counts(&other).await.unwrap().ready, Some(2));
}

#[tokio::test]
async fn deleting_a_member_that_its_group_lets_go_on_meanwhile_deletes_it() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let messages: Vec<_> = (0..2).map(|n| MessageData::new(format!("{n}")).with_group("g")).collect();
    queue.push(&p, &messages).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {schema}.message_group FOR UPDATE")).await;
    let settling = tokio::spawn({
        let (queue, removal) = (queue.clone(), removal(&held));
        async move { queue.settle(&[removal]).await.remove(0) }
    });
    until_locked(&bed, 1).await;
    let deleting = tokio::spawn({
        let (queue, p, ids) = (queue.clone(), p.clone(), [messages[1].id()]);
        async move { queue.delete(&p, &ids).await.remove(0) }
    });
    until_locked(&bed, 2).await;
    tx.rollback().await.unwrap();
    settling.await.unwrap().unwrap();
    assert_eq!(deleting.await.unwrap().unwrap(), anyqueue::DeleteOutcome::Deleted);
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(0));
}
