//! What the tests share: a queue in a schema of its own, and short names for common calls.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyqueue::adapter::{
    Action, Lease, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement,
};
use anyqueue::{MessageData, PartitionId, PushOutcome, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Postgres, Provided, provide};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;

use crate::model;

pub(crate) const LEASE: Duration = Duration::from_mins(1);
pub(crate) const SOON: Duration = Duration::from_secs(20);

static SERVER: OnceCell<Provided> = OnceCell::const_new();
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A server that the tests share, and a schema on it that no other test uses.
pub(crate) struct Bed {
    server: &'static Provided,
    /// Of the database that the schema is in.
    url: String,
    pub(crate) schema: String,
}

/// The server, with the model on it if it is the tests' own.
async fn start() -> anyqueue_testkit::Result<Provided> {
    let server = provide(Postgres::new().setting("max_connections", "500")).await?;
    if let Some(private) = server.server() {
        model::make(private.url()).await;
    }
    Ok(server)
}

impl Bed {
    /// With the schema, if the server is the tests' own, in a database of the test's own. `None` where there is no server, which was said.
    pub(crate) async fn find() -> Option<Self> {
        let mut bed = Self::empty().await?;
        if bed.is_private() {
            bed.url = model::copy(&bed.url, &bed.schema).await;
        }
        Some(bed)
    }

    /// In the database of all, and without the schema: for a test of how that is made, or that makes another one.
    pub(crate) async fn empty() -> Option<Self> {
        let server = SERVER.get_or_try_init(start).await.unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let schema = format!("aq_test_{}_{number}", std::process::id());
        Some(Self { server, url: server.url()?.to_owned(), schema })
    }

    pub(crate) fn server_url(&self) -> &str {
        &self.url
    }

    /// Whether the server is the tests' own, so that they may change its settings.
    pub(crate) fn is_private(&self) -> bool {
        self.server.server().is_some()
    }

    pub(crate) fn url(&self) -> String {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{separator}schema={1}&application_name={1}", self.url, self.schema)
    }

    /// The same for another user.
    pub(crate) fn url_of(&self, user: &str) -> String {
        self.url().replace("//postgres@", &format!("//{user}@"))
    }

    /// Ends the connections of all handles of this schema.
    pub(crate) async fn end_connections(&self) {
        let name = &self.schema;
        let all = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
        );
        self.run(all).await;
    }

    pub(crate) async fn open(&self) -> PostgresQueue {
        PostgresQueue::open(&self.url()).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// Runs statements of the test's own.
    pub(crate) async fn run(&self, sql: String) {
        run(&mut self.connect().await, sql).await;
    }
}

pub(crate) async fn run(conn: &mut PgConnection, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.unwrap();
}

pub(crate) fn part(name: &str) -> PartitionId {
    PartitionId::new(name).unwrap()
}

pub(crate) async fn push(queue: &PostgresQueue, partition: &PartitionId, texts: &[&str]) {
    let messages: Vec<_> = texts.iter().map(MessageData::new).collect();
    for outcome in queue.push(partition, &messages).await {
        assert!(matches!(outcome, Ok(PushOutcome::Stored(_))), "{outcome:?}");
    }
}

pub(crate) async fn pull(queue: &PostgresQueue, partition: &PartitionId, max: usize) -> Vec<RawDelivery> {
    queue.pull(partition, PullRequest::new(max, Duration::ZERO, LEASE)).await.unwrap()
}

pub(crate) async fn pull_wait(
    queue: &PostgresQueue,
    partition: &PartitionId,
    max: usize,
) -> Vec<RawDelivery> {
    queue.pull(partition, PullRequest::new(max, SOON, LEASE)).await.unwrap()
}

pub(crate) fn texts(deliveries: &[RawDelivery]) -> Vec<String> {
    let text = |delivery: &RawDelivery| String::from_utf8(delivery.message.payload().to_vec()).unwrap();
    deliveries.iter().map(text).collect()
}

pub(crate) async fn remove(queue: &PostgresQueue, lease: &Lease) -> SettleOutcome {
    let settlement = Settlement::new(lease.clone(), Action::Remove);
    queue.settle(&[settlement]).await.remove(0).unwrap()
}
