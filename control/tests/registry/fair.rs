//! Workers that share their slots fairly over all processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Expect, Key, Stamped};
use anyqueue::{Error, ErrorKind, Page, Queue, Result};
use anyqueue_control::registry::{External, MemberOptions, Registry};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Partition, TaskContext, Worker, task};
use serde_json::{Value, json};

use crate::bed::{Bed, registry_over};

const SLOTS: usize = 8;

/// A worker of these partitions, whose tasks take as many milliseconds as their payload says.
fn worker(queue: &Queue, name: &str, partitions: &[&str]) -> Worker {
    let sleep = |millis: u64, _: TaskContext| async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        Ok(())
    };
    let mut builder = Worker::builder(queue.clone()).name(name).slots(SLOTS).handler("sleep", sleep);
    for partition in partitions {
        builder = builder.partition(Partition::new(*partition));
    }
    builder.build().unwrap()
}

/// Slot-seconds of both workers for the first partition and for the second.
fn slot_seconds(both: &Worker, one: &Worker) -> [f64; 2] {
    let (both, one) = (both.slot_time(), one.slot_time());
    [both[0] + one[0], both[1]].map(|time| time.as_secs_f64())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_served_elsewhere_too_gets_no_more_of_all_slots_than_the_other() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    for (partition, millis, tasks) in [("short", 10, 60_000), ("long", 40, 15_000)] {
        let tasks: Vec<_> = (0..tasks).map(|_| task("sleep", &millis).unwrap()).collect();
        for tasks in tasks.chunks(1000) {
            queue.push_many(partition, tasks.to_vec()).await.unwrap();
        }
    }
    let (both, one) = (worker(&queue, "both", &["short", "long"]), worker(&queue, "one", &["short"]));
    let registry = Registry::new(queue.control().unwrap());
    let options = MemberOptions::default()
        .with_every(Duration::from_millis(50))
        .with_valid_for(Duration::from_secs(10));
    let mut running = Vec::new();
    for worker in [&both, &one] {
        let (member, worker) = (registry.join(worker, options.clone()).await.unwrap(), worker.clone());
        running
            .push(tokio::spawn(async move { member.during(worker.run_until(std::future::pending())).await }));
    }

    let deadline = Instant::now() + Duration::from_secs(45);
    loop {
        let before = slot_seconds(&both, &one);
        tokio::time::sleep(Duration::from_millis(700)).await;
        let after = slot_seconds(&both, &one);
        let [short, long] = [after[0] - before[0], after[1] - before[1]];
        // Each for itself they would make it 12 slots to 4. One of the eight slots stays with the first, which makes it 9 to 7.
        if long > 0.0 && short / long < 1.6 {
            break;
        }
        assert!(Instant::now() < deadline, "{short} slot-seconds for the one, {long} for the other");
    }
    for worker in [&both, &one] {
        worker.shutdown_now();
    }
    for running in running {
        running.await.unwrap().0.unwrap();
    }
}

/// A store of which each third look at a page of workers fails.
#[derive(Debug)]
struct Flaky(MemoryQueue, AtomicUsize);

impl Forward for Flaky {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Flaky {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.0.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        if self.1.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            return Err(Error::new(ErrorKind::Unavailable, "each third time"));
        }
        self.0.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.0.apply(changes).await
    }
}

/// So many workers elsewhere, each of which gives eight slots to the first partition.
async fn crowd(bed: &Bed, count: usize) {
    let store = bed.queue.control().unwrap();
    let hour = Duration::from_hours(1);
    bed.registry.admit(&External::new("template").with_valid_for(hour)).await.unwrap();
    let template = store.list_all("worker/", 10).await.unwrap().value.remove(0);
    let mut record: Value = serde_json::from_slice(&template.value).unwrap();
    (record["partitions"], record["used"]) = (json!(["a"]), json!([8000]));
    for number in 0..count {
        let key = Key::new(format!("worker/other-{number:04}")).unwrap();
        let change = Change::put(key, Expect::Absent, record.to_string()).with_ttl(5 * hour);
        assert!(store.apply(change).await.unwrap().value.is_done());
    }
}

#[tokio::test]
async fn among_many_workers_each_stays_fair_from_one_round_of_looks_to_the_next() {
    let bed = Bed::new();
    // Five pages, with 15 to 30 seconds from one to the next.
    crowd(&bed, 450).await;
    let storage = Arc::new(Flaky(bed.memory.client(), AtomicUsize::new(0)));
    let registry = registry_over(storage, &bed.time);
    let gate = bed.gate.clone();
    let wait = move |(): (), task: TaskContext| {
        let gate = gate.clone();
        async move {
            tokio::select! { _ = task.cancelled() => {}, let_go = gate.acquire() => let_go.unwrap().forget() }
            Ok(())
        }
    };
    let worker = Worker::builder(bed.queue.clone())
        .partition(Partition::new("a"))
        .partition(Partition::new("b"))
        .handler("wait", wait)
        .slots(SLOTS)
        .build()
        .unwrap();
    let member = registry.join(&worker, MemberOptions::default()).await.unwrap();
    let at_work = worker.clone();
    let running = tokio::spawn(async move { member.during(at_work.run_until(std::future::pending())).await });
    let (mut fair, minutes) = (Vec::new(), 20);
    for _ in 0..minutes {
        for partition in ["a", "b"] {
            let tasks = (0..3 * SLOTS).map(|_| task("wait", &()).unwrap());
            queue_all(&bed.queue, partition, tasks.collect()).await;
        }
        for _ in 0..3 {
            bed.pass(Duration::from_secs(20)).await;
            let of_a = worker.running().iter().filter(|task| task.partition().name() == "a").count();
            fair.push((worker.running().len(), of_a) == (SLOTS, 1));
            bed.gate.add_permits(SLOTS);
        }
    }
    worker.shutdown_now();
    running.await.unwrap().0.unwrap();
    let first = fair.iter().position(|fair| *fair).expect("a round ends");
    assert!(first < fair.len() / 2 && fair[first..].iter().all(|fair| *fair), "{fair:?}");
}

async fn queue_all(queue: &Queue, partition: &str, tasks: Vec<anyqueue::MessageData>) {
    for pushed in queue.push_many(partition, tasks).await.unwrap() {
        pushed.unwrap();
    }
}
