//! Control entries in a file, among several handles.

use std::time::Duration;

use anyqueue::adapter::{ControlStorage, PushQueueStorage};
use anyqueue::control::{Applied, Change, Entry, Expect, Key, MAX_CONTROL_VALUE_BYTES};
use anyqueue::{ErrorKind, MessageData, Page};
use anyqueue_sqlite::SqliteQueue;

use crate::common::{Bed, part};

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

async fn apply(queue: &SqliteQueue, change: Change) -> Applied {
    queue.apply(&[change]).await.unwrap().value.remove(0)
}

#[tokio::test]
async fn what_one_handle_wrote_another_reads_also_after_a_restart() {
    let bed = Bed::new().await;
    let value = vec![0xff; MAX_CONTROL_VALUE_BYTES];
    assert!(apply(&bed.queue, Change::put(key("a"), Expect::Absent, value.clone())).await.is_done());
    let other = bed.other().await;
    assert_eq!(other.get(&[key("a")]).await.unwrap().value[0].as_ref().unwrap().value, value);
    drop((other, bed.queue));
    let again = SqliteQueue::open(bed.dir.path().join("q.db")).await.unwrap();
    assert_eq!(again.get(&[key("a"), key("b")]).await.unwrap().value[0].as_ref().unwrap().value, value);
}

#[tokio::test]
async fn counters_that_several_handles_raise_lose_no_step() {
    const STEPS: u32 = 25;
    let bed = Bed::new().await;
    let handles = [bed.other().await, bed.other().await, bed.other().await];
    let raisers = handles.into_iter().map(|queue| {
        tokio::spawn(async move {
            let mut raised = 0;
            while raised < STEPS {
                let there = queue.get(&[key("n")]).await.unwrap().value.remove(0);
                let (expect, n) = there.map_or((Expect::Absent, 0), |entry| {
                    (
                        Expect::Version(entry.version),
                        String::from_utf8(entry.value.to_vec()).unwrap().parse().unwrap(),
                    )
                });
                let n: u32 = n;
                raised += u32::from(
                    apply(&queue, Change::put(key("n"), expect, (n + 1).to_string())).await.is_done(),
                );
            }
        })
    });
    for raiser in raisers.collect::<Vec<_>>() {
        raiser.await.unwrap();
    }
    assert_eq!(bed.queue.get(&[key("n")]).await.unwrap().value[0].as_ref().unwrap().value, "75");
}

#[tokio::test]
async fn entries_that_expired_do_not_pile_up() {
    let (bed, time) = Bed::still().await;
    let ttl = Duration::from_secs(15);
    for round in 0..50 {
        let beats =
            (0..10).map(|n| Change::put(key(&format!("w/{round}/{n}")), Expect::Absent, "x").with_ttl(ttl));
        bed.queue.apply(&beats.collect::<Vec<_>>()).await.unwrap();
        time.advance(ttl);
    }
    bed.queue.apply(&[Change::put(key("z"), Expect::Any, "")]).await.unwrap();
    assert_eq!(bed.queue.list("", Page::of(100)).await.unwrap().value.len(), 1);
    let file = rusqlite::Connection::open(bed.path()).unwrap();
    let rows: i64 = file.query_row("SELECT count(*) FROM anyqueue_control", (), |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn a_list_holds_to_its_prefix_whatever_characters_it_has() {
    let bed = Bed::new().await;
    let names = ["a", "a%b", "a/", "a/\u{10ffff}", "a/\u{10ffff}\u{10ffff}", "a/é", "a0", "a_b", "A/", "b"];
    let puts = names.map(|name| Change::put(key(name), Expect::Absent, ""));
    bed.queue.apply(&puts).await.unwrap();
    let mut sorted = names;
    sorted.sort_unstable();
    for prefix in ["", "a", "a/", "a%", "a_", "a/\u{10ffff}", "A", "c"] {
        let expected: Vec<_> = sorted.into_iter().filter(|name| name.starts_with(prefix)).collect();
        let mut listed: Vec<Key> = Vec::new();
        loop {
            let page = bed.queue.list(prefix, Page::of(2).after(listed.last().cloned())).await.unwrap().value;
            let is_last = page.len() < 2;
            listed.extend(page.into_iter().map(|entry| entry.key));
            if is_last {
                break;
            }
        }
        assert_eq!(listed.iter().map(Key::as_str).collect::<Vec<_>>(), expected, "{prefix:?}");
    }
}

#[tokio::test]
async fn in_a_full_file_entries_can_be_replaced_and_deleted_and_none_is_added() {
    const BEAT_BYTES: usize = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::builder(dir.path().join("q.db")).max_bytes(512 * 1024).open().await.unwrap();
    let first = Change::put(key("w"), Expect::Absent, "a first beat");
    let mut last = first.version().unwrap();
    assert!(apply(&queue, first).await.is_done());
    // Until not even a small one fits.
    for bytes in [20_000, 10] {
        while queue.push(&part("p"), &[MessageData::new(vec![7; bytes])]).await[0].is_ok() {}
    }
    for bytes in [BEAT_BYTES, 10, 30_000, BEAT_BYTES, BEAT_BYTES] {
        let beat = Change::put(key("w"), Expect::Version(last), vec![7; bytes]);
        last = beat.version().unwrap();
        assert!(apply(&queue, beat).await.is_done(), "{bytes}");
        assert_eq!(queue.get(&[key("w")]).await.unwrap().value[0].as_ref().unwrap().value.len(), bytes);
    }
    for more in [
        Change::put(key("new"), Expect::Absent, vec![7; BEAT_BYTES]),
        Change::put(key("w"), Expect::Version(last), vec![7; MAX_CONTROL_VALUE_BYTES]),
    ] {
        assert_eq!(queue.apply(&[more]).await.unwrap_err().kind(), ErrorKind::Full);
    }
    assert!(apply(&queue, Change::delete(key("w"), Expect::Version(last))).await.is_done());
}

#[tokio::test]
async fn what_was_written_at_once_is_read_at_once() {
    const ROUNDS: u32 = 300;
    let bed = Bed::new().await;
    let other = bed.other().await;
    let names: Vec<_> = (0..20).map(|n| key(&format!("e/{n:02}"))).collect();
    let write = async {
        for round in 0..ROUNDS {
            let puts = names.iter().map(|name| Change::put(name.clone(), Expect::Any, round.to_string()));
            bed.queue.apply(&puts.collect::<Vec<_>>()).await.unwrap();
        }
    };
    let read = async {
        loop {
            let got = other.get(&names).await.unwrap().value;
            assert!(got.windows(2).all(|two| same(two[0].as_ref(), two[1].as_ref())), "{got:?}");
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { () = write => {}, () = read => {} }
}

fn same(a: Option<&Entry>, b: Option<&Entry>) -> bool {
    a.map(|entry| &entry.value) == b.map(|entry| &entry.value)
}
