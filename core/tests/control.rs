//! The control store: entries with versions and times to live, and what becomes of changes whose answers are lost.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "in a test, a panic is the message")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyqueue::adapter::{Capabilities, ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{
    Applied, Change, ControlStore, Entry, Expect, Key, MAX_CONTROL_CALL_BYTES, MAX_CONTROL_CHANGES,
    MAX_CONTROL_KEY_BYTES, MAX_CONTROL_VALUE_BYTES, Stamped,
};
use anyqueue::{Error, ErrorKind, ManualClock, Page, Queue, Result};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn store() -> ControlStore {
    Queue::new(MemoryQueue::new()).unwrap().control().unwrap()
}

#[tokio::test]
async fn of_two_changes_that_expect_one_version_one_is_made() {
    let store = store();
    let first = Change::put(key("a"), Expect::Absent, "1");
    let version = first.version().unwrap();
    assert!(store.apply(first).await.unwrap().value.is_done());

    let racers: Vec<_> = (0..20)
        .map(|n| {
            let (store, change) =
                (store.clone(), Change::put(key("a"), Expect::Version(version), format!("racer {n}")));
            tokio::spawn(async move { store.apply(change).await.unwrap().value.is_done() })
        })
        .collect();
    let mut won = 0;
    for racer in racers {
        won += usize::from(racer.await.unwrap());
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn what_has_expired_is_gone_and_its_name_is_free() {
    let time = ManualClock::new();
    let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let store = Queue::builder(memory).clock(time.clock()).build().unwrap().control().unwrap();
    let (ttl, tick) = (Duration::from_secs(15), Duration::from_millis(1));
    let _ = store.apply(Change::put(key("w"), Expect::Absent, "1").with_ttl(ttl)).await.unwrap();

    time.advance(ttl.saturating_sub(tick));
    assert!(store.get(&key("w")).await.unwrap().value.is_some());
    time.advance(tick);
    assert_eq!(store.get(&key("w")).await.unwrap().value, None);
    assert_eq!(store.list("", Page::of(10)).await.unwrap().value, []);
    assert!(store.apply(Change::put(key("w"), Expect::Absent, "2")).await.unwrap().value.is_done());
    let kept = store.get(&key("w")).await.unwrap();
    assert_eq!((kept.value.unwrap().expires_at, kept.now), (None, time.clock().wall()));
}

#[tokio::test]
async fn a_list_has_every_entry_of_its_prefix_once_in_the_order_of_the_keys() {
    let store = store();
    let names: Vec<_> = (0..250).map(|n| format!("worker/{n:03}")).collect();
    for name in names.iter().rev().map(String::as_str).chain(["worke", "worker", "workers", "zebra"]) {
        assert!(store.apply(Change::put(key(name), Expect::Absent, "")).await.unwrap().value.is_done());
    }
    let listed = store.list_all("worker/", 250).await.unwrap().value;
    assert_eq!(listed.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), names);
    let refused = store.list_all("worker/", 249).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
}

/// Does what it is asked, then loses the answer, so many times.
#[derive(Debug)]
struct Deaf(MemoryQueue, AtomicUsize);

impl Forward for Deaf {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Deaf {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.0.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.0.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        let answer = self.0.apply(changes).await;
        let lost = self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if lost.is_ok() { Err(Error::new(ErrorKind::Unavailable, "the connection broke")) } else { answer }
    }
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_does_not_conflict_with_itself() {
    let deaf = Deaf(MemoryQueue::new(), AtomicUsize::new(0));
    let lost: Arc<Deaf> = Arc::new(deaf);
    let store = Queue::new(Arc::clone(&lost) as Arc<dyn Storage>).unwrap().control().unwrap();
    lost.1.store(2, Ordering::Relaxed);
    let change = Change::put(key("a"), Expect::Absent, "1");
    let version = change.version().unwrap();
    assert_eq!(store.apply(change).await.unwrap().value, Applied::Done);

    lost.1.store(1, Ordering::Relaxed);
    let delete = Change::delete(key("a"), Expect::Version(version));
    assert_eq!(store.apply(delete).await.unwrap().value, Applied::Done);

    lost.1.store(100, Ordering::Relaxed);
    let error = store.apply(Change::put(key("a"), Expect::Absent, "1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn what_somebody_else_wrote_conflicts_though_the_answer_was_lost() {
    let lost = Arc::new(Deaf(MemoryQueue::new(), AtomicUsize::new(0)));
    let store = Queue::new(Arc::clone(&lost) as Arc<dyn Storage>).unwrap().control().unwrap();
    let _ = store.apply(Change::put(key("a"), Expect::Absent, "theirs")).await.unwrap();
    lost.1.store(1, Ordering::Relaxed);
    let applied = store.apply(Change::put(key("a"), Expect::Absent, "mine")).await.unwrap().value;
    assert!(matches!(applied, Applied::Conflict(Some(entry)) if entry.value == "theirs"));
}

#[tokio::test]
async fn bad_changes_are_refused_before_any_is_made() {
    let store = store();
    let put = |value: Vec<u8>| Change::put(key("a"), Expect::Any, value);
    let kind = |error: Result<Stamped<Vec<Applied>>>| error.unwrap_err().kind();

    let at_the_limit = put(vec![0; MAX_CONTROL_VALUE_BYTES]);
    assert!(store.apply(at_the_limit).await.unwrap().value.is_done());
    let beyond = put(vec![0; MAX_CONTROL_VALUE_BYTES + 1]);
    assert_eq!(kind(store.apply_all(vec![put(vec![]), beyond]).await), ErrorKind::TooLarge);
    assert_eq!(store.get(&key("a")).await.unwrap().value.unwrap().value.len(), MAX_CONTROL_VALUE_BYTES);

    let many = vec![put(vec![]); MAX_CONTROL_CHANGES];
    assert_eq!(store.apply_all(many.clone()).await.unwrap().value.len(), MAX_CONTROL_CHANGES);
    assert_eq!(kind(store.apply_all([many, vec![put(vec![])]].concat()).await), ErrorKind::InvalidInput);
    let heavy = vec![put(vec![0; MAX_CONTROL_VALUE_BYTES]); MAX_CONTROL_CALL_BYTES / MAX_CONTROL_VALUE_BYTES];
    assert_eq!(kind(store.apply_all(heavy).await), ErrorKind::TooLarge, "their keys come on top");
    assert_eq!(
        kind(store.apply_all(vec![put(vec![]).with_ttl(Duration::ZERO)]).await),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(store.apply_all(vec![Change::delete(key("a"), Expect::Absent)]).await),
        ErrorKind::InvalidInput
    );
    assert!(store.apply(put(vec![]).with_ttl(Duration::MAX)).await.unwrap().value.is_done());
    assert_eq!(store.get(&key("a")).await.unwrap().value.unwrap().expires_at, None);

    for bad in ["", "a\nb", "a\0", &"k".repeat(MAX_CONTROL_KEY_BYTES + 1)] {
        assert_eq!(Key::new(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(Key::new("k".repeat(MAX_CONTROL_KEY_BYTES)).is_ok());
}

/// A queue without a control store.
#[derive(Debug)]
struct Without(MemoryQueue, Capabilities);

impl Forward for Without {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }
}

#[tokio::test]
async fn a_backend_without_a_control_store_says_so() {
    let memory = MemoryQueue::new();
    let mut capabilities = anyqueue::adapter::QueueStorage::capabilities(&memory).clone();
    capabilities.control = false;
    let error = Queue::new(Without(memory, capabilities)).unwrap().control().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
