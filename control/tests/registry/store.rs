//! The store behind the registry: what it is asked, what it may fail, and what others have put there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Expect, Key, MAX_CONTROL_VALUE_BYTES, Stamped};
use anyqueue::{Error, ErrorKind, Page, Result};
use anyqueue_control::limits::{Limit, Limits, PermitOptions};
use anyqueue_control::registry::MemberOptions;
use anyqueue_memory::MemoryQueue;

use crate::bed::{Bed, registry_over, store_over};

/// Counts calls, and fails them while it is down.
#[derive(Debug)]
struct Watched {
    memory: MemoryQueue,
    calls: AtomicUsize,
    is_down: AtomicBool,
}

impl Watched {
    fn over(bed: &Bed) -> Arc<Self> {
        Arc::new(Self {
            memory: bed.memory.client(),
            calls: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
        })
    }

    fn call(&self) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.is_down.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "the store is down"));
        }
        Ok(())
    }
}

impl Forward for Watched {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Watched {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.call()?;
        self.memory.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.call()?;
        self.memory.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.call()?;
        self.memory.apply(changes).await
    }
}

#[tokio::test]
async fn a_beat_is_one_call_however_many_tasks_there_are() {
    const TASKS: usize = 600;
    let bed = Bed::new();
    let watched = Watched::over(&bed);
    let registry = registry_over(watched.clone(), &bed.time);
    let worker = bed.worker_by("busy", bed.time.clock(), TASKS);
    // No sweep falls into this time.
    let options = MemberOptions::default().with_valid_for(Duration::from_hours(20));
    let member = registry.join(&worker, options).await.unwrap();
    let run = worker.clone();
    let running = tokio::spawn(async move { member.during(run.run_until(std::future::pending())).await });
    let message = || anyqueue_worker::task("wait", &()).unwrap();
    bed.queue.push_many("jobs", (0..TASKS).map(|_| message()).collect::<Vec<_>>()).await.unwrap();
    bed.until("all run", async || worker.running().len() == TASKS).await;
    bed.pass(Duration::from_secs(5)).await;

    let before = watched.calls.load(Ordering::Relaxed);
    bed.pass(Duration::from_secs(50)).await;
    let beats = watched.calls.load(Ordering::Relaxed) - before;
    assert!((9..=10).contains(&beats), "{beats} calls in 50 s");
    let info = bed.info("busy").await.unwrap();
    assert_eq!((info.held.len(), info.running), (512, TASKS), "as many as an entry names");
    bed.gate.add_permits(TASKS);
    worker.shutdown();
    bed.until("it ends", async || running.is_finished()).await;
}

#[tokio::test]
async fn with_limits_too_a_beat_is_three_calls_however_many_tasks_there_are() {
    const TASKS: usize = 600;
    let bed = Bed::new();
    let watched = Watched::over(&bed);
    let limits = Limits::new(store_over(watched.clone(), &bed.time));
    limits.put("l", &Limit::partition("jobs").unwrap().cap(1000)).await.unwrap();
    let permits = limits.permits(PermitOptions::default()).unwrap();
    let worker = bed.builder_by("busy", bed.time.clock(), TASKS).permits(permits).build().unwrap();
    // No sweep falls into this time.
    let options = MemberOptions::default().with_valid_for(Duration::from_hours(20));
    let member = registry_over(watched.clone(), &bed.time).join(&worker, options).await.unwrap();
    let run = worker.clone();
    let running = tokio::spawn(async move { member.during(run.run_until(std::future::pending())).await });
    let message = || anyqueue_worker::task("wait", &()).unwrap();
    bed.queue.push_many("jobs", (0..TASKS).map(|_| message()).collect::<Vec<_>>()).await.unwrap();
    bed.until("all run", async || worker.running().len() == TASKS).await;
    bed.pass(Duration::from_secs(10)).await;
    assert!(limits.get("l").await.unwrap().unwrap().held >= TASKS as u64, "each has its permit");

    let before = watched.calls.load(Ordering::Relaxed);
    bed.pass(Duration::from_secs(50)).await;
    let calls = watched.calls.load(Ordering::Relaxed) - before;
    // Ten beats, or nine of one and eleven of the other: one call for the registry, two for limits.
    assert!((27..=32).contains(&calls), "{calls} calls in 50 s");
    bed.gate.add_permits(TASKS);
    worker.shutdown();
    bed.until("it ends", async || running.is_finished()).await;
    assert_eq!(limits.get("l").await.unwrap().unwrap().held, 0, "nothing leaks");
}

#[tokio::test]
async fn work_goes_on_while_the_store_is_down_and_the_worker_is_back_after_it() {
    let bed = Bed::new();
    let watched = Watched::over(&bed);
    watched.is_down.store(true, Ordering::Relaxed);
    let registry = registry_over(watched.clone(), &bed.time);
    let worker = bed.worker("a");
    let member = registry.join(&worker, MemberOptions::default()).await.unwrap();
    let run = worker.clone();
    let running = tokio::spawn(async move { member.during(run.run_until(std::future::pending())).await });
    bed.push().await;
    bed.gate.add_permits(1);
    bed.until("the task is done", async || bed.queue.counts("jobs").await.unwrap().leased == Some(0)).await;
    bed.pass(Duration::from_mins(1)).await;
    assert!(bed.names().await.is_empty());

    watched.is_down.store(false, Ordering::Relaxed);
    bed.until("it registers", async || bed.names().await == ["a"]).await;
    watched.is_down.store(true, Ordering::Relaxed);
    worker.shutdown();
    bed.until("it ends", async || running.is_finished()).await;
    assert_eq!(running.await.unwrap().0.unwrap().processed, 1);
}

#[tokio::test]
async fn entries_that_cannot_be_read_hide_nobody() {
    let bed = Bed::new();
    let store = bed.queue.control().unwrap();
    let put = |name: &str, value: &[u8]| {
        let key = Key::new(format!("worker/{name}")).unwrap();
        store.apply(Change::put(key, Expect::Any, value.to_vec()))
    };
    let _ = put("broken", b"{").await.unwrap();
    let _ = put("empty", b"").await.unwrap();
    let _ = put("huge", &vec![b'['; MAX_CONTROL_VALUE_BYTES]).await.unwrap();
    let _ = put("newer", b"{\"format\":2}").await.unwrap();
    let (worker, running) = bed.start("right").await;
    let listed = bed.registry.list().await.unwrap();
    assert_eq!(listed.workers.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["right"]);
    let kinds: Vec<_> = listed.unreadable.iter().map(|(name, error)| (&**name, error.kind())).collect();
    let corrupt = ErrorKind::Corrupt;
    let expected =
        [("broken", corrupt), ("empty", corrupt), ("huge", corrupt), ("newer", ErrorKind::Incompatible)];
    assert_eq!(kinds, expected);
    assert!(bed.registry.sweep().await.unwrap().is_empty());
    assert!(bed.registry.forget("broken").await.unwrap());
    worker.shutdown();
    bed.until("it ends", async || running.is_finished()).await;
}
