//! The conformance suite over the Redis backend: a prefix per case, and other processes on the same server.

mod harness;

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, MessageId, PartitionId, Result};
use anyqueue_conformance::{Need, async_trait, least};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::harness::{ServerBackend, ServerHarness};

struct Redis;

#[async_trait]
impl ServerBackend for Redis {
    type Program = anyqueue_testkit::Redis;

    fn name(&self) -> &'static str {
        "redis"
    }

    fn program(&self) -> Self::Program {
        anyqueue_testkit::Redis::new()
    }

    /// It flushes before it answers: then nothing may be lost.
    fn own_program(&self) -> Option<Self::Program> {
        Some(self.program().setting("appendfsync", "always"))
    }

    async fn open(address: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(RedisQueue::builder(address)?.clock(clock).open().await?))
    }

    fn least(&self) -> &'static [Need] {
        least::EVERYTHING
    }

    async fn corrupt(&self, url: &str, prefix: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
        harness::corrupt(url, prefix, partition, id).await
    }
}

fn main() -> ExitCode {
    ServerHarness::main(Redis)
}
