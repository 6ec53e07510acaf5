//! What the tests share: a store whose clock the test turns, and short names for the calls.

use std::time::Duration;

use anyqueue::adapter::{
    Action, Extension, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery,
    Settlement,
};
use anyqueue::{
    Counts, ErrorKind, ExtendOutcome, ManualClock, MessageData, MessageId, PartitionId, PushOutcome,
    SettleOutcome,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

/// The lease that the helpers ask for.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct Fixture {
    pub(crate) time: ManualClock,
    pub(crate) queue: MemoryQueue,
    pub(crate) jobs: PartitionId,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(MemoryConfig::default())
    }

    pub(crate) fn with(config: MemoryConfig) -> Self {
        let time = ManualClock::new();
        let queue = MemoryQueue::with_config(config.with_clock(time.clock()));
        Self { time, queue, jobs: PartitionId::new("jobs").unwrap() }
    }

    /// Pushes one message, which must be stored.
    pub(crate) async fn push(&self, message: MessageData) -> MessageId {
        let outcome = self.try_push(message.clone()).await.unwrap();
        assert_eq!(outcome, PushOutcome::Stored(message.id()));
        message.id()
    }

    pub(crate) async fn try_push(&self, message: MessageData) -> anyqueue::Result<PushOutcome> {
        self.queue.push(&self.jobs, &[message]).await.remove(0)
    }

    /// Pushes messages with these payloads.
    pub(crate) async fn push_all(&self, payloads: &[&str]) {
        for payload in payloads {
            self.push(MessageData::new(payload)).await;
        }
    }

    pub(crate) async fn pull(&self, max: usize) -> Vec<RawDelivery> {
        self.pull_from(&self.jobs, max).await
    }

    pub(crate) async fn pull_from(&self, partition: &PartitionId, max: usize) -> Vec<RawDelivery> {
        self.queue.pull(partition, now(max)).await.unwrap()
    }

    /// The only message there is to pull.
    pub(crate) async fn pull_one(&self) -> RawDelivery {
        let mut deliveries = self.pull(2).await;
        assert_eq!(deliveries.len(), 1, "one message is ready");
        deliveries.remove(0)
    }

    /// Pulls all there is, and returns the payloads.
    pub(crate) async fn payloads(&self) -> Vec<String> {
        payloads(&self.pull(1000).await)
    }

    pub(crate) async fn settle(&self, delivery: &RawDelivery, action: Action) -> SettleOutcome {
        let settlement = Settlement::new(delivery.lease.clone(), action);
        self.queue.settle(&[settlement]).await.remove(0).unwrap()
    }

    pub(crate) async fn remove(&self, delivery: &RawDelivery) -> SettleOutcome {
        self.settle(delivery, Action::Remove).await
    }

    pub(crate) async fn release(&self, delivery: &RawDelivery) -> SettleOutcome {
        self.settle(delivery, Action::Release).await
    }

    pub(crate) async fn postpone(&self, delivery: &RawDelivery, delay: Duration) -> SettleOutcome {
        self.settle(delivery, Action::Postpone { delay, headers: None }).await
    }

    pub(crate) async fn move_to(&self, delivery: &RawDelivery, to: &PartitionId) -> SettleOutcome {
        self.settle(delivery, Action::Move { to: to.clone(), headers: None }).await
    }

    pub(crate) async fn extend(&self, delivery: &RawDelivery, duration: Duration) -> ExtendOutcome {
        let extension = Extension { lease: delivery.lease.clone(), duration };
        self.queue.extend(&[extension]).await.remove(0).unwrap()
    }

    pub(crate) async fn counts(&self) -> Counts {
        self.queue.counts(&self.jobs).await.unwrap()
    }
}

/// A pull that does not wait.
pub(crate) fn now(max: usize) -> PullRequest {
    PullRequest::new(max, Duration::ZERO, LEASE)
}

pub(crate) fn payloads(deliveries: &[RawDelivery]) -> Vec<String> {
    deliveries
        .iter()
        .map(|delivery| String::from_utf8(delivery.message.payload().to_vec()).unwrap())
        .collect()
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const NANO: Duration = Duration::from_nanos(1);

/// The kind of error that a call answered.
pub(crate) fn kind<T: std::fmt::Debug>(result: anyqueue::Result<T>) -> ErrorKind {
    let error = result.unwrap_err();
    assert_eq!(error.backend(), Some("memory"));
    assert!(error.operation().is_some());
    error.kind()
}
