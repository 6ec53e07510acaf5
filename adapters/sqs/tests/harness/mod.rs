//! What both kinds of queues share: a prefix per case, and other processes on the same server.

mod corrupt;

use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, MessageId, PartitionId, Result};
use anyqueue_conformance::{Need, async_trait};
use anyqueue_sqs::SqsQueue;
use anyqueue_testkit::harness::ServerBackend;
use anyqueue_testkit::{Ministack, Server};

/// The emulator is one thread of Python, which looks at every queue with a waiting receive ten times a second. Of more cases at once it falls
/// behind by seconds, and leases end that the cases hold. A second emulator uses another core.
const CASES_OF_AN_EMULATOR: usize = 4;
const EMULATORS: usize = 2;

/// What they differ in.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) fifo: bool,
    pub(crate) least: &'static [Need],
}

#[async_trait]
impl ServerBackend for Kind {
    type Program = Ministack;

    fn name(&self) -> &'static str {
        self.name
    }

    fn program(&self) -> Ministack {
        Ministack::new()
    }

    fn server_count(&self) -> usize {
        EMULATORS
    }

    fn own_program(&self) -> Option<Ministack> {
        Some(Ministack::new().persistent())
    }

    /// An emulator takes any credentials.
    fn address(&self, endpoint: &str, prefix: &str) -> String {
        format!("sqs://test:test@us-east-1/{prefix}?endpoint={endpoint}&fifo={}", self.fifo)
    }

    async fn open(address: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(SqsQueue::builder(address)?.clock(clock).open().await?))
    }

    fn least(&self) -> &'static [Need] {
        self.least
    }

    fn rule(&self, need: Need) -> Option<&'static str> {
        anyqueue_sqs::server_rule(self.fifo, need.what())
    }

    fn parallelism(&self) -> usize {
        CASES_OF_AN_EMULATOR
    }

    /// The emulator saves what it holds when it is told to stop, and at no other time. The service itself keeps it.
    async fn kill(&self, server: &Server) -> anyqueue_testkit::Result<()> {
        server.stop().await
    }

    async fn corrupt(
        &self,
        endpoint: &str,
        prefix: &str,
        partition: &PartitionId,
        id: MessageId,
    ) -> Result<()> {
        let end = if self.fifo { ".fifo" } else { "" };
        let queue = format!("{}_p0-{}{end}", prefix.replace('_', "__"), partition.name());
        corrupt::corrupt(endpoint, &queue, id).await
    }
}
