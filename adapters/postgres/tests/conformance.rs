//! The conformance suite over the PostgreSQL backend: a schema per case, and other processes on the same server.

mod server;

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::{QueueStorage, Result, Storage};
use anyqueue_conformance::{Harness, async_trait};
use anyqueue_postgres::PostgresQueue;
use server::Server;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

struct Postgres {
    server: Server,
}

impl Postgres {
    fn address_of(&self, namespace: &str) -> String {
        let url = self.server.url();
        let separator = if url.contains('?') { '&' } else { '?' };
        // Few connections: the suite opens many clients at once.
        format!("{url}{separator}schema={namespace}&max_connections=4")
    }
}

async fn open(url: &str) -> Result<Arc<dyn Storage>> {
    let queue = PostgresQueue::open(url).await?;
    queue.init().await?;
    Ok(Arc::new(queue))
}

#[async_trait]
impl Harness for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open(&self.address_of(namespace)).await
    }

    fn address(&self, namespace: &str) -> Option<String> {
        Some(self.address_of(namespace))
    }

    async fn attach(address: &str) -> Result<Arc<dyn Storage>> {
        open(address).await
    }

    async fn remove(&self, namespace: &str) {
        let drop = AssertSqlSafe(format!("DROP SCHEMA IF EXISTS \"{namespace}\" CASCADE"));
        if let Ok(mut conn) = PgConnection::connect(self.server.url()).await {
            // A private server goes with the run in any case.
            let _ = sqlx::raw_sql(drop).execute(&mut conn).await;
        }
    }
}

fn main() -> ExitCode {
    // A child process attaches to its parent's server; it needs none of its own.
    anyqueue_conformance::main(|| Postgres {
        server: Server::find().unwrap_or_else(|| std::process::exit(0)),
    })
}
