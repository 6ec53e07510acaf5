//! Control entries: when what has a time to live is gone, what becomes of its place, and what pages have.

use std::time::Duration;

use anyqueue::adapter::{ControlStorage, QueueStorage};
use anyqueue::control::{
    Applied, Change, Entry, Expect, Key, MAX_CONTROL_CALL_BYTES, MAX_CONTROL_CHANGES,
    MAX_CONTROL_VALUE_BYTES, Version,
};
use anyqueue::{ErrorKind, Page};
use anyqueue_postgres::PostgresQueue;
use sqlx::Connection;

use crate::common::{Bed, run};
use crate::locks::number;
use crate::older_release::make_old;

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) async fn apply(queue: &PostgresQueue, change: Change) -> Applied {
    queue.apply(&[change]).await.unwrap().value.remove(0)
}

pub(crate) async fn put(queue: &PostgresQueue, name: &str) {
    let change = Change::put(key(name), Expect::Any, name.to_owned());
    assert_eq!(apply(queue, change).await, Applied::Done);
}

pub(crate) async fn get(queue: &PostgresQueue, name: &str) -> Option<Entry> {
    queue.get(&[key(name)]).await.unwrap().value.remove(0)
}

/// The keys with a prefix, by pages of so many.
pub(crate) async fn walk(queue: &PostgresQueue, prefix: &str, limit: usize) -> Vec<String> {
    let (mut keys, mut after): (Vec<String>, _) = (Vec::new(), None);
    loop {
        let page = queue.list(prefix, Page::of(limit).after(after)).await.unwrap().value;
        keys.extend(page.iter().map(|entry| entry.key.to_string()));
        if page.len() < limit {
            return keys;
        }
        after = page.last().map(|entry| entry.key.clone());
    }
}

pub(crate) async fn rows(bed: &Bed) -> i64 {
    number(&mut bed.connect().await, format!("SELECT count(*) FROM {}.control_entry", bed.schema)).await
}

/// Lets time pass for all entries.
pub(crate) async fn expire(bed: &Bed) {
    bed.run(format!("UPDATE {}.control_entry SET expires_at = 1000", bed.schema)).await;
}

/// Bytes that cannot be compressed.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[tokio::test]
async fn an_entry_is_there_to_its_last_moment_and_no_longer_by_the_servers_clock() {
    const FIRST_MS: u64 = 200;
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    // In each millisecond one ends, so whenever somebody looks it is at a last moment.
    let name = |n: u64| key(&format!("w/{n:02}"));
    let ttl = |n: u64| Duration::from_millis(FIRST_MS + n);
    let changes: Vec<_> =
        (0..100).map(|n| Change::put(name(n), Expect::Absent, "x").with_ttl(ttl(n))).collect();
    let made = queue.apply(&changes).await.unwrap().now;
    let since = made.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_nanos() % 1_000_000, 0, "to the millisecond");
    let keys: Vec<_> = (0..100).map(name).collect();
    let mut looks_meanwhile = 0;
    loop {
        let found = queue.get(&keys).await.unwrap();
        let listed = queue.list("w/", Page::of(100)).await.unwrap();
        let there = |now| (0..100).filter(move |n| now < made + ttl(*n));
        for (n, entry) in (0..).zip(&found.value) {
            let expected = (found.now < made + ttl(n)).then_some(made + ttl(n));
            assert_eq!(entry.as_ref().map(|entry| entry.expires_at.unwrap()), expected);
        }
        let names: Vec<_> = listed.value.iter().map(|entry| entry.key.clone()).collect();
        assert_eq!(names, there(listed.now).map(name).collect::<Vec<_>>());
        looks_meanwhile += u32::from((1..100).contains(&names.len()));
        if names.is_empty() {
            break;
        }
    }
    assert!(looks_meanwhile > 0, "it has to look while they end");
    assert_eq!(rows(&bed).await, 100, "nobody has freed them");
    let late = Change::put(name(0), Expect::Version(changes[0].version().unwrap()), "late");
    assert_eq!(apply(&queue, late).await, Applied::Conflict(None));
    assert_eq!(rows(&bed).await, 0, "freed with that call");
    assert_eq!(queue.get(&[name(1), name(1)]).await.unwrap().value, [None, None]);
    put(&queue, "twice").await;
    let twice = queue.get(&[key("twice"), name(1), key("twice")]).await.unwrap().value;
    assert!(twice[0].is_some() && twice[0] == twice[2] && twice[1].is_none());
}

