//! A worker that is killed, by a clock that the test turns: its task starts elsewhere in time.

#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use std::time::Duration;

use anyqueue::adapter::{
    Extension, Forward, IntoStorage, PullRequest, RawDelivery, Settlement, Storage, async_trait,
};
use anyqueue::{
    CancellationToken, ExtendOutcome, ManualClock, MessageId, PartitionId, Queue, Result, SettleOutcome,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use anyqueue_worker::{Partition, TaskContext, Worker, task};
use tokio::sync::mpsc;

const STEP: Duration = Duration::from_millis(250);
/// How soon a task of a killed worker starts elsewhere, by default.
const SOON: Duration = Duration::from_secs(30);

/// The queue as a process has it: once that is dead, it makes no call, and hears of none.
#[derive(Debug)]
struct Mortal {
    memory: MemoryQueue,
    dead: CancellationToken,
}

impl Mortal {
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            () = self.dead.cancelled() => std::future::pending().await,
            answer = call => answer,
        }
    }
}

#[async_trait]
impl Forward for Mortal {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.call(self.inner().pull(partition, request)).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.call(self.inner().settle(settlements)).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.call(self.inner().extend(extensions)).await
    }
}

/// A worker with the defaults, whose tasks go on until they are asked to stop, and the tasks that have begun.
fn worker(storage: impl IntoStorage, clock: &ManualClock) -> (Worker, mpsc::Receiver<MessageId>) {
    let queue = Queue::builder(storage).clock(clock.clock()).build().unwrap();
    let (begun, begins) = mpsc::channel(9);
    let run = move |(): (), task: TaskContext| {
        let begun = begun.clone();
        async move {
            begun.send(task.id()).await.unwrap();
            task.cancelled().await;
            Ok(())
        }
    };
    let worker = Worker::builder(queue).partition(Partition::new("p")).handler("k", run).build().unwrap();
    (worker, begins)
}

async fn turns() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass until a task begins. Returns which one, and how long that took.
async fn next_begin(begins: &mut mpsc::Receiver<MessageId>, clock: &ManualClock) -> (MessageId, Duration) {
    let mut took = Duration::ZERO;
    loop {
        turns().await;
        if let Ok(id) = begins.try_recv() {
            return (id, took);
        }
        assert!(took < 2 * SOON, "none begins");
        clock.advance(STEP);
        took += STEP;
    }
}

#[tokio::test]
async fn the_task_of_a_killed_worker_starts_elsewhere_within_thirty_seconds() {
    // Just after it has begun, and before and after its lease is renewed.
    for steps in [0, 1, 20, 39, 41, 79, 81, 200] {
        let clock = ManualClock::new();
        let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
        let dead = CancellationToken::new();
        let mortal = Mortal { memory: memory.client(), dead: dead.clone() };
        let (first, mut begins) = worker(mortal, &clock);
        let first = tokio::spawn(async move { first.run_until(std::future::pending()).await });
        let queue = Queue::builder(memory.client()).clock(clock.clock()).build().unwrap();
        queue.push("p", task("k", &()).unwrap()).await.unwrap();
        let (id, _) = next_begin(&mut begins, &clock).await;
        let (other, mut begins_elsewhere) = worker(memory.client(), &clock);
        let other = tokio::spawn(async move { other.run_until(std::future::pending()).await });
        for _ in 0..steps {
            turns().await;
            clock.advance(STEP);
        }
        turns().await;
        assert!(begins_elsewhere.try_recv().is_err(), "it has the task for as long as it lives");

        dead.cancel();
        first.abort();
        let (begun, took) = next_begin(&mut begins_elsewhere, &clock).await;
        assert_eq!(begun, id);
        assert!(took <= SOON, "{took:?}, killed after {:?}", STEP * steps);
        // It was not released: nothing but the end of its lease gave it to another one.
        assert!(took >= SOON / 2, "{took:?}, killed after {:?}", STEP * steps);
        other.abort();
    }
}
