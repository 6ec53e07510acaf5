//! Freeing what has lapsed: whole tables at once where they can be had at once, the rest row by row.

use std::time::{Duration, Instant};

use anyqueue::EndState;
use anyqueue::adapter::{LedgerQueueStorage, TaskEnd};
use anyqueue_postgres::PostgresQueue;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::common::{Bed, SOON, part, run};
use crate::ledger::{DAY, all, count, done, end_new};

/// Rows of the first partition that lapse this long before now, stored as if their time had come; the keep decides about their table.
async fn add(bed: &Bed, rows: u32, keep: &str, lapsed: &str) {
    let schema = &bed.schema;
    bed.run(format!(
        "INSERT INTO {schema}.ended (id, ended_at, rank, part, bucket, state, ended_us, expires_at, body)
         SELECT gen_random_uuid(), t.at - t.keep, i, 1, {schema}.ended_bucket(t.keep, t.at), 1 + i % 4, 0, t.at, '\\x01a3000404000500'
         FROM generate_series(1, {rows}) i, (SELECT {schema}.ended_now() - (extract(epoch FROM {lapsed}) * 1000)::bigint AS at,
             (extract(epoch FROM {keep}) * 1000)::bigint AS keep) t"
    ))
    .await;
}

const RING: &str = "interval '24 hours'";
const ROWS: &str = "interval '1 minute'";
/// More than a busy machine takes for what nothing holds up. Who waits for a reader waits until that one ends.
const HELD_UP: Duration = Duration::from_secs(15);

async fn stored(conn: &mut PgConnection, schema: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {schema}.ended")))
        .fetch_one(conn)
        .await
        .unwrap()
}

/// Pages that the tables of the rings take.
async fn ring_pages(conn: &mut PgConnection, schema: &str) -> i64 {
    let size = format!(
        "SELECT sum(pg_relation_size(inhrelid))::bigint / 8192 FROM pg_inherits
         WHERE inhparent = '{schema}.ended'::regclass AND inhrelid <> '{schema}.ended_24'::regclass"
    );
    sqlx::query_scalar(AssertSqlSafe(size)).fetch_one(conn).await.unwrap()
}

/// Once more where all tables are locked by others at that moment.
async fn purge_until_done(queue: &PostgresQueue, limit: usize) -> usize {
    let purge = async {
        loop {
            let freed = queue.purge_ended(limit).await.unwrap();
            if freed > 0 {
                return freed;
            }
        }
    };
    tokio::time::timeout(SOON, purge).await.expect("a table can be had between two readers")
}

#[tokio::test]
async fn what_has_lapsed_is_told_by_nobody_and_freed_up_to_the_limit_of_all_partitions() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, mut conn) = (bed.open().await, part("p"), bed.connect().await);
    end_new(&queue, &p, 3, &done()).await;
    end_new(&queue, &p, 3, &TaskEnd::new(EndState::Failed)).await;
    end_new(&queue, &part("q"), 2, &TaskEnd::new(EndState::Failed).with_keep(Some(Duration::from_micros(1))))
        .await;
    add(&bed, 10, ROWS, "interval '0'").await;
    add(&bed, 10, ROWS, "interval '1 day'").await;
    let lapsed = all(&queue, &p).await.len();
    assert_eq!((lapsed, count(&queue, &p).await, count(&queue, &part("q")).await), (6, 6, 0));
    assert_eq!(stored(&mut conn, &bed.schema).await, 28);
    for freed in [9, 9, 4, 0] {
        assert_eq!(queue.purge_ended(9).await.unwrap(), freed);
    }
    assert_eq!((stored(&mut conn, &bed.schema).await, count(&queue, &p).await), (6, 6));
}

