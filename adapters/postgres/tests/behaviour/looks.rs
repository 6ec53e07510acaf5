//! What a pull must not deliver, or not out of its order, if something changes while it looks.

use std::time::Duration;

use anyqueue::adapter::{
    Action, PauseQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, Settlement,
};
use anyqueue::{MessageData, PushOutcome, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use sqlx::Connection;
use tokio_util::sync::CancellationToken;

use crate::common::{Bed, LEASE, SOON, part, pull, push, run, texts};
use crate::locks::{number, until_locked};
use crate::whole_groups::{member, pull_whole};

const FROM_ALL: &str = "ARRAY[0]::smallint[], ARRAY[0]::bigint[], ARRAY[19]::smallint[], NULL";

/// Pulls in a transaction that stays open, and returns how many messages came, and how many of the others are locked.
async fn pulled_and_locked(bed: &Bed, max: usize) -> (i64, i64) {
    let (mut conn, mut other) = (bed.connect().await, bed.connect().await);
    let mut tx = conn.begin().await.unwrap();
    let schema = &bed.schema;
    let pull = format!(
        "SELECT count(*) FROM {schema}.pull('p', false, {max}, 60000, gen_random_uuid(), {FROM_ALL})"
    );
    let pulled = number(&mut tx, pull).await;
    let all = number(&mut other, format!("SELECT count(*) FROM {schema}.message")).await;
    let free =
        format!("SELECT count(*) FROM (SELECT FROM {schema}.message FOR UPDATE SKIP LOCKED) AS unlocked");
    let free = number(&mut other, free).await;
    tx.commit().await.unwrap();
    (pulled, all - pulled - free)
}

/// Lets the server's clock be an hour behind for the first so many places that a pull asks for. Before the last of them, a message becomes
/// ready in front of all others, which was set aside.
async fn delay_clock(bed: &Bed, times: u32) {
    let places = "CREATE SEQUENCE {s}.places;
        CREATE OR REPLACE FUNCTION {s}.place_at(p_at timestamptz) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
        DECLARE v_number bigint := nextval('{s}.places');
        BEGIN
            IF v_number = {n} THEN UPDATE {s}.message SET state = 0, due = NULL WHERE state = 2; END IF;
            RETURN (extract(epoch FROM p_at - CASE WHEN v_number < {n} THEN 3600 ELSE 0 END * interval '1 second') * 1000000)::bigint * 1024;
        END $$";
    bed.run(places.replace("{s}", &bed.schema).replace("{n}", &times.to_string())).await;
}

#[tokio::test]
async fn what_a_second_look_leaves_is_not_kept_locked() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &["hidden", "second"]).await;
    bed.run(format!(
        "UPDATE {0}.message SET state = 2, due = 'infinity' WHERE pos = (SELECT min(pos) FROM {0}.message)",
        bed.schema
    ))
    .await;
    delay_clock(&bed, 2).await;
    assert_eq!(pulled_and_locked(&bed, 1).await, (1, 0), "the first look has locked the second message");
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["second"]);
}

#[tokio::test]
async fn messages_come_in_order_though_the_clock_went_back() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &["first", "second", "third", "fourth"]).await;
    delay_clock(&bed, 1_000_000).await;
    assert_eq!(texts(&pull(&queue, &p, 1).await), ["first"]);
    assert_eq!(texts(&pull_whole(&queue, &p, 1, 9).await), ["second"]);
    let held = pull(&queue, &p, 1).await.remove(0);
    let settlement = Settlement::new(held.lease.clone(), Action::Remove);
    let (settled, next) = queue.exchange(&[settlement], &p, PullRequest::new(1, Duration::ZERO, LEASE)).await;
    assert_eq!(*settled[0].as_ref().unwrap(), SettleOutcome::Settled);
    assert_eq!(texts(&next.unwrap()), ["fourth"]);
}

#[tokio::test]
async fn what_is_too_much_for_one_pull_is_not_kept_locked() {
    const MIB: usize = 1024 * 1024;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let messages: Vec<_> = (0..20).map(|_| MessageData::new(vec![7; 2 * MIB])).collect();
    for outcome in queue.push(&p, &messages).await {
        outcome.unwrap();
    }
    assert_eq!(pulled_and_locked(&bed, 20).await, (16, 0));
    assert_eq!(pull(&queue, &p, 20).await.len(), 4);
}

