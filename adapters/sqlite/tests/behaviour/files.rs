//! The file: who may share it, what survives, and what is said when something is wrong with it.

use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::{
    Action, DurabilityLevel, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage,
    QueueStorage,
};
use anyqueue::{ErrorKind, MessageData, Page, PushOutcome, Registry, Result, RetryClass, SettleOutcome};
use anyqueue_sqlite::{SqliteQueue, Synchronous, backend};
use rusqlite::Connection;

fn plain(path: &std::path::Path) -> Connection {
    Connection::open(path).unwrap()
}

/// The first column of an answer.
fn column<T: rusqlite::types::FromSql>(conn: &Connection, sql: &str) -> Vec<T> {
    let mut statement = conn.prepare(sql).unwrap();
    statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[track_caller]
fn kind<T: std::fmt::Debug>(result: Result<T>) -> (ErrorKind, String) {
    let error = result.unwrap_err();
    assert_eq!(error.backend(), Some("sqlite"), "{error}");
    assert!(error.operation().is_some(), "{error}");
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn messages_leases_and_pauses_survive_a_restart() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["a", "b"]).await;
    push(&bed.queue, &p, &[message("delayed").with_delay(LEASE)]).await;
    let held = pull(&bed.queue, &p, 1).await;
    bed.queue.close().await.unwrap();
    let again = bed.other().await;
    let counts = again.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.delayed, counts.leased), (Some(1), Some(1), Some(1)));
    // Even the lease holds: its holder may have been another process.
    assert_eq!(settle(&again, &held[0].lease, Action::Release).await, SettleOutcome::Settled);
    assert_eq!(drain(&again, &p).await, ["a", "b"]);
}

