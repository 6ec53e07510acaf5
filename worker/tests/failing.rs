//! Backends that fail, or lack something: a worker goes on, and says what it cannot do.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use anyqueue::adapter::*;
use anyqueue::*;
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Partition, Retry, TaskContext, TaskError, Worker, task};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_mins(1);

/// A queue in memory with faults that a test switches on.
#[derive(Debug)]
struct Faulty {
    inner: MemoryQueue,
    capabilities: Capabilities,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    /// Pulls from the partition `bad` fail.
    pulls: AtomicBool,
    /// Pulls that need not be sure find nothing, as on a server that answers from a part of itself.
    samples: AtomicBool,
    settlements: AtomicBool,
    /// The next move into the dead letters finds that the lease was lost.
    death: AtomicBool,
    /// How often others have released each message, on a server that counts that.
    releases: AtomicU32,
}

fn down() -> Error {
    Error::new(ErrorKind::Unavailable, "as the test wants")
}

#[async_trait]
impl Forward for Faulty {
    fn inner(&self) -> &dyn Storage {
        &self.inner
    }

    fn name(&self) -> &'static str {
        "faulty"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        if partition.name() == "bad" && self.faults.pulls.load(SeqCst) {
            return Err(down());
        }
        if self.faults.samples.load(SeqCst) && !request.thorough {
            return Ok(Vec::new());
        }
        let releases = self.faults.releases.load(SeqCst);
        let counted = |delivery: RawDelivery| {
            let count = delivery.delivery_count.unwrap_or(1) + releases;
            delivery.with_delivery_count(count)
        };
        Ok(self.inner.pull(partition, request).await?.into_iter().map(counted).collect())
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if self.faults.settlements.load(SeqCst) {
            return vec![Err(down()); settlements.len()];
        }
        let dies = settlements.iter().any(|settlement| matches!(settlement.action, Action::Move { .. }));
        if dies && self.faults.death.swap(false, SeqCst) {
            let release =
                |settlement: &Settlement| Settlement::new(settlement.lease.clone(), Action::Release);
            self.inner.settle(&settlements.iter().map(release).collect::<Vec<_>>()).await;
            return settlements.iter().map(|_| Ok(SettleOutcome::Lost)).collect();
        }
        self.inner.settle(settlements).await
    }
}

fn faulty(change: impl FnOnce(&mut Capabilities)) -> (Queue, Arc<Faults>) {
    let inner = MemoryQueue::new();
    let mut capabilities = inner.capabilities().clone();
    change(&mut capabilities);
    let faults = Arc::new(Faults::default());
    let storage = Faulty { inner, capabilities, faults: faults.clone() };
    let queue = Queue::builder(storage).retry(RetryPolicy::NEVER).build().unwrap();
    (queue, faults)
}

async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

#[tokio::test]
async fn a_partition_that_fails_is_told_does_not_hold_up_the_others_and_comes_back() {
    let (queue, faults) = faulty(|_| ());
    let (begun, mut begins) = mpsc::channel(9);
    let handler = move |_: u32, task: TaskContext| {
        let begun = begun.clone();
        async move { Ok(begun.send(task.partition().to_string()).await?) }
    };
    faults.pulls.store(true, SeqCst);
    let builder = Worker::builder(queue.clone()).slots(1).handler("k", handler);
    let worker = builder.partition(Partition::new("bad")).partition(Partition::new("good")).build().unwrap();
    let run = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run_until(std::future::pending()).await }
    });
    queue.push("bad", task("k", &1).unwrap()).await.unwrap();
    for number in 0..5 {
        queue.push("good", task("k", &number).unwrap()).await.unwrap();
        assert_eq!(soon("the good one", begins.recv()).await.unwrap(), "good");
    }
    let failing = worker.health().failing;
    assert_eq!(failing.len(), 1);
    assert_eq!((failing[0].0.name(), failing[0].1.kind()), ("bad", ErrorKind::Unavailable));
    faults.pulls.store(false, SeqCst);
    assert_eq!(soon("the bad one, mended", begins.recv()).await.unwrap(), "bad");
    assert!(worker.health().failing.is_empty());
    worker.shutdown();
    assert_eq!(run.await.unwrap().unwrap().processed, 6);
}

