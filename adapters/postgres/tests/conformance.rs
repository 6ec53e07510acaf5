//! The conformance suite over the PostgreSQL backend: a schema per case, and other processes on the same server.

mod harness;

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, MessageId, PartitionId, Result};
use anyqueue_conformance::{Need, async_trait, least};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::harness::{ServerBackend, ServerHarness};

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

    /// Few connections: the suite opens many clients at once.
    fn options(&self, namespace: &str) -> String {
        format!("schema={namespace}&max_connections=4")
    }

    async fn open(address: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(PostgresQueue::builder(address)?.clock(clock).open().await?))
    }

    fn least(&self) -> &'static [Need] {
        least::EVERYTHING
    }

    async fn corrupt(&self, url: &str, namespace: &str, _: &PartitionId, id: MessageId) -> Result<()> {
        harness::corrupt(url, namespace, id).await
    }

    async fn remove(&self, url: &str, namespace: &str) {
        harness::drop_schema(url, namespace).await;
    }
}

fn main() -> ExitCode {
    ServerHarness::main(Postgres)
}
