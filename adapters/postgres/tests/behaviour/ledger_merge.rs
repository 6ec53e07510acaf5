//! Of the ends of a task that are recorded the greatest is left, whoever records them and whenever.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{LedgerQueueStorage, PullQueueStorage, TaskEnd};
use anyqueue::{EndState, MessageId};
use sqlx::{AssertSqlSafe, Connection};
use tokio::task::JoinSet;

use crate::common::{Bed, SOON, part, pull, push, run};
use crate::ledger::{DAY, count, done, end_new, ending, find};
use crate::locks::until_locked;

fn at(attempt: u32) -> Arc<TaskEnd> {
    Arc::new(TaskEnd::new(EndState::Failed).with_attempt(attempt).with_keep(Some(DAY * attempt)))
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_recorded_at_once_in_any_order_and_doubled_leave_the_greatest_of_each_task() {
    let Some(bed) = Bed::find().await else { return };
    let handles = [bed.open().await, bed.open().await];
    let (p, ids) = (part("p"), (0..50).map(|_| MessageId::new()).collect::<Vec<_>>());
    let mut recording = JoinSet::new();
    for caller in 0..8 {
        let (queue, p, mut ids) = (handles[caller % 2].clone(), p.clone(), ids.clone());
        recording.spawn(async move {
            for round in 0..6 {
                fastrand::shuffle(&mut ids);
                let attempt = 1 + u32::try_from((caller * 5 + round * 7) % 20).unwrap();
                let ends: Vec<_> = ids.iter().map(|id| (*id, at(attempt))).collect();
                for outcome in queue.record_ended(&p, &ends).await {
                    outcome.unwrap();
                }
            }
        });
    }
    tokio::time::timeout(SOON * 3, recording.join_all()).await.expect("nobody waits for another for long");
    let greatest =
        (0..8).flat_map(|caller| (0..6).map(move |round| 1 + (caller * 5 + round * 7) % 20)).max().unwrap();
    assert_eq!(count(&handles[0], &p).await, 50, "one of each");
    for found in handles[1].find_ended(&p, &ids).await {
        assert_eq!(found.unwrap().unwrap().end.attempt, greatest);
    }
}

#[tokio::test]
async fn an_end_of_a_settlement_gives_way_to_a_greater_one_only_and_one_that_lapsed_to_any() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &["m"]).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let id = held.message.id();
    queue.settle(&[ending(&held, &done().with_attempt(5))]).await.remove(0).unwrap();
    for (attempt, left) in [(4, 5), (6, 6), (6, 6), (5, 6)] {
        queue.record_ended(&p, &[(id, at(attempt))]).await.remove(0).unwrap();
        assert_eq!(find(&queue, &p, id).await.unwrap().end.attempt, left);
    }
    bed.run(format!("UPDATE {}.ended SET expires_at = 5", bed.schema)).await;
    assert_eq!(find(&queue, &p, id).await, None);
    queue.record_ended(&p, &[(id, at(1))]).await.remove(0).unwrap();
    assert_eq!((find(&queue, &p, id).await.unwrap().end.attempt, count(&queue, &p).await), (1, 1));
}

/// The settlement's transaction has not ended yet when the lesser end is recorded.
#[tokio::test]
async fn a_settlement_that_is_just_storing_its_end_is_waited_for() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    push(&queue, &p, &["m"]).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let (id, mut conn) = (held.message.id(), bed.connect().await);
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("DELETE FROM {schema}.message")).await;
    let recording = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        async move { queue.record_ended(&p, &[(id, at(1))]).await.remove(0) }
    });
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}' AND wait_event_type = 'Lock'"
    );
    let mut watch = bed.connect().await;
    let waiting = async {
        while sqlx::query_scalar::<_, i64>(AssertSqlSafe(waits.clone())).fetch_one(&mut watch).await.unwrap()
            == 0
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect("it waits");
    let body = done().with_attempt(9).encode().unwrap();
    let store = format!(
        "SELECT {schema}.store_ended(ARRAY[1], ARRAY[(SELECT part FROM {schema}.partition)], ARRAY[$1], ARRAY[1], ARRAY[4::smallint], ARRAY[NULL]::bigint[], ARRAY[$2], ARRAY[$3], '{{}}')"
    );
    let query = sqlx::query(AssertSqlSafe(store)).bind(sqlx::types::Uuid::from_bytes(*id.as_bytes()));
    let query = query.bind(i64::try_from(done().with_attempt(9).rank()).unwrap()).bind(body);
    query.execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    recording.await.unwrap().unwrap();
    assert_eq!((find(&queue, &p, id).await.unwrap().end.attempt, count(&queue, &p).await), (9, 1));
}

#[tokio::test]
async fn many_ends_that_are_just_recorded_in_one_partition_keep_no_other_waiting() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let of_each = |value: &str| format!("array_fill({value}, ARRAY[1000])");
    let [state, zero, none, kind] = ["1::smallint", "0::bigint", "NULL::bytea", "''::bytea"].map(of_each);
    let ids = "ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 1000) ORDER BY 1)";
    let record = format!(
        "SELECT {schema}.record_counted('q', {ids}, {state}, {zero}, {zero}, {none}, {none}, {kind}, {zero}, {zero})"
    );
    run(&mut tx, record).await;
    let ends: Vec<_> = (0..200).map(|_| (MessageId::new(), at(1))).collect();
    let recorded = tokio::time::timeout(SOON, queue.record_ended(&p, &ends)).await;
    assert!(recorded.expect("it waits for nobody").iter().all(Result::is_ok));
    tx.commit().await.unwrap();
    assert_eq!(count(&queue, &p).await, 200);
}

/// Its transaction has not ended yet when the lesser end is recorded.
#[tokio::test]
async fn a_process_of_the_release_before_that_is_just_recording_an_end_is_waited_for() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    end_new(&queue, &p, 1, &done()).await;
    let (id, mut conn) = (MessageId::new(), bed.connect().await);
    let mut tx = conn.begin().await.unwrap();
    let record = format!(
        "SELECT {schema}.record_ended('p', ARRAY[$1], ARRAY[4::smallint], ARRAY[NULL]::bigint[], ARRAY[$2], ARRAY[$3], '{{}}')"
    );
    let end = done().with_attempt(9);
    let query = sqlx::query(AssertSqlSafe(record)).bind(sqlx::types::Uuid::from_bytes(*id.as_bytes()));
    let query = query.bind(i64::try_from(end.rank()).unwrap()).bind(end.encode().unwrap());
    query.execute(&mut *tx).await.unwrap();
    let recording = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        async move { queue.record_ended(&p, &[(id, at(1))]).await.remove(0) }
    });
    tokio::time::timeout(SOON, until_locked(&bed, 1)).await.expect("it waits");
    tx.commit().await.unwrap();
    recording.await.unwrap().unwrap();
    assert_eq!((find(&queue, &p, id).await.unwrap().end.attempt, count(&queue, &p).await), (9, 2));
}
