//! The conformance suite over a Redis Cluster: three masters with a replica each, and a prefix per case.

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, Result};
use anyqueue_conformance::{Need, async_trait};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::harness::{ServerBackend, ServerHarness, Servers};
use anyqueue_testkit::{Redis, RedisCluster};

/// All that one server gives, but atomic moves between partitions, which can be on two.
const LEAST: &[Need] = &[
    Need::Priority,
    Need::StrictPriority,
    Need::PushOrder,
    Need::RequeueFront,
    Need::TimedLease,
    Need::Fencing,
    Need::PushDelay,
    Need::PostponeDelay,
    Need::Groups,
    Need::Dedup,
    Need::DedupWhileLive,
    Need::DeliveryCount,
    Need::Counts,
    Need::Browse,
    Need::Delete,
    Need::Pause,
    Need::Ledger,
];

struct Cluster;

#[async_trait]
impl ServerBackend for Cluster {
    type Program = Redis;

    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    /// A node that gets no time on a busy machine must not be taken for dead.
    fn program(&self) -> Redis {
        Redis::new().setting("cluster-node-timeout", "30000")
    }

    fn own_program(&self) -> Option<Redis> {
        None
    }

    async fn servers(&self) -> anyqueue_testkit::Result<Option<Servers>> {
        let cluster = RedisCluster::start_if_installed(self.program()).await?;
        Ok(cluster.map(|cluster| Servers::new(cluster.url().to_owned(), cluster)))
    }

    async fn open(address: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(RedisQueue::builder(address)?.clock(clock).open().await?))
    }

    fn least(&self) -> &'static [Need] {
        LEAST
    }

    fn corrupts(&self) -> bool {
        false
    }
}

fn main() -> ExitCode {
    ServerHarness::main(Cluster)
}