#[tokio::test]
async fn two_handles_share_the_work_without_overlap() {
    let bed = Bed::new().await;
    let other = bed.other().await;
    let p = part("p");
    let tasks: Vec<_> = [bed.queue.clone(), other]
        .into_iter()
        .flat_map(|queue| (0..4).map(move |_| queue.clone()))
        .map(|queue| {
            let p = p.clone();
            tokio::spawn(async move {
                let mut got = Vec::new();
                for n in 0..50 {
                    push_text(&queue, &p, &[&n.to_string()]).await;
                    for delivery in pull(&queue, &p, 3).await {
                        settle(&queue, &delivery.lease, Action::Remove).await;
                        got.push(delivery.lease.id);
                    }
                }
                got
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    let rest = drain(&bed.queue, &p).await.len();
    let unique: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!((unique.len(), all.len() + rest), (all.len(), 8 * 50));
}

#[tokio::test]
async fn many_handles_may_create_a_file_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.db");
    let opening: Vec<_> = (0..12)
        .map(|_| {
            let path = path.clone();
            tokio::spawn(async move {
                let queue = SqliteQueue::open(path).await?;
                queue.init().await.map(|()| queue)
            })
        })
        .collect();
    for opening in opening {
        opening.await.unwrap().unwrap();
    }
    let conn = plain(&path);
    let ledger: Vec<i64> = column(&conn, "SELECT version FROM anyqueue_migration ORDER BY version");
    assert_eq!(ledger, [1, 2, 3, 4, 5, 6], "each migration was applied once");
}

/// Takes a file back to what these releases made of it, newest first.
const OLDER: [(i64, &str); 5] = [
    (5, "DROP TABLE anyqueue_series"),
    (4, "DROP TABLE anyqueue_control"),
    (3, "DROP TABLE anyqueue_ended"),
    (
        2,
        "DROP INDEX anyqueue_message_urgent; DROP TABLE anyqueue_disabled;
        ALTER TABLE anyqueue_message DROP COLUMN urgent_ms; ALTER TABLE anyqueue_counter DROP COLUMN urgent_ms;
        ALTER TABLE anyqueue_blocked DROP COLUMN deliveries; ALTER TABLE anyqueue_blocked DROP COLUMN cancel;
        ALTER TABLE anyqueue_blocked DROP COLUMN returned",
    ),
    (1, "ALTER TABLE anyqueue_message DROP COLUMN headers"),
];

#[tokio::test]
async fn a_file_of_an_older_release_is_upgraded_with_what_is_in_it() {
    for oldest in [1, 2, 3, 4, 5] {
        let (bed, clock) = Bed::still().await;
        let (path, p) = (bed.path(), part("p"));
        let grouped = |text| message(text).with_group("g");
        push(&bed.queue, &p, &[message("held"), grouped("head"), grouped("blocked")]).await;
        push(&bed.queue, &p, &[message("late").with_delay(LEASE)]).await;
        let held = pull(&bed.queue, &p, 1).await;
        bed.queue.close().await.unwrap();
        let conn = plain(&path);
        for (version, undo) in OLDER.iter().filter(|(version, _)| *version >= oldest) {
            conn.execute_batch(undo).unwrap();
            conn.execute("DELETE FROM anyqueue_migration WHERE version > ?", [version]).unwrap();
        }
        drop(conn);
        let builder = || SqliteQueue::builder(&path).clock(clock.clock());
        let (found, text) = kind(builder().create(false).open().await);
        assert_eq!(found, ErrorKind::Incompatible);
        assert!(text.contains("older release"), "{text}");
        let queue = builder().open().await.unwrap();
        assert_eq!(settle(&queue, &held[0].lease, Action::Release).await, SettleOutcome::Settled);
        assert_eq!(drain(&queue, &p).await, ["held", "head", "blocked"]);
        clock.advance(LEASE);
        assert_eq!(drain(&queue, &p).await, ["late"]);
    }
}

#[tokio::test]
async fn the_queue_lives_beside_an_applications_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let conn = plain(&path);
    conn.execute_batch("CREATE TABLE message (x); CREATE TABLE _sqlx_migrations (version INTEGER); INSERT INTO message VALUES (1)").unwrap();
    let queue = SqliteQueue::open(&path).await.unwrap();
    push_text(&queue, &part("p"), &["m"]).await;
    let names: Vec<String> = column(&conn, "SELECT name FROM sqlite_schema WHERE type = 'table'");
    let own =
        |name: &String| name == "message" || name == "_sqlx_migrations" || name.starts_with("anyqueue_");
    assert!(names.iter().all(own));
}

#[tokio::test]
async fn create_false_creates_neither_file_nor_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.db");
    let open = || SqliteQueue::builder(&path).create(false).open();
    assert!(open().await.is_err());
    assert!(!path.exists());
    let conn = plain(&path);
    conn.execute_batch("CREATE TABLE app (x)").unwrap();
    let (found, text) = kind(open().await);
    assert_eq!(found, ErrorKind::Incompatible);
    assert!(text.contains("create=true"), "{text}");
    let tables: Vec<String> = column(&conn, "SELECT name FROM sqlite_schema");
    assert_eq!(tables.len(), 1);
    SqliteQueue::open(&path).await.unwrap().close().await.unwrap();
    let queue = open().await.unwrap();
    queue.init().await.unwrap();
    push_text(&queue, &part("p"), &["m"]).await;
}

#[tokio::test]
async fn a_file_of_a_newer_release_is_refused() {
    let bed = Bed::new().await;
    let conn = plain(&bed.path());
    conn.execute_batch("INSERT INTO anyqueue_migration VALUES (99, 'from the future', 0)").unwrap();
    let (found, text) = kind(SqliteQueue::open(bed.path()).await);
    assert_eq!(found, ErrorKind::Incompatible);
    assert!(text.contains("newer release"), "{text}");
    assert_eq!(kind(bed.queue.init().await).0, ErrorKind::Incompatible);
    assert_eq!(kind(bed.queue.check().await).0, ErrorKind::Incompatible);
}

#[tokio::test]
async fn a_url_in_place_of_a_path_is_refused_and_makes_no_file() {
    for url in ["sqlite:jobs.db", "sqlite:///tmp/jobs.db", "postgres://db.example/jobs"] {
        let (found, text) = kind(SqliteQueue::open(url).await);
        assert_eq!(found, ErrorKind::InvalidInput);
        assert!(text.contains("that is a URL"), "{text}");
        assert!(!std::path::Path::new(url).exists(), "{url}");
    }
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join("sqlite:jobs.db");
    SqliteQueue::open(&odd).await.unwrap();
    assert!(odd.exists(), "a path that has a folder is none");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.db");
    std::fs::write(&path, "this is a letter to my grandmother, and by no means a database. ".repeat(100))
        .unwrap();
    assert_eq!(kind(SqliteQueue::open(&path).await).0, ErrorKind::Corrupt);
}

#[tokio::test]
async fn paths_that_cannot_be_are_told_clearly() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let missing = kind(SqliteQueue::open(dir.path().join("no/such/q.db")).await);
    assert_eq!(missing.0, ErrorKind::InvalidInput);
    assert!(missing.1.contains("does not exist"), "{}", missing.1);
    let below_file = kind(SqliteQueue::open(file.join("q.db")).await);
    assert_eq!(below_file.0, ErrorKind::AccessDenied);
    assert!(below_file.1.contains("not a directory"), "{}", below_file.1);
    let directory = kind(SqliteQueue::open(dir.path()).await);
    assert_eq!(directory.0, ErrorKind::InvalidInput);
    assert!(directory.1.contains("is a directory"), "{}", directory.1);
    for path in ["", ":memory:"] {
        assert_eq!(SqliteQueue::open(path).await.unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
    }
}

#[tokio::test]
async fn a_lock_held_too_long_is_unavailable_and_safe_to_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.db");
    let timeout = Duration::from_millis(100);
    let queue = SqliteQueue::builder(&path).busy_timeout(timeout).open().await.unwrap();
    let p = part("p");
    let conn = plain(&path);
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let same = message("m");
    let error = queue.push(&p, std::slice::from_ref(&same)).await.remove(0).unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Safe));
    let error = queue.pull(&p, PullRequest::new(1, Duration::ZERO, LEASE)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Safe));
    queue.counts(&p).await.unwrap(); // readers are not locked out
    conn.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(queue.push(&p, &[same]).await.remove(0), Ok(PushOutcome::Stored(_))));
}