#[tokio::test]
async fn each_change_of_a_call_finds_what_those_before_it_left() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let large = noise(MAX_CONTROL_VALUE_BYTES);
    let first = Change::put(key("a"), Expect::Absent, "1");
    let version = first.version().unwrap();
    let second = Change::put(key("a"), Expect::Version(version), large.clone());
    let there = second.version().unwrap();
    let changes = [
        first,
        second,
        Change::put(key("a"), Expect::Absent, "not made"),
        Change::delete(key("a"), Expect::Version(version)),
        Change::put(key("a"), Expect::Any, ""),
        Change::delete(key("a"), Expect::Any),
        Change::delete(key("a"), Expect::Any),
        Change::delete(key("a"), Expect::Version(there)),
    ];
    let applied = queue.apply(&changes).await.unwrap().value;
    let conflict = |applied: &Applied| match applied {
        Applied::Done => panic!("done"),
        Applied::Conflict(entry) => entry.as_ref().map(|entry| (entry.version, entry.value.to_vec())),
    };
    let large = Some((there, large));
    assert_eq!([&applied[2], &applied[3], &applied[7]].map(conflict), [large.clone(), large, None]);
    assert!([0, 1, 4, 5, 6].iter().all(|n| applied[*n].is_done()), "{applied:?}");
}

#[tokio::test]
async fn what_has_expired_does_not_pile_up_and_is_no_obstacle() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    bed.run(format!(
        "INSERT INTO {}.control_entry SELECT 'w/' || n, n, n, '' FROM generate_series(1, 3000) n",
        bed.schema
    ))
    .await;
    assert_eq!(walk(&queue, "w/", 100).await, [""; 0]);
    for n in 0..MAX_CONTROL_CHANGES {
        let change = Change::put(key(&format!("w/{n}")), Expect::Absent, "x");
        assert!(apply(&queue, change).await.is_done());
        if n >= 15 {
            break;
        }
    }
    assert_eq!(rows(&bed).await, 16, "the living alone");
    expire(&bed).await;
    let expired = rows(&bed).await;
    // A call that brings as many as it can frees more than that.
    let put = |n| Change::put(key(&format!("v/{n}")), Expect::Absent, "x").with_ttl(Duration::from_millis(1));
    queue.apply(&(0..MAX_CONTROL_CHANGES).map(put).collect::<Vec<_>>()).await.unwrap();
    assert!(rows(&bed).await <= i64::try_from(MAX_CONTROL_CHANGES).unwrap(), "{expired} before");
}

#[tokio::test]
async fn a_page_has_the_keys_of_its_prefix_in_the_order_of_their_bytes() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let last = "\u{10FFFF}".repeat(128);
    let names = ["%", "_", "a", "a%b", "a/", "a/ä", "a/\u{10FFFF}", "a0", "aXb", "ab", "ä", &last];
    for name in names.iter().rev() {
        put(&queue, name).await;
    }
    for limit in [1, 2, 100] {
        for prefix in ["", "a", "a/", "a%", "%", "_", "a/\u{10FFFF}", "\u{10FFFF}", "ä", "b", "a\0", &last] {
            let expected: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).collect();
            assert_eq!(walk(&queue, prefix, limit).await.iter().collect::<Vec<_>>(), expected, "{prefix:?}");
        }
    }
    // A page that begins after a key which the prefix does not have.
    let page = queue.list("a/", Page::of(9).after(Some(key("Z")))).await.unwrap().value;
    assert_eq!(page.len(), 3);
    let page = queue.list("a/", Page::of(9).after(Some(key("b")))).await.unwrap().value;
    assert_eq!(page.len(), 0);
}

