//! The conformance suite over a Redis Cluster: three masters with a replica each, and a prefix per case.

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::Result;
use anyqueue::adapter::Storage;
use anyqueue_conformance::{Harness, Need, async_trait};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::RedisCluster;

struct Cluster {
    url: String,
    _cluster: RedisCluster,
}

fn address(url: &str, namespace: &str) -> String {
    format!("{url}&prefix={namespace}")
}

async fn open(url: &str) -> Result<Arc<dyn Storage>> {
    Ok(Arc::new(RedisQueue::open(url).await?))
}

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
];

#[async_trait]
impl Harness for Cluster {
    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open(&address(&self.url, namespace)).await
    }

    fn address(&self, namespace: &str) -> Option<String> {
        Some(address(&self.url, namespace))
    }

    async fn attach(address: &str) -> Result<Arc<dyn Storage>> {
        open(address).await
    }

    fn least(&self) -> &'static [Need] {
        LEAST
    }

    fn rule(&self, need: Need) -> Option<&'static str> {
        (need == Need::ControlledClock).then_some("time is the server's: its clock cannot be turned")
    }
}

/// Without Redis nothing is run, which was said; in CI that is an error.
fn cluster() -> RedisCluster {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // A node that gets no time on a busy machine must not be taken for dead.
    let redis = anyqueue_testkit::Redis::new().setting("cluster-node-timeout", "30000");
    match runtime.map(|runtime| runtime.block_on(RedisCluster::start_if_installed(redis))) {
        Ok(Ok(Some(cluster))) => cluster,
        Ok(Ok(None)) => std::process::exit(0),
        other => {
            eprintln!("no cluster for the suite: {other:?}");
            std::process::exit(1)
        }
    }
}

fn main() -> ExitCode {
    // A child process attaches to its parent's servers; it needs none of its own.
    anyqueue_conformance::main(|| {
        let cluster = cluster();
        Cluster { url: cluster.url().to_owned(), _cluster: cluster }
    })
}
