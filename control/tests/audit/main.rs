//! The audit trail in a store.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod servers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, ControlStore, Entry, Expect, Key, Stamped};
use anyqueue::{Error, ErrorKind, Page, Queue, Result};
use anyqueue_control::audit::{Audit, Call, KEPT, MAX_ENTRIES, Outcome};
use anyqueue_memory::MemoryQueue;
use futures_util::future::join_all;
use tokio::sync::Barrier;

fn store() -> ControlStore {
    Queue::new(MemoryQueue::new()).unwrap().control().unwrap()
}

fn call(number: u64) -> Call {
    Call::new("POST", &format!("/{number}"))
}

#[tokio::test]
async fn a_call_is_entered_before_and_after_with_who_when_and_from_where() {
    let store = store();
    let audit = Audit::new(store.clone());
    let now = store.list("", Page::of(1)).await.unwrap().now;
    let call = Call::new("DELETE", "/v1/limits/smtp").with_token("ops").with_from("10.0.0.1");
    let begun = audit.begin(&call).await.unwrap();
    let entry = audit.list(Page::of(10)).await.unwrap().entries.remove(0);
    assert_eq!(
        (entry.number, entry.token.as_deref(), entry.from.as_deref()),
        (1, Some("ops"), Some("10.0.0.1"))
    );
    assert_eq!(
        (entry.method.as_str(), entry.path.as_str(), &entry.outcome),
        ("DELETE", "/v1/limits/smtp", &None)
    );
    assert!(entry.at >= now);
    let mut outcome = Outcome::new(204);
    outcome.add_queue("mail");
    outcome.add_detail("deleted", "1");
    outcome.add_detail("deleted", "2");
    audit.end(begun, &outcome).await.unwrap();
    let entry = audit.list(Page::of(10)).await.unwrap().entries.remove(0);
    let outcome = entry.outcome.unwrap();
    assert_eq!((outcome.status, outcome.queues), (204, vec!["mail".to_owned()]));
    assert_eq!(outcome.details, [("deleted".to_owned(), "2".to_owned())]);
    let kept = store.list("audit/", Page::of(1)).await.unwrap();
    let until = kept.value[0].expires_at.unwrap();
    assert!(until <= kept.now + KEPT && until >= now + KEPT, "it ends by itself");
}

#[tokio::test]
async fn there_are_never_more_than_so_many_and_the_newest_come_first() {
    let store = Queue::new(Counting::new()).unwrap().control().unwrap();
    let audit = Audit::new(store.clone());
    // Some at a time, also together.
    let more = 60;
    for number in 1..=MAX_ENTRIES {
        let _ = audit.begin(&call(number)).await.unwrap();
    }
    let late: Vec<_> = (MAX_ENTRIES + 1..=MAX_ENTRIES + more).map(call).collect();
    let _ = join_all(late.iter().map(|call| audit.begin(call))).await;
    let most = usize::try_from(MAX_ENTRIES).unwrap();
    assert_eq!(store.list_all("audit/", 2 * most).await.unwrap().value.len(), most);
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = audit.list(Page::of(100).after(before)).await.unwrap();
        seen.extend(page.entries.iter().map(|entry| entry.path.clone()));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let expected: Vec<_> = (more + 1..=MAX_ENTRIES + more).rev().map(|number| format!("/{number}")).collect();
    assert!(seen == expected, "from {:?} to {:?}", seen.first(), seen.last());
}

/// A store whose first two readers see the same before either writes.
#[derive(Debug)]
struct Meeting {
    memory: MemoryQueue,
    both: Barrier,
    met: AtomicBool,
}

impl Forward for Meeting {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Meeting {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.memory.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        let found = self.memory.list(prefix, page).await;
        if !self.met.load(Ordering::SeqCst) {
            self.both.wait().await;
            self.met.store(true, Ordering::SeqCst);
        }
        found
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.memory.apply(changes).await
    }
}

#[tokio::test]
async fn of_two_that_see_the_same_number_free_each_enters_its_call() {
    let meeting = Meeting { memory: MemoryQueue::new(), both: Barrier::new(2), met: AtomicBool::new(false) };
    let store = Queue::new(meeting).unwrap().control().unwrap();
    // Each as if it were of a process of its own.
    let (one, other) = (Audit::new(store.clone()), Audit::new(store.clone()));
    let (one_call, other_call) = (call(1), call(2));
    let begun = tokio::join!(one.begin(&one_call), other.begin(&other_call));
    let _ = (begun.0.unwrap(), begun.1.unwrap());
    let entries = one.list(Page::of(10)).await.unwrap().entries;
    let paths: BTreeSet<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, BTreeSet::from(["/1", "/2"]));
}

