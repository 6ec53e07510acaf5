//! A store with this many ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyqueue::adapter::Storage;
use anyqueue::{MessageData, MessageId, Queue};
use anyqueue_testkit::{Postgres, Redis, Server, ends};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::line::Line;
use crate::client::Result;

/// The schema on PostgreSQL.
pub(super) const SCHEMA: &str = "ended";
/// The number of ends recorded in one call.
const BATCH: u64 = 1000;

/// The store to fill; its own server ends with it.
pub(super) enum Store {
    Sqlite { file: PathBuf, url: String },
    Postgres(PostgresStore),
    Redis(Server),
}

pub(super) struct PostgresStore {
    pub(super) server: Server,
    url: String,
}

impl Store {
    pub(super) async fn new(backend: &str, folder: &Path) -> Result<Self> {
        Ok(match backend {
            "ended-sqlite" => {
                let file = folder.join("queue.db");
                let name = file.to_str().ok_or("the scratch directory's name is not UTF-8")?;
                Self::Sqlite { url: format!("sqlite://{name}"), file }
            }
            "ended-postgres" => {
                // At most a gigabyte of log, because the disk has to hold it too.
                let program = Postgres::new().setting("shared_buffers", "1GB").setting("max_wal_size", "1GB");
                let server = Server::start(program).await?;
                Self::Postgres(PostgresStore { url: format!("{}?schema={SCHEMA}", server.url()), server })
            }
            // What is in memory is measured, not the log.
            _ => Self::Redis(
                Server::start(Redis::new().setting("appendonly", "no").setting("save", "")).await?,
            ),
        })
    }

    pub(super) fn url(&self) -> &str {
        match self {
            Self::Sqlite { url, .. } | Self::Postgres(PostgresStore { url, .. }) => url,
            Self::Redis(server) => server.url(),
        }
    }

    pub(super) async fn open(&self) -> Result<Queue> {
        let queue = open(self.url()).await?;
        queue.init().await?;
        Ok(queue)
    }

    /// Fills the store, prints how much space an end takes, and opens the store anew.
    pub(super) async fn fill(&self, queue: Queue, ended: usize, line: &Line, json: bool) -> Result<Queue> {
        let (began, count) = (Instant::now(), u64::try_from(ended)?);
        queue.push(ends::PARTITION, MessageData::new("waits")).await?;
        queue.close().await?;
        let bytes = match self {
            Self::Sqlite { file, .. } => {
                let (path, text) = (file.clone(), ends::sqlite(count));
                tokio::task::spawn_blocking(move || rusqlite::Connection::open(path)?.execute_batch(&text))
                    .await??;
                std::fs::metadata(file)?.len()
            }
            Self::Postgres(store) => store.fill(&ends::postgres(SCHEMA, count)).await?,
            Self::Redis(server) => {
                let before = used_memory(server).await?;
                record(server.url(), count).await?;
                used_memory(server).await?.saturating_sub(before)
            }
        };
        let filled = Line { scenario: "fill", bytes_each: Some(bytes / count.max(1)), ..line.clone() };
        Line { seconds: Some(began.elapsed().as_secs_f64()), ..filled }.print(json)?;
        self.open().await
    }
}

impl PostgresStore {
    pub(super) async fn connect(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(self.server.url()).await?)
    }

    /// Returns the bytes of all ends.
    pub(super) async fn fill(&self, text: &str) -> Result<u64> {
        let mut conn = self.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut conn).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("ANALYZE {SCHEMA}.ended; CHECKPOINT")))
            .execute(&mut conn)
            .await?;
        let size = format!(
            "SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits WHERE inhparent = '{SCHEMA}.ended'::regclass"
        );
        let bytes: i64 = sqlx::query_scalar(AssertSqlSafe(size)).fetch_one(&mut conn).await?;
        Ok(u64::try_from(bytes)?)
    }
}

async fn used_memory(server: &Server) -> Result<u64> {
    let mut conn = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let info: String = redis::cmd("INFO").arg("memory").query_async(&mut conn).await?;
    let used =
        info.lines().find_map(|line| line.strip_prefix("used_memory:")).ok_or("INFO has no used_memory")?;
    Ok(used.trim().parse()?)
}

/// Records ends as a queue beside the store would: all of these have ended just now.
async fn record(url: &str, count: u64) -> Result<()> {
    let storage: Arc<dyn Storage> = anyqueue_backends::open(url).await?;
    let partition = anyqueue::PartitionId::new(ends::PARTITION)?;
    let ledger = storage.ledger().ok_or("no ledger")?;
    let mut number = 0;
    while number < count {
        let until = count.min(number + BATCH);
        let some: Vec<_> =
            (number..until).map(|number| (MessageId::new(), Arc::new(ends::end(number)))).collect();
        for stored in ledger.record_ended(&partition, &some).await {
            stored?;
        }
        number = until;
    }
    Ok(())
}

async fn open(url: &str) -> Result<Queue> {
    Ok(Queue::new(anyqueue_backends::open(url).await?)?)
}
