//! The conformance suite over the Redis backend: a prefix per case, and other processes on the same server.

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::adapter::{QueueStorage, Storage};
use anyqueue::{Clock, Error, ErrorKind, MessageId, PartitionId, Result};
use anyqueue_conformance::{Disruption, FaultTarget, Harness, Need, Opening, async_trait, corrupted, least};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Fault, Provided, Proxy, Server, provide};
use redis::aio::MultiplexedConnection;

struct Redis {
    url: String,
    _server: Provided,
}

impl Redis {
    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        redis::Client::open(self.url.as_str())?.get_multiplexed_async_connection().await
    }

    /// The hash of these in which the message is, and its record; an empty one if it is in none.
    async fn record(&self, hashes: &str, id: MessageId) -> redis::RedisResult<(String, Vec<u8>)> {
        let mut conn = self.connect().await?;
        let names: Vec<String> = redis::cmd("KEYS").arg(hashes).query_async(&mut conn).await?;
        for hash in names {
            let mut read = redis::cmd("HGET");
            let record: Option<Vec<u8>> = read.arg(&hash).arg(id.as_bytes()).query_async(&mut conn).await?;
            if let Some(record) = record {
                return Ok((hash, record));
            }
        }
        Ok((String::new(), Vec::new()))
    }
}

/// A prefix per namespace.
fn address(url: &str, namespace: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}prefix={namespace}")
}

async fn open(url: &str) -> Result<Arc<dyn Storage>> {
    open_on(url, Clock::system()).await
}

async fn open_on(url: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
    let queue = RedisQueue::from_url(url)?.clock(clock).open().await?;
    queue.init().await?;
    Ok(Arc::new(queue))
}

#[async_trait]
impl Harness for Redis {
    fn name(&self) -> &'static str {
        "redis"
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

    async fn corrupt(&self, namespace: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
        let refused =
            |error| Error::new(ErrorKind::Internal, "the record could not be changed").with_source(error);
        let hashes = format!("{namespace}:{{{}}}:messages*", partition.name());
        let (hash, record) = self.record(&hashes, id).await.map_err(refused)?;
        let mut replace = redis::cmd("HSET");
        replace.arg(hash).arg(id.as_bytes()).arg(corrupted(&record)?);
        replace.query_async(&mut self.connect().await.map_err(refused)?).await.map_err(refused)
    }

    async fn fault_target(&self) -> Result<Option<Arc<dyn FaultTarget>>> {
        Ok(Some(Arc::new(OwnServer::start().await.map_err(failed)?)))
    }
}

/// A server for one case, and what it is reached through. It flushes before it answers: then nothing may be lost.
struct OwnServer {
    server: Server,
    proxy: Proxy,
}

impl OwnServer {
    async fn start() -> anyqueue_testkit::Result<Self> {
        let redis = anyqueue_testkit::Redis::new().setting("appendfsync", "always");
        let server = Server::start(redis).await?;
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
        open(&address(&format!("redis://{}/", self.proxy.addr()), namespace)).await
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

/// The server of this run. Without one nothing is run, which was said; in CI that is an error.
fn server() -> Provided {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let provided = runtime.map(|runtime| runtime.block_on(provide(anyqueue_testkit::Redis::new())));
    match provided {
        Ok(Ok(provided)) => provided,
        other => {
            eprintln!("no server for the suite: {other:?}");
            std::process::exit(1)
        }
    }
}

fn main() -> ExitCode {
    // A child process attaches to its parent's server; it needs none of its own.
    anyqueue_conformance::main(|| {
        let server = server();
        let Some(url) = server.url().map(str::to_owned) else { std::process::exit(0) };
        Redis { url, _server: server }
    })
}