/// A store that takes a moment for changes, counts its calls for them, and may fail.
#[derive(Debug)]
struct Counting {
    memory: MemoryQueue,
    changed: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
}

impl Counting {
    fn new() -> Self {
        Self { memory: MemoryQueue::new(), changed: Arc::default(), fails: Arc::default() }
    }
}

impl Forward for Counting {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Counting {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.memory.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.memory.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.changed.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        if self.fails.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::AccessDenied, "this store is locked"));
        }
        self.memory.apply(changes).await
    }
}

#[tokio::test]
async fn calls_that_come_at_once_are_entered_together_each_as_its_own() {
    let counting = Counting::new();
    let changed = counting.changed.clone();
    let store = Queue::new(counting).unwrap().control().unwrap();
    let audit = Audit::new(store);
    let enter = |number: u64| {
        let audit = &audit;
        async move { audit.begin(&call(number)).await.unwrap() }
    };
    let begun = join_all((1..=50).map(enter)).await;
    assert_eq!(changed.load(Ordering::SeqCst), 2, "the first one, and then all that came meanwhile");
    for (begun, status) in begun.into_iter().zip(1..) {
        audit.end(begun, &Outcome::new(status)).await.unwrap();
    }
    let entries = audit.list(Page::of(100)).await.unwrap().entries;
    assert_eq!(entries.len(), 50);
    for entry in entries {
        let status = entry.outcome.unwrap().status;
        assert_eq!((entry.number, entry.path), (u64::from(status), format!("/{status}")), "in order");
    }
    changed.store(0, Ordering::SeqCst);
    let _ = join_all((1..=500).map(enter)).await;
    assert_eq!(changed.load(Ordering::SeqCst), 12, "a call of the store has room for 49");
}

#[tokio::test]
async fn of_those_that_cannot_be_entered_together_each_is_told() {
    let counting = Counting::new();
    let fails = counting.fails.clone();
    let audit = Audit::new(Queue::new(counting).unwrap().control().unwrap());
    fails.store(true, Ordering::SeqCst);
    let begin = |number: u64| {
        let audit = &audit;
        async move { audit.begin(&call(number)).await }
    };
    let refused = join_all((1..=20).map(begin)).await;
    assert!(refused.iter().all(|one| one.as_ref().is_err_and(|e| e.kind() == ErrorKind::AccessDenied)));
    fails.store(false, Ordering::SeqCst);
    let _ = begin(1).await.unwrap();
    assert_eq!(audit.list(Page::of(100)).await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn who_leaves_while_others_wait_holds_up_none_of_them() {
    let counting = Counting::new();
    let audit = Audit::new(Queue::new(counting).unwrap().control().unwrap());
    let calls: Vec<_> = (1..=6).map(call).collect();
    let mut waiting: Vec<_> = calls.iter().map(|call| Box::pin(audit.begin(call))).collect();
    for one in &mut waiting {
        assert!(futures_util::poll!(one).is_pending());
    }
    let _ = waiting.remove(0).await.unwrap();
    // It enters all the others now, and leaves within that; and so does one of them.
    let mut entering = waiting.remove(0);
    assert!(futures_util::poll!(&mut entering).is_pending());
    drop(entering);
    drop(waiting.remove(0));
    assert!(join_all(waiting).await.iter().all(Result::is_ok));
    let entries = audit.list(Page::of(10)).await.unwrap().entries;
    let paths: BTreeSet<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
    assert!(paths.is_superset(&BTreeSet::from(["/1", "/4", "/5", "/6"])), "{paths:?}");
}

#[tokio::test]
async fn what_came_of_a_call_does_not_bring_back_an_entry_that_is_gone() {
    let store = store();
    let audit = Audit::new(store.clone());
    let begun = audit.begin(&call(1)).await.unwrap();
    let key = store.list("audit/", Page::of(1)).await.unwrap().value.remove(0).key;
    assert!(store.apply(Change::delete(key, Expect::Any)).await.unwrap().value.is_done());
    audit.end(begun, &Outcome::new(200)).await.unwrap();
    assert!(audit.list(Page::of(10)).await.unwrap().entries.is_empty());
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_hides_no_other() {
    let store = store();
    let audit = Audit::new(store.clone());
    let _ = audit.begin(&call(1)).await.unwrap();
    let key = store.list("audit/", Page::of(1)).await.unwrap().value.remove(0).key;
    let _ = audit.begin(&call(2)).await.unwrap();
    let damage = Change::put(Key::new(key.as_str()).unwrap(), Expect::Any, "{");
    assert!(store.apply(damage).await.unwrap().value.is_done());
    let page = audit.list(Page::of(10)).await.unwrap();
    assert_eq!((page.entries.len(), page.unreadable[0].0.as_str()), (1, key.as_str()));
}