#[tokio::test]
async fn calls_at_their_limits_are_kept_byte_for_byte_and_versions_bit_for_bit() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let name = |n: usize| key(&format!("{n:03}{}", "k".repeat(100)));
    for (count, bytes) in [
        (MAX_CONTROL_CALL_BYTES / MAX_CONTROL_VALUE_BYTES - 1, MAX_CONTROL_VALUE_BYTES),
        (MAX_CONTROL_CHANGES, MAX_CONTROL_CALL_BYTES / MAX_CONTROL_CHANGES - 103),
    ] {
        let value = noise(bytes);
        let changes: Vec<_> = (0..count).map(|n| Change::put(name(n), Expect::Any, value.clone())).collect();
        assert!(queue.apply(&changes).await.unwrap().value.iter().all(Applied::is_done));
        let found = queue.get(&(0..count).map(name).collect::<Vec<_>>()).await.unwrap().value;
        let listed = queue.list("", Page::of(count)).await.unwrap().value;
        for (n, change) in changes.iter().enumerate() {
            let entry = found[n].as_ref().unwrap();
            assert_eq!((Some(entry.version), &entry.value[..]), (change.version(), &value[..]));
            assert_eq!(listed[n], *entry);
        }
    }
    for number in [1, u64::MAX, 1 << 63, u64::MAX / 2] {
        let mut change = Change::put(key("v"), Expect::Any, "").with_ttl(Duration::MAX);
        if let Change::Put { version, .. } = &mut change {
            *version = Version::from_u64(number);
        }
        assert!(apply(&queue, change).await.is_done());
        let found = get(&queue, "v").await.unwrap();
        assert_eq!((found.version.get(), found.expires_at), (number, None));
        assert!(apply(&queue, Change::delete(key("v"), Expect::Version(found.version))).await.is_done());
    }
}

#[tokio::test]
async fn a_schema_of_the_release_before_control_entries_is_upgraded() {
    let Some(bed) = Bed::empty().await else { return };
    make_old(&mut bed.connect().await, &bed.schema, 4).await;
    let closed = PostgresQueue::builder(&bed.url()).unwrap().create(false).open().await.unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Incompatible, "{closed}");
    let queue = bed.open().await;
    put(&queue, "k").await;
    let other = PostgresQueue::builder(&bed.url()).unwrap().create(false).open().await.unwrap();
    assert_eq!(get(&other, "k").await.unwrap().value, "k");
}

#[tokio::test]
async fn a_closed_handle_says_so_and_an_empty_question_has_the_time() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let before = queue.get(&[]).await.unwrap();
    assert!(before.value.is_empty() && before.now <= queue.list("", Page::of(1)).await.unwrap().now);
    queue.close().await.unwrap();
    let change = Change::put(key("k"), Expect::Any, "");
    assert_eq!(queue.apply(&[change]).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(queue.get(&[]).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(queue.list("", Page::of(1)).await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn changes_are_refused_at_a_level_that_would_let_two_win() {
    let Some(bed) = Bed::find().await else { return };
    bed.open().await;
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ".to_owned()).await;
    let call = format!(
        "SELECT {}.control_apply(ARRAY['k'], ARRAY[1]::smallint[], ARRAY[NULL]::bigint[], ARRAY[1]::bigint[], ARRAY[NULL]::bigint[], ARRAY[''::bytea])",
        bed.schema
    );
    let error = sqlx::raw_sql(sqlx::AssertSqlSafe(call)).execute(&mut *tx).await.unwrap_err();
    assert!(error.to_string().contains("read committed"), "{error}");
}
