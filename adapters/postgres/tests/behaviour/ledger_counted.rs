//! Counts of ends: who counts waits for nobody, and what is no longer kept is freed.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::LedgerQueueStorage;
use anyqueue::{MessageId, Page, PartitionId};
use anyqueue_postgres::PostgresQueue;
use sqlx::Connection;

use crate::common::{Bed, SOON, part, run};
use crate::ledger::{done, end_new, find};
use crate::locks::number;

const KEPT_MINUTES: u64 = 8 * 24 * 60;

async fn counted(queue: &PostgresQueue, p: &PartitionId) -> u64 {
    let cells = queue.series(p, 0..u64::MAX, Page::of(1000)).await.unwrap();
    cells.iter().map(|cell| cell.tasks).sum()
}

#[tokio::test]
async fn a_transaction_that_counts_and_does_not_end_keeps_nobody_waiting() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    end_new(&queue, &p, 3, &done()).await;
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    // As others do that count at the same time: each holds a shard, and what it has written there.
    run(
        &mut tx,
        format!(
            "SELECT pg_advisory_xact_lock(hashtext('{schema} series'), n) FROM generate_series(0, 15) n;
             UPDATE {schema}.series SET tasks = tasks + 1"
        ),
    )
    .await;
    tokio::time::timeout(SOON, end_new(&queue, &p, 4, &done())).await.expect("it waits for nobody");
    assert_eq!(counted(&queue, &p).await, 7);
    tx.rollback().await.unwrap();
    end_new(&queue, &p, 2, &done()).await;
    assert_eq!(counted(&queue, &p).await, 9);
}

#[tokio::test]
async fn counts_are_kept_for_their_time_and_then_freed() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    for kind in ["a", "b", "c"] {
        let mut end = done();
        end.kind = Some(kind.into());
        end_new(&queue, &p, 1, &end).await;
    }
    bed.run(format!("UPDATE {}.series SET minute = minute - {KEPT_MINUTES}", bed.schema)).await;
    assert_eq!((queue.purge_ended(10).await.unwrap(), counted(&queue, &p).await), (0, 3));
    // A minute may have passed since.
    bed.run(format!("UPDATE {}.series SET minute = minute - 2", bed.schema)).await;
    assert_eq!((queue.purge_ended(2).await.unwrap(), counted(&queue, &p).await), (0, 0));
}

#[tokio::test]
async fn one_purge_frees_all_counts_that_are_no_longer_kept_though_few_ends_have_lapsed() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    end_new(&queue, &p, 3, &done()).await;
    bed.run(format!(
        "INSERT INTO {schema}.series SELECT s.minute - {KEPT_MINUTES} - 2 - i / 100, 1, 1, 1, s.part, 0, 1, i % 10, i / 10 % 10, ''
         FROM generate_series(0, 19999) i, (SELECT part, max(minute) AS minute FROM {schema}.series GROUP BY part) s"
    ))
    .await;
    assert_eq!(queue.purge_ended(5000).await.unwrap(), 0, "counts are no ends");
    let mut conn = bed.connect().await;
    let left = number(&mut conn, format!("SELECT sum(tasks)::bigint FROM {schema}.series")).await;
    assert_eq!(left, 3, "those that are kept");
}

#[tokio::test]
async fn facts_of_tasks_that_go_on_are_kept_and_not_counted() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, [id, unkept]) = (bed.open().await, part("p.-live"), [MessageId::new(), MessageId::new()]);
    let end = |attempt| Arc::new(done().with_attempt(attempt));
    for attempt in [1, 3, 2] {
        let short = Arc::new(done().with_keep(Some(Duration::ZERO)));
        for told in queue.record_ended(&p, &[(unkept, short), (id, end(attempt))]).await {
            told.unwrap();
        }
    }
    assert_eq!(find(&queue, &p, id).await.map(|found| found.end.attempt), Some(3));
    assert_eq!((find(&queue, &p, unkept).await, counted(&queue, &p).await), (None, 0));
}