#[tokio::test]
async fn a_full_file_refuses_pushes_and_can_be_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::builder(dir.path().join("q.db")).max_bytes(512 * 1024).open().await.unwrap();
    let (p, q) = (part("p"), part("q"));
    let mut filled = Vec::new();
    // Until not even a small one fits, so that taking messages out has no room either.
    for (partition, bytes) in [(&p, 20_000), (&q, 10)] {
        let mut stored = 0;
        let error = loop {
            match queue.push(partition, &[MessageData::new(vec![7; bytes])]).await.remove(0) {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
            assert!(stored < 10_000, "the limit holds");
        };
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Full, RetryClass::Safe), "{error}");
        filled.push((partition, stored));
    }
    for (partition, stored) in filled.into_iter().rev() {
        assert_eq!(queue.counts(partition).await.unwrap().ready, Some(stored));
        let held = pull(&queue, partition, 1000).await;
        assert_eq!(held.len() as u64, stored.min(1000));
        let leases: Vec<_> = held.into_iter().map(|delivery| delivery.lease).collect();
        assert!(
            settle_all(&queue, &leases, &Action::Remove).await.iter().all(|o| *o == SettleOutcome::Settled)
        );
    }
    assert!(queue.push(&p, &[MessageData::new(vec![7; 20_000])]).await[0].is_ok(), "there is room again");
}

