//! Successors that cannot be stored: their deliveries are still held, and nothing else is harmed.

use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage, PullQueueStorage, PullRequest};
use anyqueue::{ErrorKind, MessageData, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use sqlx::AssertSqlSafe;

use crate::common::{Bed, LEASE, part, pull, push, remove, texts};
use crate::successors::{drain, outcomes, removal};

/// Makes the server refuse messages with this text, as it does where its disk is full.
async fn refuse(bed: &Bed, text: &str) {
    bed.run(format!(
        "CREATE FUNCTION {0}.refuse() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''no room'' USING ERRCODE = ''53100''; END';
         CREATE TRIGGER refuse BEFORE INSERT ON {0}.message FOR EACH ROW
             WHEN (position('{text}'::bytea IN NEW.body) > 0) EXECUTE FUNCTION {0}.refuse()",
        bed.schema
    ))
    .await;
}

#[tokio::test]
async fn a_successor_that_cannot_be_stored_leaves_its_delivery_held_and_harms_no_other() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, next) = (bed.open().await, part("p"), part("next"));
    refuse(&bed, "too much").await;
    let (done, full, wrong) =
        (Ok(SettleOutcome::Settled), Err(ErrorKind::Full), Err(ErrorKind::InvalidInput));
    for exchanged in [true, false] {
        push(&queue, &p, &["a", "b", "c", "d"]).await;
        let held = pull(&queue, &p, 4).await;
        let ends = [
            removal(&held[0], &[(&next, MessageData::new("before"))]),
            removal(&held[1], &[(&next, MessageData::new("lost")), (&next, MessageData::new("too much"))]),
            removal(&held[2], &[]),
            removal(&held[3], &[(&next, MessageData::new("m").with_priority(99))]),
        ];
        if exchanged {
            let request = PullRequest::new(9, Duration::ZERO, LEASE);
            let (settled, pulled) = queue.exchange(&ends, &next, request).await;
            assert_eq!(outcomes(&settled), [done, full, done, wrong]);
            let pulled = pulled.unwrap();
            assert_eq!(texts(&pulled), ["before"]);
            remove(&queue, &pulled[0].lease).await;
        } else {
            assert_eq!(outcomes(&queue.settle(&ends).await), [done, full, done, wrong]);
            assert_eq!(drain(&queue, &next).await, ["before"]);
        }
        let alone = removal(&held[1], &[(&next, MessageData::new("too much"))]);
        assert_eq!(outcomes(&queue.settle(&[alone]).await), [full]);
        let held_until_now = [removal(&held[1], &[]), removal(&held[3], &[])];
        assert_eq!(outcomes(&queue.settle(&held_until_now).await), [done; 2]);
    }
    assert_eq!(queue.counts(&next).await.unwrap().ready, Some(0));
}

#[tokio::test]
async fn more_than_a_statement_can_carry_is_stored_all_the_same_or_not_at_all() {
    const BYTES: usize = 30 * 1024 * 1024;
    let Some(bed) = Bed::find().await else { return };
    let builder = PostgresQueue::builder(&bed.url()).unwrap().message_bytes(64 * 1024 * 1024);
    let (queue, p, next) = (builder.open().await.unwrap(), part("p"), part("next"));
    push(&queue, &p, &["m", "lost", "beside"]).await;
    let held = pull(&queue, &p, 3).await;
    let large: Vec<_> = (0..5_u8).map(|n| (&next, MessageData::new(vec![n; BYTES]))).collect();
    remove(&queue, &held[1].lease).await;
    let beside = removal(&held[2], &[(&part("beside"), MessageData::new("small"))]);
    let ends = [removal(&held[0], &large), beside, removal(&held[1], &large)];
    let (done, lost) = (Ok(SettleOutcome::Settled), Ok(SettleOutcome::Lost));
    assert_eq!(outcomes(&queue.settle(&ends).await), [done, done, lost]);
    let mut conn = bed.connect().await;
    let kept = format!(
        "SELECT array_agg(get_byte(body, octet_length(body) - 1) ORDER BY pos) FROM {}.message
         WHERE octet_length(body) > {BYTES}",
        bed.schema
    );
    let kept: Vec<i32> = sqlx::query_scalar(AssertSqlSafe(kept)).fetch_one(&mut conn).await.unwrap();
    assert_eq!(kept, [0, 1, 2, 3, 4]);
    assert_eq!(drain(&queue, &part("beside")).await, ["small"]);

    // The last part is refused: nothing of the others stays.
    refuse(&bed, "too much").await;
    push(&queue, &p, &["m"]).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let none = part("none");
    let mut refused: Vec<_> = (0..3).map(|_| (&none, MessageData::new(vec![7; BYTES]))).collect();
    refused.push((&none, MessageData::new("too much")));
    assert_eq!(outcomes(&queue.settle(&[removal(&held, &refused)]).await), [Err(ErrorKind::Full)]);
    assert_eq!(queue.counts(&none).await.unwrap().ready, Some(0));
    assert_eq!(remove(&queue, &held.lease).await, SettleOutcome::Settled);
}
