//! The conformance suite over the PostgreSQL backend: a database per case, and other processes on the same server.

mod harness;

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, MessageId, PartitionId, Result};
use anyqueue_conformance::{Need, async_trait, least};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::harness::{ServerBackend, ServerHarness, Servers};
use anyqueue_testkit::provide;

struct Postgres;

#[async_trait]
impl ServerBackend for Postgres {
    type Program = anyqueue_testkit::Postgres;

    fn name(&self) -> &'static str {
        "postgres"
    }

    fn program(&self) -> Self::Program {
        anyqueue_testkit::Postgres::new().setting("max_connections", "500")
    }

    fn own_program(&self) -> Option<Self::Program> {
        Some(anyqueue_testkit::Postgres::new())
    }

    async fn servers(&self) -> anyqueue_testkit::Result<Option<Servers>> {
        let provided = provide(self.program()).await?;
        let Some(url) = provided.url().map(str::to_owned) else { return Ok(None) };
        if provided.server().is_some() {
            let made = harness::make_model(&url).await;
            assert!(made.is_ok(), "a new server has room for a database: {made:?}");
        }
        Ok(Some(Servers::new(url, provided)))
    }

    fn address(&self, url: &str, namespace: &str) -> String {
        harness::address(url, namespace)
    }

    async fn open(address: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
        harness::make(address).await?;
        Ok(Arc::new(PostgresQueue::builder(address)?.clock(clock).open().await?))
    }

    fn least(&self) -> &'static [Need] {
        least::EVERYTHING
    }

    async fn corrupt(&self, url: &str, namespace: &str, _: &PartitionId, id: MessageId) -> Result<()> {
        harness::corrupt(url, namespace, id).await
    }

    async fn remove(&self, url: &str, namespace: &str) {
        harness::remove(url, namespace).await;
    }
}

fn main() -> ExitCode {
    ServerHarness::main(Postgres)
}
