//! How often the store is asked for what a process lacks: never without a pause.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Expect, Key, Stamped};
use anyqueue::{Page, Result};
use anyqueue_control::limits::{Limit, Limits, MAX_HOLDERS};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::Permits;
use futures_util::future::BoxFuture;

use crate::bed::{Bed, Process, mail, millis, secs, store_over};

/// A store that counts the calls of one process, and can let others come before its next change.
struct Counting {
    memory: MemoryQueue,
    calls: AtomicUsize,
    before_change: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Counting {
    fn over(bed: &Bed) -> (Arc<Self>, Limits) {
        let (calls, before_change) = (AtomicUsize::new(0), Mutex::default());
        let counting = Arc::new(Self { memory: bed.memory.client(), calls, before_change });
        let storage: Arc<dyn Storage> = counting.clone();
        (counting, Limits::new(store_over(storage, &bed.time)))
    }

    /// How many calls were made since this was asked last.
    fn take_calls(&self) -> usize {
        self.calls.swap(0, SeqCst)
    }

    async fn call(&self) {
        self.calls.fetch_add(1, SeqCst);
        tokio::task::yield_now().await; // or who asks without a pause would keep all others from their turn
    }
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counting").finish_non_exhaustive()
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
        self.call().await;
        self.memory.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.call().await;
        self.memory.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.call().await;
        let before = self.before_change.lock().unwrap().take();
        if let Some(before) = before {
            before.await;
        }
        self.memory.apply(changes).await
    }
}

async fn put(bed: &Bed, most: u64) {
    bed.limits.put("l", &Limit::partition("mail").unwrap().cap(most)).await.unwrap();
}

/// Has it look at all limits.
async fn look(bed: &Bed, process: &mut Process) {
    process.freeze().await;
    process.wake();
    for _ in 0..8 {
        bed.turns().await;
    }
}

#[tokio::test]
async fn who_was_to_release_what_others_gave_meanwhile_keeps_it_and_asks_no_more() {
    let bed = Bed::new();
    put(&bed, 6).await;
    let (counting, limits) = Counting::over(&bed);
    let (mut a, mut b) = (bed.process_over(&limits, "a").await, bed.process("b").await);
    assert_eq!((a.get(&bed, 3).await, b.get(&bed, 3).await), (3, 3));
    let _runs = a.start().unwrap();
    (0..3).for_each(|_| drop(b.start().unwrap()));
    put(&bed, 4).await;
    look(&bed, &mut b).await;
    bed.pass(millis(250)).await;

    // Of three permits one is left to it, until two of the other's tasks end.
    let (permits, limits) = (b.permits.clone(), bed.limits.clone());
    *counting.before_change.lock().unwrap() = Some(Box::pin(async move {
        permits.release(&mail(), 2, true);
        for _ in 0..1000 {
            if limits.get("l").await.unwrap().unwrap().held == 4 {
                break;
            }
            tokio::task::yield_now().await;
        }
    }));
    look(&bed, &mut a).await;
    assert!(counting.before_change.lock().unwrap().is_none(), "it gave something back");
    assert_eq!(bed.info().await.held, 4);
    counting.take_calls();
    bed.turns().await;
    assert_eq!(counting.take_calls(), 0, "in no time");
    bed.pass(secs(2)).await;
    assert_eq!(counting.take_calls(), 0);
    assert!(a.start().is_some() && a.start().is_some(), "it has three");
    assert_eq!(a.get(&bed, 1).await, 0);
}

#[tokio::test]
async fn who_finds_no_place_in_a_cap_asks_with_pauses_while_its_tasks_run() {
    let bed = Bed::new();
    let (counting, limits) = Counting::over(&bed);
    let mut a = bed.process_over(&limits, "a").await;
    assert_eq!(a.take(1), 1, "there is no limit yet");
    let _runs = a.start().unwrap();
    put(&bed, 1000).await;
    let b = bed.process("b").await;
    assert_eq!(b.get(&bed, 1).await, 1);
    drop(b);
    // As if there were as many of it as an entry has places.
    let key = Key::new("limit/l").unwrap();
    let entry = bed.store.get(&key).await.unwrap().value.unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
    let mut holder = record["holders"][0].take();
    let holders = (0..MAX_HOLDERS).map(|number| {
        holder["session"] = number.to_string().into();
        holder.clone()
    });
    record["holders"] = holders.collect();
    let change = Change::put(key, Expect::Any, serde_json::to_vec(&record).unwrap());
    assert!(bed.store.apply(change).await.unwrap().value.is_done());

    look(&bed, &mut a).await;
    assert_eq!(bed.info().await.holders.len(), MAX_HOLDERS, "there is no place for it");
    counting.take_calls();
    bed.turns().await;
    assert_eq!(counting.take_calls(), 0, "in no time");
    bed.pass(secs(2)).await;
    let calls = counting.take_calls();
    assert!((1..=4).contains(&calls), "{calls} calls in two seconds");
    bed.pass(secs(15)).await;
    let info = bed.info().await;
    assert_eq!((info.held, info.holders.len()), (1, 1), "it has a place once others have none");
}
