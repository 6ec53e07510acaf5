//! The conformance suite over the RabbitMQ backend: a prefix per case, and other processes on the same broker. With
//! `ANYQUEUE_TEST_AMQP_QUEUES=classic` over classic queues.

mod harness;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, MessageId, PartitionId, Result};
use anyqueue_conformance::{Need, async_trait, least};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::Server;
use anyqueue_testkit::harness::{ServerBackend, ServerHarness};

use harness::rules::{CLASSIC, RULES};

/// Over quorum or classic queues.
struct RabbitMq {
    classic: bool,
}

#[async_trait]
impl ServerBackend for RabbitMq {
    type Program = anyqueue_testkit::RabbitMq;

    fn name(&self) -> &'static str {
        if self.classic { "rabbitmq-classic" } else { "rabbitmq" }
    }

    /// The broker tries again after three seconds, not three minutes, to hand on what fell due and did not arrive. That happens on a
    /// busy machine, and the suite does not wait so long.
    fn program(&self) -> Self::Program {
        let hands_on_again = "-rabbit dead_letter_worker_publisher_confirm_timeout 3000";
        anyqueue_testkit::RabbitMq::new().erlang_arguments(hands_on_again)
    }

    /// Each case has queues of its own: it would wait two seconds for each of them to be old.
    fn options(&self, namespace: &str) -> String {
        let queues = if self.classic { "&queue_type=classic" } else { "" };
        format!("prefix={namespace}{queues}&queue_age=0s")
    }

    async fn open(address: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(RabbitMqQueue::builder(address)?.clock(clock).open().await?))
    }

    fn least(&self) -> &'static [Need] {
        if self.classic { CLASSIC } else { least::BROKER }
    }

    fn rule(&self, need: Need) -> Option<&'static str> {
        RULES.iter().find(|(other, _)| *other == need).map(|(_, rule)| *rule)
    }

    /// Each case makes dozens of queues, which keeps the broker busy: more cases at once would take as long, and each call of theirs longer.
    fn parallelism(&self) -> usize {
        5
    }

    /// A quorum queue that is younger than a second does not survive this, and this run does not wait for it to be older.
    async fn kill(&self, server: &Server) -> anyqueue_testkit::Result<()> {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        server.kill().await
    }

    fn stores_bytes(&self) -> bool {
        true
    }

    async fn plant(&self, url: &str, prefix: &str, partition: &PartitionId, stored: &[u8]) -> Result<()> {
        harness::plant(url, &self.address(url, prefix), prefix, partition, stored).await
    }

    async fn corrupt(&self, url: &str, prefix: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
        harness::corrupt(url, prefix, partition, id).await
    }
}

fn main() -> ExitCode {
    let queues = std::env::var("ANYQUEUE_TEST_AMQP_QUEUES");
    ServerHarness::main(RabbitMq { classic: queues.is_ok_and(|queues| queues == "classic") })
}
