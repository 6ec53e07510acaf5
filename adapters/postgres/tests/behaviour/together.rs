//! Many messages that fall due together, and what is seen of them meanwhile; messages that cannot be read.

use anyqueue::Page;
use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage, PushQueueStorage, QueueStorage};
use anyqueue::{ErrorKind, MessageData, MessageState, Queue, QueueMessageStatus::Processed};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::common::{Bed, part, pull, push, run, texts};

/// Delays that end after this.
const DELAY: Duration = Duration::from_secs(2);
const MESSAGES: usize = 20_000;

async fn is_due(conn: &mut PgConnection, schema: &str) -> bool {
    let all = format!("SELECT max(due) < clock_timestamp() FROM {schema}.message");
    sqlx::query_scalar(AssertSqlSafe(all)).fetch_one(conn).await.unwrap()
}

#[tokio::test]
async fn of_many_that_fall_due_together_the_urgent_come_first() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let low: Vec<_> = (0..1000).map(|_| MessageData::new("low").with_delay(DELAY)).collect();
    for _ in 0..MESSAGES / low.len() {
        let fresh: Vec<_> = low.iter().map(|_| MessageData::new("low").with_delay(DELAY)).collect();
        queue.push(&p, &fresh).await;
    }
    for (text, priority) in [("rather urgent", 1), ("urgent", 9)] {
        let message = MessageData::new(text).with_priority(priority).with_delay(DELAY);
        queue.push(&p, &[message]).await.remove(0).unwrap();
    }
    let mut conn = bed.connect().await;
    while !is_due(&mut conn, &bed.schema).await {
        run(&mut conn, "SELECT pg_sleep(0.05)".to_owned()).await;
    }
    let mut pulled = Vec::new();
    for _ in 0..3 {
        pulled.extend(texts(&pull(&queue, &p, 1).await));
    }
    assert_eq!(pulled, ["urgent", "rather urgent", "low"]);
    // And no others are hidden for a while after that.
    let mut left = MESSAGES - 1;
    while left > 0 {
        let got = pull(&queue, &p, 1000).await.len();
        assert_eq!(got, left.min(1000), "of {left} that are left");
        left -= got;
    }
}

#[tokio::test]
async fn each_message_is_counted_once_while_delays_run_out() {
    const COUNTED: i64 = 300_000;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    push(&queue, &p, &["ready"]).await;
    bed.run(format!(
        "INSERT INTO {schema}.message (id, part, lane, pos, state, due, pushed_at, body)
         SELECT gen_random_uuid(), (SELECT part FROM {schema}.partition WHERE name = 'p'), 19, n, 2,
             clock_timestamp() + interval '2 s' + n * interval '10 us', now(), 'x'
         FROM generate_series(1, {COUNTED}) n"
    ))
    .await;
    let mut conn = bed.connect().await;
    loop {
        let is_over = is_due(&mut conn, schema).await;
        let counts = queue.counts(&p).await.unwrap();
        let all = counts.ready.unwrap() + counts.delayed.unwrap() + counts.leased.unwrap();
        assert_eq!(all, u64::try_from(COUNTED).unwrap() + 1, "{counts:?}");
        if is_over {
            break;
        }
    }
}

async fn damage(bed: &Bed, text: &str, how: &str) {
    bed.run(format!("UPDATE {}.message SET {how} WHERE position('{text}'::bytea IN body) > 0", bed.schema))
        .await;
}

