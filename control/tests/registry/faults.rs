//! Calls to the store that hang, fail, or are done though their answers are lost, and what others do meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Expect, Key, Stamped};
use anyqueue::{Error, ErrorKind, Page, Queue, Result};
use anyqueue_control::registry::{MemberOptions, Order, Registry};
use anyqueue_memory::MemoryQueue;

use crate::bed::{Bed, killed};

/// What happens to the next call.
#[derive(Debug)]
enum Fault {
    Hangs,
    /// It fails, and meanwhile another member sweeps.
    FailsWhileAnotherSweeps(Registry),
    /// It is done, then this entry is written, and the answer is lost.
    AnswerIsLostAfter(Change),
}

#[derive(Debug)]
struct Faulty {
    memory: MemoryQueue,
    changes: Mutex<VecDeque<Fault>>,
    lists: Mutex<VecDeque<Fault>>,
}

impl Faulty {
    fn over(bed: &Bed) -> Arc<Self> {
        Arc::new(Self { memory: bed.memory.client(), changes: Mutex::default(), lists: Mutex::default() })
    }

    fn registry(self: &Arc<Self>, bed: &Bed) -> Registry {
        let queue = Queue::builder(Arc::clone(self) as Arc<dyn Storage>).clock(bed.time.clock());
        Registry::new(queue.build().unwrap().control().unwrap())
    }
}

impl Forward for Faulty {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Faulty {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.memory.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        let fault = self.lists.lock().unwrap().pop_front();
        if fault.is_some() {
            std::future::pending::<()>().await;
        }
        self.memory.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        let fault = self.changes.lock().unwrap().pop_front();
        match fault {
            None => return self.memory.apply(changes).await,
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::FailsWhileAnotherSweeps(another)) => {
                assert_eq!(another.sweep().await.unwrap().len(), 1);
            }
            Some(Fault::AnswerIsLostAfter(change)) => {
                let _ = self.memory.apply(changes).await?;
                assert_eq!(self.memory.apply(&[change]).await?.value, [Applied::Done]);
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "the connection broke"))
    }
}

/// Runs this while time passes.
async fn meanwhile<T>(bed: &Bed, what: impl Future<Output = T>) -> T {
    let mut what = std::pin::pin!(what);
    loop {
        tokio::select! { biased; done = &mut what => return done, () = bed.pass(Duration::from_secs(1)) => {} }
    }
}

#[tokio::test]
async fn a_call_that_hangs_makes_nobody_miss_the_worker() {
    for is_sweep in [false, true] {
        let bed = Bed::new();
        let faulty = Faulty::over(&bed);
        let worker = bed.worker("a");
        let member = faulty.registry(&bed).join(&worker, MemberOptions::default()).await.unwrap();
        let run = worker.clone();
        let running = tokio::spawn(async move { member.during(run.run_until(std::future::pending())).await });
        let calls = if is_sweep { &faulty.lists } else { &faulty.changes };
        calls.lock().unwrap().push_back(Fault::Hangs);
        for _ in 0..120 {
            bed.pass(Duration::from_secs(1)).await;
            assert!(bed.registry.sweep().await.unwrap().is_empty(), "it lives, sweep hangs: {is_sweep}");
        }
        assert!(calls.lock().unwrap().is_empty(), "it hung");
        worker.shutdown();
        bed.until("it ends", async || running.is_finished()).await;
    }
}

#[tokio::test]
async fn of_two_sweeps_one_names_the_dead_though_a_call_of_the_other_fails_first() {
    let bed = Bed::new();
    let id = killed(&bed).await;
    bed.pass(Duration::from_secs(15)).await;
    let faulty = Faulty::over(&bed);
    let another = Fault::FailsWhileAnotherSweeps(bed.registry.clone());
    faulty.changes.lock().unwrap().push_back(another);
    let also = meanwhile(&bed, faulty.registry(&bed).sweep()).await.unwrap();
    assert!(also.is_empty(), "the other one has named it: {also:?}");
    assert_eq!(bed.registry.lost().await.unwrap()[0].held[0].id, id);
}

#[tokio::test]
async fn what_the_dead_held_is_told_though_the_answer_was_lost_and_a_successor_is_there() {
    let bed = Bed::new();
    let id = killed(&bed).await;
    let store = bed.queue.control().unwrap();
    let key = Key::new("worker/dead").unwrap();
    let entry = store.get(&key).await.unwrap().value.unwrap();
    let text = String::from_utf8(entry.value.to_vec()).unwrap();
    let other = text.replacen("\"session\":\"", "\"session\":\"another-", 1);
    bed.pass(Duration::from_secs(15)).await;
    let faulty = Faulty::over(&bed);
    let successor = Change::put(key, Expect::Absent, other).with_ttl(Duration::from_mins(6));
    faulty.changes.lock().unwrap().push_back(Fault::AnswerIsLostAfter(successor));
    let lost = meanwhile(&bed, faulty.registry(&bed).sweep()).await.unwrap();
    assert_eq!(lost.iter().map(|it| &it.held[0].id).collect::<Vec<_>>(), [&id]);
    assert_eq!(bed.registry.lost().await.unwrap(), lost);
    assert_eq!(bed.names().await, ["dead"], "its successor is left alone");
}

#[tokio::test]
async fn a_worker_whose_name_another_has_by_now_leaves_that_one_its_orders() {
    let bed = Bed::new();
    let (first, first_running) = bed.start("a").await;
    assert!(bed.registry.forget("a").await.unwrap());
    let (second, second_running) = bed.start("a").await;
    assert!(bed.registry.order("a", Order::Stop).await.unwrap());
    bed.until("one ends", async || first_running.is_finished() || second_running.is_finished()).await;
    assert!(!first_running.is_finished(), "it was not told to");
    assert_eq!(second_running.await.unwrap().1, anyqueue_control::registry::Ended::Stopped);
    drop(second);

    bed.until("the name is free", async || bed.names().await == ["a"]).await;
    assert!(bed.registry.order("a", Order::Stop).await.unwrap());
    bed.until("the first hears too", async || first_running.is_finished()).await;
    drop(first);
}

#[tokio::test]
async fn a_worker_whose_first_answer_was_lost_leaves_no_entry_behind() {
    let bed = Bed::new();
    let faulty = Faulty::over(&bed);
    let queue = Queue::builder(Arc::clone(&faulty) as Arc<dyn Storage>).clock(bed.time.clock());
    let queue = queue.retry(anyqueue::RetryPolicy::NEVER).build().unwrap();
    let unrelated = Change::put(Key::new("other").unwrap(), Expect::Any, "");
    faulty.changes.lock().unwrap().push_back(Fault::AnswerIsLostAfter(unrelated));
    let worker = bed.worker("a");
    let registry = Registry::new(queue.control().unwrap());
    let member = registry.join(&worker, MemberOptions::default()).await.unwrap();
    assert_eq!(bed.names().await, ["a"]);
    meanwhile(&bed, member.during(async {})).await;
    assert!(bed.names().await.is_empty());
}
