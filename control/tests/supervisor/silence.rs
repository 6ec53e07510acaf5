//! Processes that live and are not heard of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Error, ErrorKind, Page, Queue, Result, RetryPolicy};
use anyqueue_control::registry::{MemberOptions, Registry};
use anyqueue_control::supervisor::{Event, SupervisorOptions};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Partition, TaskContext, Worker};

use crate::bed::{Bed, end, quick, start, until};

/// Longer than a shell takes to begin, also on a busy machine: none is looked at before it has said so.
const LOOK: Duration = Duration::from_millis(250);
const LIVE: &str = "echo $$ >> \"$0\"; exec cat";

/// Looks often, and expects the first beat at once.
fn watchful() -> SupervisorOptions {
    quick().with_look_every(LOOK).with_start_within(Duration::ZERO)
}

/// A store that reads, and takes writes only while it is asked to.
#[derive(Debug)]
struct Store {
    memory: MemoryQueue,
    is_writable: AtomicBool,
}

impl Forward for Store {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Store {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.memory.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.memory.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        if !self.is_writable.load(SeqCst) {
            return Err(Error::new(ErrorKind::Full, "the disk is full"));
        }
        self.memory.apply(changes).await
    }
}

fn registry_over(storage: Arc<dyn Storage>) -> Registry {
    let queue = Queue::builder(storage).retry(RetryPolicy::NEVER).build().unwrap();
    Registry::new(queue.control().unwrap())
}

/// A worker of this process that beats under a name.
async fn beating(registry: &Registry, memory: &MemoryQueue, name: &str) -> tokio::task::JoinHandle<()> {
    let queue = Queue::new(memory.client()).unwrap();
    let builder = Worker::builder(queue).partition(Partition::new("p")).name(name);
    let worker = builder.handler("k", |(): (), _: TaskContext| async { Ok(()) }).build().unwrap();
    let options =
        MemberOptions::default().with_every(Duration::from_millis(50)).with_valid_for(Duration::from_mins(1));
    let member = registry.join(&worker, options).await.unwrap();
    tokio::spawn(async move { drop(member.during(worker.run_until(std::future::pending())).await) })
}

#[tokio::test]
async fn one_that_is_silent_is_killed_and_replaced_and_one_that_beats_is_not() {
    let bed = Bed::new();
    let memory = MemoryQueue::new();
    let registry = registry_over(Arc::new(memory.client()));
    let beats = beating(&registry, &memory, "well").await;
    let supervisor = bed.supervisor(&["well", "ill"], LIVE, watchful()).watching(registry.clone()).unwrap();
    let running = start(&supervisor);
    bed.until_lines("ill", 3).await;
    bed.until_lines("well", 1).await;
    supervisor.shutdown();
    let report = end(running).await.unwrap();
    assert!(report.hung >= 2 && report.failed >= 2, "{report:?}");
    assert_eq!(bed.lines("well").len(), 1, "{report:?}");
    beats.abort();
}

#[tokio::test]
async fn a_store_that_takes_no_writes_is_no_reason_to_kill() {
    let bed = Bed::new();
    let store = Arc::new(Store { memory: MemoryQueue::new(), is_writable: AtomicBool::new(false) });
    let registry = registry_over(Arc::clone(&store) as Arc<dyn Storage>);
    let supervisor = bed.supervisor(&["w"], LIVE, watchful()).watching(registry).unwrap();
    let running = start(&supervisor);
    let is_blind = |event: &&Event| matches!(event, Event::Blind { why } if why.contains("full"));
    let blind = || bed.events.lock().unwrap().iter().find(is_blind).cloned();
    until("it says that it sees nothing", blind).await;
    tokio::time::sleep(LOOK * 10).await; // many looks
    assert_eq!(bed.until_lines("w", 1).await.len(), 1, "it lives");
    assert_eq!(bed.events.lock().unwrap().iter().filter(is_blind).count(), 1, "said once");
    store.is_writable.store(true, SeqCst);
    bed.until_lines("w", 2).await;
    supervisor.shutdown();
    assert!(end(running).await.unwrap().hung >= 1);
}

#[tokio::test]
async fn one_that_may_still_be_starting_is_left_alone() {
    let bed = Bed::new();
    let registry = registry_over(Arc::new(MemoryQueue::new()));
    let options = watchful().with_start_within(Duration::from_mins(10));
    let supervisor = bed.supervisor(&["w"], LIVE, options).watching(registry.clone()).unwrap();
    let running = start(&supervisor);
    bed.until_lines("w", 1).await;
    tokio::time::sleep(LOOK * 10).await; // many looks
    supervisor.shutdown();
    let report = end(running).await.unwrap();
    assert_eq!((report.started, report.hung), (1, 0));
}