#[tokio::test]
async fn a_damaged_message_dies_is_no_obstacle_and_can_be_put_back_as_it_is() {
    let Some(bed) = Bed::find().await else { return };
    let (storage, p) = (bed.open().await, part("p"));
    push(&storage, &p, &["broken", "mistaken", "good"]).await;
    damage(&bed, "broken", "body = substring(body for octet_length(body) - 3)").await;
    damage(&bed, "mistaken", "id = gen_random_uuid()").await;
    let seen = storage.browse(&p, Page::of(10)).await.unwrap();
    let why: Vec<_> = seen.iter().filter_map(|seen| seen.unreadable.as_ref()).collect();
    assert_eq!((seen.len(), why.len()), (3, 2));
    assert!(why.iter().all(|why| why.kind() == ErrorKind::Corrupt), "{why:?}");
    assert!(seen.iter().all(|seen| seen.state == MessageState::Ready));

    let queue = Queue::new(storage.clone()).unwrap();
    let mut held = queue.pull("p").max(1).wait(Duration::from_secs(10)).await.unwrap();
    assert_eq!(held.iter().map(|held| held.payload().to_vec()).collect::<Vec<_>>(), [b"good"]);
    held[0].settle(Processed).await.unwrap();
    let dead = queue.dead_letters("p").unwrap();
    let mut letters = dead.list(Page::of(10)).await.unwrap();
    while letters.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        letters = dead.list(Page::of(10)).await.unwrap();
    }
    assert!(
        letters.iter().all(|dead| dead.reason.as_ref().is_some_and(|why| why.starts_with("cannot be read")))
    );
    assert_eq!(letters[0].deliveries, Some(1));

    // Put back, it dies again, as long as nobody repairs it.
    assert_eq!(dead.redrive().await.unwrap().moved, 2);
    assert!(queue.pull("p").await.unwrap().is_empty());
    queue.close().await.unwrap();
    damage(&bed, "bro", "body = body || 'ken'::bytea").await;
    let queue = Queue::new(bed.open().await).unwrap();
    queue.dead_letters("p").unwrap().redrive().await.unwrap();
    let held = queue.pull("p").max(1).wait(Duration::from_secs(10)).await.unwrap();
    assert_eq!(held[0].payload(), &b"broken"[..]);
}

#[tokio::test]
async fn a_message_of_a_newer_release_stays_for_newer_consumers() {
    let Some(bed) = Bed::find().await else { return };
    let (storage, p) = (bed.open().await, part("p"));
    push(&storage, &p, &["newer", "good"]).await;
    damage(&bed, "newer", "body = set_byte(body, 3, 2)").await;
    let queue = Queue::builder(storage.clone()).build().unwrap();
    let held = queue.pull("p").max(5).await.unwrap();
    assert_eq!(held.iter().map(|held| held.payload().to_vec()).collect::<Vec<_>>(), [b"good"]);
    while storage.counts(&p).await.unwrap().delayed == Some(0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seen = storage.browse(&p, Page::of(10)).await.unwrap();
    let newer = seen.iter().find(|seen| seen.unreadable.is_some()).unwrap();
    assert_eq!((newer.delivery_count, newer.state), (Some(0), MessageState::Delayed));
    assert_eq!(newer.unreadable.as_ref().unwrap().kind(), ErrorKind::Incompatible);
    queue.close().await.unwrap();
}

#[tokio::test]
async fn a_pull_answers_about_as_much_as_fits_the_memory() {
    const BYTES: usize = 8 * 1024 * 1024;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let large: Vec<_> = (0..6_u8).map(|n| MessageData::new(vec![n; BYTES])).collect();
    for message in &large {
        queue.push(&p, std::slice::from_ref(message)).await.remove(0).unwrap();
    }
    let firsts = |held: &[anyqueue::adapter::RawDelivery]| {
        held.iter().map(|held| held.message.payload()[0]).collect::<Vec<_>>()
    };
    assert_eq!(firsts(&pull(&queue, &p, 1000).await), [0, 1, 2, 3]);
    assert_eq!(firsts(&pull(&queue, &p, 1000).await), [4, 5]);
}

#[tokio::test]
async fn what_check_asks_does_not_grow_with_partitions_and_the_report_finds_the_oldest() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, schema) = (bed.open().await, &bed.schema);
    bed.run(format!(
        "INSERT INTO {schema}.partition (name, used) SELECT 'p' || n, true FROM generate_series(1, 50000) n;
         INSERT INTO {schema}.message (id, part, lane, pos, state, pushed_at, body)
         SELECT gen_random_uuid(), part, 19 - 2 * (part % 3), part, 0, now() - part * interval '1 s', 'x'
         FROM {schema}.partition p WHERE part % 100 = 0"
    ))
    .await;
    let oldest = queue.table_report().await.unwrap().oldest_ready.unwrap();
    assert_eq!(oldest.0, part("p50000"));
    assert!((50_000..50_100).contains(&oldest.1.as_secs()), "{oldest:?}");

    let mut conn = bed.connect().await;
    let read = format!(
        "SELECT (SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables WHERE schemaname = '{schema}')::bigint"
    );
    let mut rows = async || -> i64 {
        run(&mut conn, "SELECT pg_sleep(1.2)".to_owned()).await; // statistics are told about once a second
        sqlx::query_scalar(AssertSqlSafe(read.clone())).fetch_one(&mut conn).await.unwrap()
    };
    let before = rows().await;
    for _ in 0..3 {
        queue.check().await.unwrap();
    }
    let after = rows().await;
    assert!(after - before < 1000, "{} rows", after - before);
}