/// The pull has found the partition open, and then waits for a group, which a member joins that is due.
#[tokio::test]
async fn what_is_pushed_after_a_pause_stays_though_a_pull_began_before_it() {
    for is_whole in [false, true] {
        let Some(bed) = Bed::find().await else { return };
        let (queue, p) = (bed.open().await, part("p"));
        queue.push(&p, &[member("held")]).await;
        assert_eq!(pull(&queue, &p, 1).await.len(), 1);
        let mut conn = bed.connect().await;
        drop(queue.push_in(&mut conn, &p, &[member("joins")]).await.unwrap());
        let mut tx = conn.begin().await.unwrap();
        run(&mut tx, format!("SELECT FROM {}.message_group FOR UPDATE", bed.schema)).await;
        let pulling = tokio::spawn({
            let (queue, p) = (queue.clone(), p.clone());
            async move { if is_whole { pull_whole(&queue, &p, 9, 9).await } else { pull(&queue, &p, 9).await } }
        });
        until_locked(&bed, 1).await;
        queue.set_paused(&p, true).await.unwrap();
        push(&queue, &p, &["late"]).await;
        tx.rollback().await.unwrap();
        assert_eq!(texts(&pulling.await.unwrap()), Vec::<String>::new(), "delivered while it is paused");
        queue.set_paused(&p, false).await.unwrap();
        assert_eq!(texts(&pull(&queue, &p, 9).await), ["late"]);
    }
}

/// The push waits for the transaction that has pushed the same key, until the delay of its other message is over.
#[tokio::test]
async fn a_member_whose_delay_ends_during_its_push_is_told_as_stored() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, delay) = (bed.open().await, part("p"), Duration::from_millis(50));
    push(&queue, &p, &["the partition is known"]).await;
    let keyed = || MessageData::new("keyed").with_dedup_key("key");
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    drop(queue.push_in(&mut tx, &p, &[keyed()]).await.unwrap());
    let messages = [keyed(), member("delayed").with_delay(delay)];
    let pushing = tokio::spawn({
        let (queue, p, messages) = (queue.clone(), p.clone(), messages.clone());
        async move { queue.push(&p, &messages).await }
    });
    until_locked(&bed, 1).await;
    tokio::time::sleep(2 * delay).await; // the server's clock has no event to wait for
    tx.commit().await.unwrap();
    let outcomes: Vec<_> = pushing.await.unwrap().into_iter().map(Result::unwrap).collect();
    assert!(matches!(outcomes[0], PushOutcome::Duplicate(_)), "{outcomes:?}");
    assert_eq!(outcomes[1], PushOutcome::Stored(messages[1].id()));
}

/// Callers that go away again and again would otherwise leave more and more pulls that wait for a connection.
#[tokio::test]
async fn a_pull_that_is_stopped_before_a_connection_is_free_is_never_sent() {
    let Some(bed) = Bed::find().await else { return };
    let p = part("p");
    let queue = PostgresQueue::builder(&bed.url()).unwrap().max_connections(1).open().await.unwrap();
    queue.push(&p, &[member("held"), member("next")]).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {}.message_group FOR UPDATE", bed.schema)).await;
    let settling = tokio::spawn({
        let (queue, removal) = (queue.clone(), Settlement::new(held.lease.clone(), Action::Remove));
        async move { queue.settle(&[removal]).await.remove(0) }
    });
    until_locked(&bed, 1).await;
    let stop = CancellationToken::new();
    let pulling = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        let request = PullRequest::new(2, Duration::ZERO, LEASE).with_stop(stop.clone());
        async move { queue.pull(&p, request).await }
    });
    tokio::task::yield_now().await; // it waits for the only connection
    stop.cancel();
    let pulled = tokio::time::timeout(SOON / 4, pulling).await.expect("it still waits for the connection");
    assert_eq!(pulled.unwrap().unwrap().len(), 0);
    assert!(!settling.is_finished());
    tx.rollback().await.unwrap();
    assert_eq!(settling.await.unwrap().unwrap(), SettleOutcome::Settled);
}
