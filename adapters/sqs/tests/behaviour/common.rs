//! What the tests share: a server of their own behind a layer that plays tricks, and short names for common calls.

use std::time::Duration;

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement};
use anyqueue::{MessageData, PartitionId, PushOutcome, Result, SettleOutcome};
use anyqueue_sqs::{SqsBuilder, SqsQueue};
use anyqueue_testkit::{Ministack, Server, start_if_installed};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider};

use crate::wire::Wire;

pub(crate) const LEASE: Duration = Duration::from_mins(1);
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A server of the test's own, and the layer before it.
pub(crate) struct Bed {
    server: Server,
    pub(crate) wire: Wire,
}

impl Bed {
    /// `None` where there is no server, which was said.
    pub(crate) async fn find() -> Option<Self> {
        Some(Self { server: start_if_installed(Ministack::new()).await.unwrap()?, wire: Wire::new() })
    }

    pub(crate) fn endpoint(&self) -> String {
        self.server.url().to_owned()
    }

    pub(crate) fn sdk(&self) -> SdkConfig {
        let credentials = Credentials::new("test", "test", None, None, "test");
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .endpoint_url(self.endpoint())
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(self.wire.clone())
            .build()
    }

    /// One level: what is sent is then easily told.
    pub(crate) fn builder(&self) -> SqsBuilder {
        SqsBuilder::new("us-east-1").prefix("test").levels(1).sdk_config(self.sdk())
    }

    pub(crate) async fn open(&self) -> SqsQueue {
        self.builder().open().await.unwrap()
    }
}

pub(crate) fn part(name: &str) -> PartitionId {
    PartitionId::new(name).unwrap()
}

pub(crate) fn messages(count: usize) -> Vec<MessageData> {
    (0..count).map(|index| MessageData::new(format!("message {index}"))).collect()
}

pub(crate) async fn push(queue: &SqsQueue, name: &str, messages: &[MessageData]) {
    for answer in queue.push(&part(name), messages).await {
        assert!(matches!(answer, Ok(PushOutcome::Stored(_))), "{answer:?}");
    }
}

/// Exactly so many, in as many pulls as it takes.
pub(crate) async fn take(queue: &SqsQueue, name: &PartitionId, count: usize) -> Vec<RawDelivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let got = queue.pull(name, PullRequest::new(count - taken.len(), SOON, LEASE)).await.unwrap();
        assert!(!got.is_empty(), "{} of {count} came", taken.len());
        taken.extend(got);
    }
    taken
}

pub(crate) async fn nothing(queue: &SqsQueue, name: &PartitionId) {
    let got = queue.pull(name, PullRequest::new(10, Duration::from_secs(1), LEASE)).await.unwrap();
    assert!(got.is_empty(), "{got:?}");
}

pub(crate) async fn settle(
    queue: &SqsQueue,
    held: &[RawDelivery],
    action: &Action,
) -> Vec<Result<SettleOutcome>> {
    let settlements: Vec<_> =
        held.iter().map(|delivery| Settlement::new(delivery.lease.clone(), action.clone())).collect();
    queue.settle(&settlements).await
}

pub(crate) fn settled(outcomes: &[Result<SettleOutcome>]) -> bool {
    outcomes.iter().all(|outcome| matches!(outcome, Ok(SettleOutcome::Settled)))
}
