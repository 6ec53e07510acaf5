//! Freeing the place of what has lapsed.

use super::*;
use rusqlite::Connection;

/// Adds ends by a statement of SQL: so many, all lapsed if so.
fn add(bed: &Bed, p: &PartitionId, count: u32, has_lapsed: bool) {
    let conn = Connection::open(bed.path()).unwrap();
    let insert = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
        INSERT INTO anyqueue_ended SELECT part, randomblob(16), 4, 1, ?2, 0, ?3, NULL FROM n, anyqueue_partition
        WHERE name = ?4";
    let expires_ms = has_lapsed.then_some(2);
    let added = conn.execute(insert, (count, expires_ms, succeeded().encode().unwrap(), p.name())).unwrap();
    assert_eq!(added, count as usize);
}

fn rows(bed: &Bed) -> i64 {
    let conn = Connection::open(bed.path()).unwrap();
    conn.query_row("SELECT count(*) FROM anyqueue_ended", (), |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn only_what_has_lapsed_is_freed_of_all_partitions_up_to_the_limit() {
    let bed = Bed::new().await;
    let (p, q) = (part("p"), part("q"));
    end_one(&bed.queue, &p, succeeded()).await;
    end_one(&bed.queue, &q, succeeded().with_keep(Some(Duration::from_hours(1)))).await;
    add(&bed, &p, 2000, true);
    add(&bed, &q, 1000, true);
    assert_eq!((count(&bed.queue, &p).await, rows(&bed)), (1, 3002));
    assert_eq!(bed.queue.purge_ended(2500).await.unwrap(), 2500);
    assert_eq!(rows(&bed), 502);
    assert_eq!(bed.queue.purge_ended(2500).await.unwrap(), 500, "fewer than the limit: all of it");
    assert_eq!(bed.queue.purge_ended(2500).await.unwrap(), 0);
    assert_eq!((rows(&bed), count(&bed.queue, &p).await, count(&bed.queue, &q).await), (2, 1, 1));
}

#[tokio::test]
async fn a_purge_lets_others_write_between_its_steps() {
    let bed = Bed::new().await;
    let p = part("p");
    end_one(&bed.queue, &p, succeeded()).await;
    add(&bed, &p, 10_000, true);
    let purging = {
        let queue = bed.queue.clone();
        tokio::spawn(async move { queue.purge_ended(100_000).await.unwrap() })
    };
    let first = pull(&bed.queue, &p, 1); // waits for one step at most
    assert!(first.await.is_empty());
    let mut turns = 0;
    while !purging.is_finished() {
        push_text(&bed.queue, &p, &["m"]).await;
        turns += 1;
    }
    assert_eq!(purging.await.unwrap(), 10_000);
    assert!(turns > 1, "it was one transaction");
    assert_eq!(rows(&bed), 1);
}