#[tokio::test]
async fn a_burst_does_not_end_at_an_empty_answer_that_proves_nothing() {
    let (queue, faults) = faulty(|_| ());
    faults.samples.store(true, SeqCst);
    for number in 0..3 {
        queue.push("p", task("k", &number).unwrap()).await.unwrap();
    }
    let worker = Worker::builder(queue).partition(Partition::new("p"));
    let worker = worker.any_handler(|_, _| async { Ok(()) }).build().unwrap();
    assert_eq!(soon("the burst", worker.run_once()).await.unwrap().processed, 3);
}

#[tokio::test]
async fn a_worker_whose_backend_is_down_is_live() {
    let (queue, faults) = faulty(|_| ());
    faults.pulls.store(true, SeqCst);
    let worker = Worker::builder(queue).partition(Partition::new("bad"));
    let worker = worker.any_handler(|_, _| async { Ok(()) }).build().unwrap();
    let begin = std::time::Instant::now();
    let run = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run_until(std::future::pending()).await }
    });
    let answered = async {
        // An answer later than those of the start.
        while worker.health().failing.is_empty()
            || begin.elapsed().saturating_sub(worker.health().since_progress) < Duration::from_millis(200)
        {
            tokio::task::yield_now().await;
        }
    };
    soon("a failed pull counts as an answer", answered).await;
    worker.shutdown();
    run.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_settlement_that_fails_is_repeated_while_the_lease_holds() {
    let (queue, faults) = faulty(|_| ());
    let runs = Arc::new(AtomicU32::new(0));
    let (count, broken) = (runs.clone(), faults.clone());
    let handler = move |_: u32, _: TaskContext| {
        count.fetch_add(1, SeqCst);
        broken.settlements.store(true, SeqCst);
        async { Ok(()) }
    };
    let worker = Worker::builder(queue.clone()).partition(Partition::new("p")).handler("k", handler);
    let worker = worker.build().unwrap();
    queue.push("p", task("k", &1).unwrap()).await.unwrap();
    let mend = async {
        while !faults.settlements.load(SeqCst) {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
        faults.settlements.store(false, SeqCst);
    };
    let (summary, ()) = soon("the settlement", async { tokio::join!(worker.run_once(), mend) }).await;
    assert_eq!((summary.unwrap().processed, runs.load(SeqCst)), (1, 1));
    assert_eq!(queue.counts("p").await.unwrap(), Counts::known(0, 0, 0, 0));
}

#[tokio::test]
async fn settlements_that_fail_are_told_while_every_slot_waits_for_them() {
    let (queue, faults) = faulty(|_| ());
    faults.settlements.store(true, SeqCst);
    let worker = Worker::builder(queue.clone()).slots(2).partition(Partition::new("p"));
    let worker = worker.any_handler(|_, _| async { Ok(()) }).build().unwrap();
    queue.push_many("p", vec![task("k", &1).unwrap(), task("k", &2).unwrap()]).await.unwrap();
    let told = async {
        // No pull can tell it: both slots are taken until the settlements succeed, or half a minute is over.
        while worker.health().failing.is_empty() {
            tokio::task::yield_now().await;
        }
        let failing = worker.health().failing;
        assert_eq!((failing[0].0.name(), failing[0].1.kind()), ("p", ErrorKind::Unavailable));
        assert_eq!(worker.health().running, 2);
        faults.settlements.store(false, SeqCst);
        while !worker.health().failing.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let summary = soon("what fails is told, and that it succeeds", worker.run_until(told)).await;
    assert_eq!(summary.unwrap().processed, 2);
}

#[tokio::test]
async fn a_burst_ends_with_the_error_of_a_partition_that_stays_down() {
    let (queue, faults) = faulty(|_| ());
    faults.pulls.store(true, SeqCst);
    let builder = Worker::builder(queue).partition(Partition::new("bad"));
    let worker = builder.handler("k", |_: u32, _| async { Ok(()) }).build().unwrap();
    assert_eq!(soon("the end", worker.run_once()).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn where_headers_cannot_be_replaced_deliveries_count_the_attempts_and_start_up_says_so() {
    let (queue, _) = faulty(|capabilities| capabilities.postpone_headers = false);
    let attempts = Arc::new(AtomicU32::new(0));
    let seen = attempts.clone();
    let handler = move |_: u32, task: TaskContext| {
        assert_eq!(seen.fetch_add(1, SeqCst) + 1, task.attempt());
        async { Err(TaskError::retry("no")) }
    };
    let retry = Retry::exponential(Duration::from_millis(1)).max(2);
    let builder = Worker::builder(queue.clone()).partition(Partition::new("p")).retry(retry);
    let worker = builder.handler("k", handler).build().unwrap();
    let limitations = worker.limitations();
    assert!(limitations.iter().any(|limitation| limitation.contains("retried at once")), "{limitations:?}");
    queue.push("p", task("k", &1).unwrap()).await.unwrap();
    let summary = soon("death", worker.run_once()).await.unwrap();
    assert_eq!((summary.retried, summary.dead, attempts.load(SeqCst)), (2, 1, 3));
}

#[tokio::test]
async fn releases_by_others_are_no_failed_attempts_where_the_server_counts_them_and_no_header_can() {
    let (queue, faults) = faulty(|capabilities| {
        capabilities.postpone_headers = false;
        capabilities.delivery_count = DeliveryCount::Deliveries;
    });
    faults.releases.store(7, SeqCst);
    let (seen, mut attempts) = mpsc::channel(9);
    let handler = move |_: u32, task: TaskContext| {
        let seen = seen.clone();
        async move {
            seen.send(task.attempt()).await?;
            Err(TaskError::retry("no"))
        }
    };
    let retry = Retry::exponential(Duration::from_millis(1)).max(2);
    let builder = Worker::builder(queue.clone()).partition(Partition::new("p")).retry(retry);
    let worker = builder.handler("k", handler).build().unwrap();
    let limitations = worker.limitations();
    assert!(limitations.iter().any(|limitation| limitation.contains("saw itself")), "{limitations:?}");
    queue.push("p", task("k", &1).unwrap()).await.unwrap();
    let run = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run().await }
    });
    let dead = queue.pull(PartitionId::new("p").unwrap().dead_letters()).wait(PATIENCE).await.unwrap();
    assert_eq!(dead.len(), 1, "it dies when its retries are used up");
    worker.shutdown();
    let summary = soon("the end", run).await.unwrap().unwrap();
    assert_eq!((summary.retried, summary.dead), (2, 1));
    let seen: Vec<u32> = std::iter::from_fn(|| attempts.try_recv().ok()).collect();
    assert_eq!(seen, [1, 2, 3]);
}

#[tokio::test]
async fn a_death_whose_lease_was_lost_gives_no_new_attempts() {
    let (queue, faults) = faulty(|capabilities| {
        capabilities.postpone_headers = false;
        capabilities.delivery_count = DeliveryCount::Deliveries;
    });
    faults.releases.store(7, SeqCst);
    faults.death.store(true, SeqCst);
    let (seen, mut attempts) = mpsc::channel(9);
    let handler = move |_: u32, task: TaskContext| {
        let seen = seen.clone();
        async move {
            seen.send(task.attempt()).await?;
            Err(TaskError::retry("no"))
        }
    };
    let retry = Retry::exponential(Duration::from_millis(1)).max(2);
    let builder = Worker::builder(queue.clone()).partition(Partition::new("p")).retry(retry);
    let worker = builder.handler("k", handler).build().unwrap();
    queue.push("p", task("k", &1).unwrap()).await.unwrap();
    let died = async {
        let dead = queue.pull(PartitionId::new("p").unwrap().dead_letters()).wait(PATIENCE).await.unwrap();
        assert_eq!(dead.len(), 1, "it dies when its retries are used up");
    };
    let summary = soon("death", worker.run_until(died)).await.unwrap();
    assert_eq!((summary.retried, summary.dead, summary.lost), (2, 1, 1), "{summary:?}");
    let seen: Vec<u32> = std::iter::from_fn(|| attempts.try_recv().ok()).collect();
    assert_eq!(seen, [1, 2, 3, 3]);
}