#[tokio::test]
async fn a_table_in_which_all_has_lapsed_is_emptied_at_once_while_others_settle_and_list() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, mut conn) = (bed.open().await, part("p"), bed.connect().await);
    end_new(&queue, &p, 1, &done()).await;
    let pages = ring_pages(&mut conn, &bed.schema).await;
    for lapsed in ["interval '4 hours'", "interval '8 hours'"] {
        add(&bed, 20_000, RING, lapsed).await;
    }
    assert!(ring_pages(&mut conn, &bed.schema).await > pages + 200);
    let (other, q) = (bed.open().await, p.clone());
    let settling = tokio::spawn(async move {
        let (mut ends, mut slowest) = (1, Duration::ZERO);
        for _ in 0..30 {
            let began = Instant::now();
            end_new(&other, &q, 10, &done()).await;
            ends += 10;
            assert_eq!(count(&other, &q).await, ends);
            assert_eq!(all(&other, &q).await.len() as u64, ends);
            slowest = slowest.max(began.elapsed());
        }
        slowest
    });
    // The first limit is below what one table has, and frees it all the same.
    for (limit, expected) in [(1000, 1000), (100_000, 20_000)] {
        assert_eq!(purge_until_done(&queue, limit).await, expected);
    }
    assert_eq!(queue.purge_ended(100_000).await.unwrap(), 0);
    let slowest = settling.await.unwrap();
    assert!(slowest < HELD_UP, "{slowest:?}");
    assert_eq!((stored(&mut conn, &bed.schema).await, count(&queue, &p).await), (301, 301));
    assert!(ring_pages(&mut conn, &bed.schema).await < pages + 20);
}

#[tokio::test]
async fn a_table_that_somebody_reads_for_long_is_left_for_later_and_holds_up_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, mut conn) = (bed.open().await, part("p"), bed.connect().await);
    end_new(&queue, &p, 1, &done()).await;
    add(&bed, 500, RING, "interval '4 hours'").await;
    add(&bed, 5, ROWS, "interval '4 hours'").await;
    let mut reader = bed.connect().await;
    let mut tx = reader.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {}.ended LIMIT 1", bed.schema)).await;
    let began = Instant::now();
    assert_eq!(queue.purge_ended(1000).await.unwrap(), 5);
    end_new(&queue, &p, 1, &done()).await;
    assert!(began.elapsed() < HELD_UP, "{:?}", began.elapsed());
    assert_eq!(stored(&mut conn, &bed.schema).await, 502);
    tx.rollback().await.unwrap();
    assert_eq!(queue.purge_ended(1000).await.unwrap(), 500);
    assert_eq!(count(&queue, &p).await, 2);
}

#[tokio::test]
async fn what_nobody_freed_before_its_ring_came_around_is_deleted_by_row_and_the_living_beside_it_stay() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, mut conn) = (bed.open().await, part("p"), bed.connect().await);
    end_new(&queue, &p, 3, &done()).await;
    // In the same table, one time around and two before; to the second, whenever this runs.
    add(&bed, 40, RING, "interval '12 hours'").await;
    add(&bed, 40, RING, "interval '48 hours'").await;
    let living = format!("SELECT min(bucket) FROM {0}.ended WHERE expires_at > {0}.ended_now()", bed.schema);
    bed.run(format!("UPDATE {}.ended SET bucket = ({living})", bed.schema)).await;
    let tables = format!("SELECT count(DISTINCT bucket) FROM {}.ended", bed.schema);
    assert_eq!(sqlx::query_scalar::<_, i64>(AssertSqlSafe(tables)).fetch_one(&mut conn).await.unwrap(), 1);
    for freed in [50, 30, 0] {
        assert_eq!(queue.purge_ended(50).await.unwrap(), freed);
    }
    assert_eq!((stored(&mut conn, &bed.schema).await, count(&queue, &p).await), (3, 3));
}

#[tokio::test]
async fn a_role_that_may_not_truncate_frees_row_by_row() {
    let Some(bed) = Bed::find().await else { return };
    let (schema, role) = (bed.schema.clone(), format!("{}_role", bed.schema));
    let owner = bed.open().await;
    bed.run(format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.migration, {schema}.partition, {schema}.message, {schema}.message_group, {schema}.ended, {schema}.series TO {role}"
    ))
    .await;
    let queue = PostgresQueue::builder(&bed.url_of(&role)).unwrap().create(false).open().await.unwrap();
    let p = part("p");
    end_new(&queue, &p, 3, &done().with_keep(Some(7 * DAY))).await;
    add(&bed, 30, RING, "interval '4 hours'").await;
    assert_eq!(queue.purge_ended(20).await.unwrap(), 20);
    assert_eq!(queue.purge_ended(20).await.unwrap(), 10);
    assert_eq!(all(&owner, &p).await.len(), 3);
}
