//! Pushing: in groups of requests, within an application's transaction, and what is refused.

use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::{InspectQueueStorage, PushQueueStorage, QueueStorage};
use anyqueue::{ErrorKind, MessageData, OnDuplicate, Page, PushOutcome};
use anyqueue_sqlite::SqliteQueue;
use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};

async fn application(bed: &Bed) -> SqliteConnection {
    SqliteConnectOptions::new().filename(bed.path()).connect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_at_once_share_transactions() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["first"]).await;
    let before = commits(&bed);
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let (queue, p) = (bed.queue.clone(), p.clone());
            tokio::spawn(async move { push_text(&queue, &p, &[&n.to_string()]).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    // So few that the log, whose frames are counted, is not yet begun anew.
    let used = commits(&bed) - before;
    assert!((1..=32).contains(&used), "64 pushes took {used} transactions");
    assert_eq!(bed.queue_ready(&p).await, 65);
}

#[tokio::test]
async fn a_bad_message_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::builder(dir.path().join("q.db")).message_bytes(2000).open().await.unwrap();
    let p = part("p");
    let mut exact = MessageData::new(vec![1; 1900]);
    while queue.encoded_len(&exact) < 2000 {
        exact = MessageData::new(vec![1; exact.payload().len() + 1]);
    }
    assert_eq!(queue.encoded_len(&exact), 2000);
    let over = MessageData::new(vec![1; exact.payload().len() + 1]);
    let batch = [message("a"), over, message("b").with_priority(10), exact, message("c")];
    let outcomes = queue.push(&p, &batch).await;
    let kinds: Vec<_> =
        outcomes.iter().map(|outcome| outcome.as_ref().err().map(anyqueue::Error::kind)).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::TooLarge), Some(ErrorKind::InvalidInput), None, None]);
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(3));
    let too_late = message("d").with_delay(Duration::MAX);
    assert_eq!(queue.push(&p, &[too_late]).await.remove(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(queue.push(&p, &[]).await.is_empty());
}

#[tokio::test]
async fn every_byte_comes_back_from_messages_claimed_together() {
    let bed = Bed::new().await;
    let p = part("p");
    let all: Vec<u8> = (0..=255).collect();
    let mut messages =
        vec![MessageData::new(&all), MessageData::new(b""), MessageData::new(b"\xff\0\xfe,; ")];
    messages.extend((0..60).map(|n| MessageData::new(all.repeat(n * 7 % 50))));
    push(&bed.queue, &p, &messages).await;
    let got = pull(&bed.queue, &p, 100).await;
    assert!(got.iter().map(|delivery| &delivery.message).eq(&messages));
}

#[tokio::test]
async fn what_is_pushed_in_a_transaction_shares_its_fate() {
    let bed = Bed::new().await;
    let p = part("p");
    let mut conn = application(&bed).await;
    for commit in [false, true] {
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let mut pushed = Vec::new();
        for text in ["1", "2"] {
            let member = message(text).with_group("g");
            pushed.push(
                bed.queue
                    .push_in(&mut tx, &p, &[member, message("delayed").with_delay(LEASE)])
                    .await
                    .unwrap(),
            );
        }
        assert_eq!(bed.queue_ready(&p).await, 0, "nobody sees it before the commit");
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        for pushed in pushed {
            pushed.after_commit.notify();
        }
        let counts = bed.queue.counts(&p).await.unwrap();
        assert_eq!(
            (counts.ready, counts.delayed),
            if commit { (Some(2), Some(2)) } else { (Some(0), Some(0)) }
        );
        assert_eq!(bed.queue.partitions(Page::of(9)).await.unwrap().len(), usize::from(commit));
    }
    assert_eq!(drain(&bed.queue, &p).await, ["1", "2"]);
}

#[tokio::test]
async fn a_commit_in_an_applications_transaction_wakes_with_and_without_the_hint() {
    let bed = Bed::new().await;
    let p = part("p");
    let mut conn = application(&bed).await;
    for hint in [true, false] {
        let (queue, q) = (bed.queue.clone(), p.clone());
        let waiting = tokio::spawn(async move { pull_wait(&queue, &q, 1).await });
        pull(&bed.queue, &part("elsewhere"), 1).await;
        let pushed = bed.queue.push_in(&mut conn, &p, &[message("m")]).await.unwrap();
        if hint {
            pushed.after_commit.notify();
        }
        assert_eq!(waiting.await.unwrap().len(), 1, "hint {hint}");
    }
}

#[tokio::test]
async fn pushing_in_a_transaction_checks_as_core_does() {
    let bed = Bed::new().await;
    let p = part("p");
    let mut conn = application(&bed).await;
    let first = message("first").with_dedup_key("k");
    let long = "x".repeat(257);
    let batch = [
        first.clone(),
        message("same key").with_dedup_key("k"),
        first.clone(),
        message("m").with_group(long.as_str()),
        message("m").with_header("anyqueue-dead-reason", "none"),
        message("m").with_priority(10),
        message("past").with_not_before(std::time::SystemTime::UNIX_EPOCH),
    ];
    let outcomes = bed.queue.push_in(&mut conn, &p, &batch).await.unwrap().outcomes;
    let duplicate = PushOutcome::Duplicate(Some(first.id()));
    assert_eq!(*outcomes[0].as_ref().unwrap(), PushOutcome::Stored(first.id()));
    assert_eq!([outcomes[1].as_ref().unwrap(), outcomes[2].as_ref().unwrap()], [&duplicate; 2]);
    for refused in &outcomes[3..6] {
        assert_eq!(refused.as_ref().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(matches!(outcomes[6], Ok(PushOutcome::Stored(_))));
    assert_eq!(drain(&bed.queue, &p).await, ["first", "past"]);
}

#[tokio::test]
async fn a_connection_to_another_file_and_a_closed_queue_are_refused() {
    let bed = Bed::new().await;
    let mut other = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let error = bed.queue.push_in(&mut other, &part("p"), &[message("m")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let mut conn = application(&bed).await;
    bed.queue.close().await.unwrap();
    let error = bed.queue.push_in(&mut conn, &part("p"), &[message("m")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_read_only_connection_is_denied() {
    let bed = Bed::new().await;
    let options = SqliteConnectOptions::new().filename(bed.path()).read_only(true);
    let mut conn = options.connect().await.unwrap();
    let error = bed.queue.push_in(&mut conn, &part("p"), &[message("m")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
}

/// Everything in the file, but for its schema.
fn contents(path: &std::path::Path) -> Vec<String> {
    let conn = rusqlite::Connection::open(path).unwrap();
    let tables = ["counter", "partition", "message", "ready", "timed", "group", "blocked"];
    let rows = tables.iter().flat_map(|table| {
        let mut statement = conn.prepare(&format!("SELECT * FROM anyqueue_{table}")).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            (0..columns).map(|n| row.get(n)).collect::<rusqlite::Result<Vec<rusqlite::types::Value>>>()
        };
        let rows = statement.query_map((), row).unwrap();
        rows.map(|row| format!("{table} {:?}", row.unwrap())).collect::<Vec<_>>()
    });
    rows.collect()
}

#[tokio::test]
async fn a_push_in_a_transaction_leaves_the_same_rows_as_any_other() {
    let ((bed, _one), (twin, _other)) = (Bed::still().await, Bed::still().await);
    let mut conn = application(&twin).await;
    let first = message("first").with_dedup_key("k");
    let group = |text: &str| message(text).with_group("g");
    let batches = [
        vec![
            first.clone(),
            message("same key").with_dedup_key("k"),
            first,
            message("urgent").with_priority(9),
        ],
        vec![group("head"), group("second"), message("alone").with_group("h"), group("third")],
        vec![message("late").with_delay(LEASE), group("later").with_delay(LEASE).with_dedup_key("late")],
    ];
    let plain = |outcomes: Vec<anyqueue::Result<PushOutcome>>| {
        outcomes.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    for partition in [part("p"), part("p").dead_letters(), part("q")] {
        for batch in &batches {
            let pushed = bed.queue.push(&partition, batch).await;
            let pushed_in = twin.queue.push_in(&mut conn, &partition, batch).await.unwrap().outcomes;
            assert_eq!(plain(pushed), plain(pushed_in), "{partition}");
        }
    }
    let changes = |key: &str, what| message("newer").with_dedup_key(key).with_on_duplicate(what);
    let changes = [
        vec![changes("k", OnDuplicate::Replace), changes("late", OnDuplicate::Replace)],
        vec![changes("late", OnDuplicate::Earlier).with_delay(LEASE / 2), changes("k", OnDuplicate::Behind)],
    ];
    for batch in &changes {
        let pushed = bed.queue.push(&part("p"), batch).await;
        let pushed_in = twin.queue.push_in(&mut conn, &part("p"), batch).await.unwrap().outcomes;
        assert_eq!(plain(pushed), plain(pushed_in));
    }
    let rows = contents(&bed.path());
    assert!(rows.len() > 20, "{rows:?}");
    assert_eq!(rows, contents(&twin.path()));
}
