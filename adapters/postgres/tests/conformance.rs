//! The conformance suite over the PostgreSQL backend: a schema per case, and other processes on the same server.

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::adapter::{QueueStorage, Storage};
use anyqueue::{Clock, Error, ErrorKind, MessageId, PartitionId, Result};
use anyqueue_conformance::{Disruption, FaultTarget, Harness, Need, Opening, async_trait, corrupted, least};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Fault, Provided, Proxy, Server, provide};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

struct Postgres {
    url: String,
    /// Goes with the run, if it is a private one.
    _server: Provided,
}

impl Postgres {
    /// `None` where there is no server, which was said.
    fn find() -> Option<Self> {
        let program = anyqueue_testkit::Postgres::new().setting("max_connections", "500");
        let server = tokio::runtime::Handle::current().block_on(provide(program));
        let server = server.unwrap_or_else(|error| panic!("{error}"));
        Some(Self { url: server.url()?.to_owned(), _server: server })
    }

    async fn body(&self, schema: &str, id: MessageId) -> sqlx::Result<Vec<u8>> {
        let select = AssertSqlSafe(format!("SELECT body FROM \"{schema}\".message WHERE id = $1"));
        let id = Uuid::from_bytes(*id.as_bytes());
        sqlx::query_scalar(select).bind(id).fetch_one(&mut PgConnection::connect(&self.url).await?).await
    }

    async fn replace(&self, schema: &str, id: MessageId, body: &[u8]) -> sqlx::Result<()> {
        let update = AssertSqlSafe(format!("UPDATE \"{schema}\".message SET body = $1 WHERE id = $2"));
        let update = sqlx::query(update).bind(body).bind(Uuid::from_bytes(*id.as_bytes()));
        update.execute(&mut PgConnection::connect(&self.url).await?).await.map(drop)
    }
}

/// A schema per namespace. Few connections: the suite opens many clients at once.
fn address(url: &str, namespace: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}schema={namespace}&max_connections=4")
}

async fn open(url: &str) -> Result<Arc<dyn Storage>> {
    open_on(url, Clock::system()).await
}

async fn open_on(url: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
    let queue = PostgresQueue::from_url(url)?.clock(clock).open().await?;
    queue.init().await?;
    Ok(Arc::new(queue))
}

#[async_trait]
impl Harness for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open(&address(&self.url, namespace)).await
    }

    fn open_skewed(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let address = address(&self.url, namespace);
        Some(Box::pin(async move { open_on(&address, clock).await }))
    }

    fn address(&self, namespace: &str) -> Option<String> {
        Some(address(&self.url, namespace))
    }

    async fn attach(address: &str) -> Result<Arc<dyn Storage>> {
        open(address).await
    }

    fn least(&self) -> &'static [Need] {
        least::EVERYTHING
    }

    fn rule(&self, need: Need) -> Option<&'static str> {
        (need == Need::ControlledClock).then_some("time is the server's: its clock cannot be turned")
    }

    fn corrupts(&self) -> bool {
        true
    }

    async fn corrupt(&self, namespace: &str, _: &PartitionId, id: MessageId) -> Result<()> {
        let refused =
            |error| Error::new(ErrorKind::Internal, "the row could not be changed").with_source(error);
        let body = self.body(namespace, id).await.map_err(refused)?;
        self.replace(namespace, id, &corrupted(&body)?).await.map_err(refused)
    }

    async fn fault_target(&self) -> Result<Option<Arc<dyn FaultTarget>>> {
        Ok(Some(Arc::new(OwnServer::start().await.map_err(failed)?)))
    }

    async fn remove(&self, namespace: &str) {
        let drop = AssertSqlSafe(format!("DROP SCHEMA IF EXISTS \"{namespace}\" CASCADE"));
        if let Ok(mut conn) = PgConnection::connect(&self.url).await {
            // A private server goes with the run in any case.
            let _ = sqlx::raw_sql(drop).execute(&mut conn).await;
        }
    }
}

/// A server for one case, and what it is reached through.
struct OwnServer {
    server: Server,
    proxy: Proxy,
}

impl OwnServer {
    async fn start() -> anyqueue_testkit::Result<Self> {
        let server = Server::start(anyqueue_testkit::Postgres::new()).await?;
        let proxy = Proxy::start(server.addr())?;
        Ok(Self { server, proxy })
    }
}

fn failed(error: anyqueue_testkit::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the test server").with_source(error)
}

#[async_trait]
impl FaultTarget for OwnServer {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        let url = format!("postgres://postgres@{}/postgres", self.proxy.addr());
        open(&address(&url, namespace)).await
    }

    async fn disrupt(&self, disruption: Disruption) -> Result<()> {
        let done = match disruption {
            Disruption::Kill => self.server.kill().await,
            Disruption::Start => self.server.restart().await,
            Disruption::Freeze => self.server.freeze().await,
            Disruption::Thaw => self.server.thaw().await,
            Disruption::Cut => {
                self.proxy.reset_all();
                Ok(())
            }
            Disruption::Stall => self.proxy.set(Fault::Stall).await,
            Disruption::DropReplies => self.proxy.set(Fault::DropReplies).await,
            Disruption::Delay(delay) => self.proxy.set(Fault::Delay(delay)).await,
            Disruption::Heal => self.proxy.set(Fault::Pass).await,
            _ => return Err(Error::unsupported("a disruption of a later release")),
        };
        done.map_err(failed)
    }
}

fn main() -> ExitCode {
    // A child process attaches to its parent's server; it needs none of its own.
    anyqueue_conformance::main(|| Postgres::find().unwrap_or_else(|| std::process::exit(0)))
}
