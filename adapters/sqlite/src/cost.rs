//! Counts the statements of a push.

use anyqueue::{Clock, MessageData, OnDuplicate, PartitionId};
use rusqlite::{Connection, StatementStatus};

use crate::job::Work;
use crate::new_message::NewMessage;
use crate::plans::STATEMENTS;
use crate::tx::Parts;
use crate::{SqliteQueue, connect, due, group, insert, place, stored, taken};

/// Which statements ran, and how often, in the order of [`STATEMENTS`].
fn runs(conn: &Connection) -> Vec<i32> {
    let runs = |text| conn.prepare_cached(text).unwrap().get_status(StatementStatus::Run);
    STATEMENTS.into_iter().map(runs).collect()
}

/// Pushes a message in a transaction of its own. Answers which statements that took.
fn pushed(
    queue: &SqliteQueue,
    conn: &Connection,
    parts: &mut Parts,
    message: &MessageData,
) -> Vec<&'static str> {
    let message = NewMessage::prepare(message, 1000, &Clock::system()).unwrap();
    let work = Work::Push { partition: PartitionId::new("p").unwrap(), messages: vec![message] };
    let before = runs(conn);
    assert!(group::run(conn, parts, &queue.inner.config, &[&work]).is_ok());
    let ran = STATEMENTS.into_iter().zip(before).zip(runs(conn));
    ran.flat_map(|((text, before), after)| (before..after).map(move |_| text)).collect()
}

#[tokio::test]
async fn only_who_asks_for_more_than_to_keep_pays_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::open(dir.path().join("q.db")).await.unwrap();
    let conn = connect::writer(&queue.inner.config).unwrap();
    let mut parts = Parts::default();
    let keyed = |key: &str, what| MessageData::new("m").with_dedup_key(key).with_on_duplicate(what);
    pushed(&queue, &conn, &mut parts, &MessageData::new("makes the partition"));

    let free = [due::DUE, place::READY, insert::INSERT, insert::HAS_DEAD];
    let kept = [due::DUE, insert::INSERT, insert::HAS_DEAD, taken::KNOWN];
    for (key, what) in [("a", OnDuplicate::Keep), ("b", OnDuplicate::Replace), ("c", OnDuplicate::Behind)] {
        assert_eq!(pushed(&queue, &conn, &mut parts, &keyed(key, what)), free, "{what:?}");
        assert_eq!(pushed(&queue, &conn, &mut parts, &keyed(key, OnDuplicate::Keep)), kept);
    }
    let replaced = [&kept[..3], &[stored::STORED, stored::REPLACE, taken::KNOWN, taken::HOLDER]].concat();
    assert_eq!(pushed(&queue, &conn, &mut parts, &keyed("a", OnDuplicate::Replace)), replaced);
    let refused = [&kept[..], &[taken::HOLDER]].concat();
    for what in [OnDuplicate::Behind, OnDuplicate::Earlier] {
        assert_eq!(pushed(&queue, &conn, &mut parts, &keyed("a", what)), refused, "{what:?}");
    }
}
