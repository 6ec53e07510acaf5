//! Counts of ends.

use anyqueue::SERIES_KEPT;

use super::*;

async fn counted(queue: &SqliteQueue, p: &PartitionId) -> u64 {
    let cells = queue.series(p, 0..u64::MAX, Page::of(1000)).await.unwrap();
    cells.iter().map(|cell| cell.tasks).sum()
}

fn of_kind(kind: &str) -> TaskEnd {
    let mut end = succeeded().with_keep(Some(Duration::ZERO));
    end.kind = Some(kind.into());
    end
}

#[tokio::test]
async fn counts_are_kept_for_their_time_and_then_freed() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    for kind in ["a", "b", "c"] {
        end_one(&bed.queue, &p, of_kind(kind)).await;
    }
    clock.advance(SERIES_KEPT);
    assert_eq!((bed.queue.purge_ended(10).await.unwrap(), counted(&bed.queue, &p).await), (0, 3));
    clock.advance(2 * Duration::from_mins(1));
    assert_eq!((bed.queue.purge_ended(2).await.unwrap(), counted(&bed.queue, &p).await), (0, 0));
}

#[tokio::test]
async fn one_purge_frees_all_counts_that_are_no_longer_kept_though_few_ends_have_lapsed() {
    let bed = Bed::new().await;
    let p = part("p");
    end_one(&bed.queue, &p, of_kind("a")).await;
    let conn = rusqlite::Connection::open(bed.path()).unwrap();
    let insert = "WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 19999)
        INSERT INTO anyqueue_series SELECT part, i / 100, x'', 1, i % 10, i / 10 % 10, 1, 1, 1 FROM n, anyqueue_partition WHERE name = 'p'";
    assert_eq!(conn.execute(insert, ()).unwrap(), 20_000);
    assert_eq!(bed.queue.purge_ended(5000).await.unwrap(), 0, "counts are no ends");
    let left = "SELECT sum(tasks) FROM anyqueue_series";
    assert_eq!(conn.query_row(left, (), |row| row.get::<_, i64>(0)).unwrap(), 1, "that which is kept");
}

#[tokio::test]
async fn facts_of_tasks_that_go_on_are_kept_and_not_counted() {
    let bed = Bed::new().await;
    let (p, id) = (part("p.-live"), MessageId::new());
    bed.queue.record_ended(&p, &[(id, Arc::new(succeeded()))]).await.remove(0).unwrap();
    assert_eq!((find(&bed.queue, &p, id).await.is_some(), counted(&bed.queue, &p).await), (true, 0));
}

#[tokio::test]
async fn a_partition_of_which_nothing_is_left_but_counts_is_not_forgotten() {
    let bed = Bed::new().await;
    let p = part("p");
    end_one(&bed.queue, &p, of_kind("a")).await;
    // So many others are looked up that those which have nothing are forgotten.
    for number in 0..200 {
        end_one(&bed.queue, &part(&format!("q{number}")), succeeded().with_keep(Some(Duration::ZERO))).await;
    }
    assert_eq!(counted(&bed.queue, &p).await, 1);
}