#[tokio::test]
async fn a_request_that_fails_spoils_none_that_shares_its_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.db");
    let queue = SqliteQueue::builder(&path).max_bytes(512 * 1024).open().await.unwrap();
    // While another holds the lock, the writer waits with the first request, and the others gather.
    let conn = plain(&path);
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = {
        let queue = queue.clone();
        tokio::spawn(async move { push_text(&queue, &part("first"), &["m"]).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await; // nothing tells that the writer took it
    let (p, q) = (part("p"), part("q"));
    let (too_much, one) = ([MessageData::new(vec![7; 600_000])], [message("x")]);
    let (large, little, ()) = tokio::join!(queue.push(&p, &too_much), queue.push(&q, &one), async {
        conn.execute_batch("ROLLBACK").unwrap();
    });
    first.await.unwrap();
    assert_eq!(large[0].as_ref().unwrap_err().kind(), ErrorKind::Full);
    assert!(little[0].is_ok(), "{:?}", little[0]);
    assert_eq!(drain(&queue, &q).await, ["x"]);
}

#[tokio::test]
async fn durability_is_what_sqlite_says() {
    let dir = tempfile::tempdir().unwrap();
    for (synchronous, level) in [
        (Synchronous::Full, DurabilityLevel::PowerLoss),
        (Synchronous::Normal, DurabilityLevel::ProcessCrash),
    ] {
        let builder = SqliteQueue::builder(dir.path().join("q.db")).synchronous(synchronous);
        let durability = builder.open().await.unwrap().capabilities().durability;
        assert_eq!([durability.push, durability.settle], [level; 2]);
        assert_eq!(durability.claim, DurabilityLevel::ProcessCrash, "a loss of power ends the holder too");
    }
}

#[tokio::test]
async fn a_url_carries_every_option() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new().with(backend());
    let url = |query: &str| format!("sqlite://{}/q.db?{query}", dir.path().display());
    let all = "synchronous=normal&busy_timeout=1s&poll_interval=2ms&create=true&max_bytes=1000000&message_bytes=2000";
    let storage = registry.open(&url(all)).await.unwrap();
    assert_eq!(storage.capabilities().limits.message_bytes, 2000);
    assert_eq!(storage.capabilities().durability.push, DurabilityLevel::ProcessCrash);
    for wrong in [
        "synchronous=maybe",
        "poll_interval=2s",
        "poll_interval=0s",
        "busy_timeout=2h",
        "max_bytes=1",
        "message_bytes=1",
        "create=yes",
        "mode=wal",
    ] {
        assert_eq!(registry.open(&url(wrong)).await.unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
    }
    assert_eq!(registry.open("sqlite://host/q.db").await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_name_with_a_hash_is_not_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new().with(backend());
    let url = |name: &str| format!("sqlite://{}/{name}", dir.path().display());
    let (found, text) = kind(registry.open(&url("a#b.db")).await.map(drop));
    assert_eq!(found, ErrorKind::InvalidInput);
    assert!(text.contains("%23"), "{text}");
    assert!(!dir.path().join("a").exists());
    registry.open(&url("a%23b.db")).await.unwrap().close().await.unwrap();
    assert!(dir.path().join("a#b.db").exists());
}

#[tokio::test]
async fn after_close_everything_is_closed_and_closing_again_is_fine() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["m"]).await;
    let held = pull(&bed.queue, &p, 1).await;
    let closing: Vec<_> = (0..10)
        .map(|_| {
            let queue = bed.queue.clone();
            tokio::spawn(async move { queue.close().await })
        })
        .collect();
    for closing in closing {
        closing.await.unwrap().unwrap();
    }
    let (q, lease) = (&bed.queue, &held[0].lease);
    assert_eq!(q.push(&p, &[message("a"), message("b")]).await.len(), 2);
    let settlement = anyqueue::adapter::Settlement::new(lease.clone(), Action::Remove);
    let extension = anyqueue::adapter::Extension { lease: lease.clone(), duration: LEASE };
    let kinds = [
        kind(q.push(&p, &[message("m")]).await.remove(0)).0,
        kind(q.pull(&p, PullRequest::new(1, SOON, LEASE)).await).0,
        kind(q.settle(&[settlement]).await.remove(0)).0,
        kind(q.extend(&[extension]).await.remove(0)).0,
        kind(q.counts(&p).await).0,
        kind(q.purge(&p, 1).await).0,
        kind(q.init().await).0,
        kind(q.check().await).0,
    ];
    assert_eq!(kinds, [ErrorKind::Closed; 8]);
    let log = bed.dir.path().join("q.db-wal");
    assert!(!log.exists(), "the log was written back");
}

#[tokio::test]
async fn check_notices_that_the_file_is_gone() {
    let bed = Bed::new().await;
    assert!(bed.queue.check().await.unwrap().server_version.is_some_and(|version| version.starts_with("3.")));
    std::fs::remove_file(bed.path()).unwrap();
    assert_eq!(kind(bed.queue.check().await).0, ErrorKind::Unavailable);
}

#[tokio::test]
async fn check_notices_that_the_file_cannot_be_written() {
    let bed = Bed::new().await;
    let queue =
        SqliteQueue::builder(bed.path()).busy_timeout(Duration::from_millis(50)).open().await.unwrap();
    let conn = plain(&bed.path());
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (found, text) = kind(queue.check().await);
    assert_eq!(found, ErrorKind::Unavailable);
    assert!(text.contains("locked"), "{text}");
    conn.execute_batch("ROLLBACK").unwrap();
    queue.check().await.unwrap();
}

#[tokio::test]
async fn the_report_tells_what_of_the_file_is_free() {
    let bed = Bed::new().await;
    let p = part("p");
    bed.queue.push(&p, &[anyqueue::MessageData::new(vec![7; 1_000_000])]).await.remove(0).unwrap();
    let full = bed.queue.file_report().await.unwrap();
    assert!(full.file_bytes >= 1_000_000 && full.log_bytes > 0, "{full:?}");
    assert!(full.disk_free_bytes.is_some_and(|bytes| bytes > 0), "{full:?}");
    let held = pull(&bed.queue, &p, 1).await;
    settle_all(&bed.queue, &[held[0].lease.clone()], &Action::Remove).await;
    let empty = bed.queue.file_report().await.unwrap();
    assert!(empty.free_pages > full.free_pages && empty.pages >= full.pages, "{full:?} {empty:?}");
    assert!(empty.free_pages * empty.file_bytes / empty.pages >= 900_000, "{empty:?}");
}

#[tokio::test]
async fn a_waiting_message_takes_at_most_two_hundred_bytes_of_the_file_beside_its_payload() {
    const MESSAGES: u64 = 20_000;
    const PAYLOAD: u64 = 100;
    let bed = Bed::new().await;
    let p = part("p");
    let in_use = async || {
        let report = bed.queue.file_report().await.unwrap();
        report.file_bytes / report.pages * (report.pages - report.free_pages)
    };
    let fill = async || {
        let message = || anyqueue::MessageData::new(vec![b'.'; usize::try_from(PAYLOAD).unwrap()]);
        for _ in 0..MESSAGES / 1000 {
            push(&bed.queue, &p, &(0..1000).map(|_| message()).collect::<Vec<_>>()).await;
        }
    };
    let before = in_use().await;
    fill().await;
    let each = (in_use().await - before) / MESSAGES - PAYLOAD;
    assert!(each <= 200, "{each} bytes");
    // What is taken out makes room for what comes.
    let pages = bed.queue.file_report().await.unwrap().pages;
    assert_eq!(drain(&bed.queue, &p).await.len() as u64, MESSAGES);
    fill().await;
    let again = bed.queue.file_report().await.unwrap().pages;
    assert!(again <= pages + pages / 20, "{pages} pages, then {again}");
}

#[tokio::test]
async fn what_this_library_did_not_write_is_payload() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["foreign"]).await;
    let conn = plain(&bed.path());
    conn.execute_batch(
        "UPDATE anyqueue_message SET body = 'plain' WHERE seq = (SELECT max(seq) FROM anyqueue_message)",
    )
    .unwrap();
    let shown = bed.queue.browse(&p, Page::of(10)).await.unwrap();
    let held = pull(&bed.queue, &p, 10).await;
    assert_eq!(texts(&held), ["plain"]);
    assert_eq!(shown[0].message, held[0].message);
}
