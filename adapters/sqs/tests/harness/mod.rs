//! What both harnesses share: a prefix per case, and other processes on the same server.

mod corrupt;

use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::adapter::{QueueStorage, Storage};
use anyqueue::{Clock, Error, ErrorKind, MessageId, PartitionId, Result};
use anyqueue_conformance::{Disruption, FaultTarget, Harness, Need, Opening, async_trait};
use anyqueue_sqs::SqsQueue;
use anyqueue_testkit::{Fault, Ministack, Provided, Proxy, Server, provide};

/// What the two kinds of queues differ in.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) fifo: bool,
    pub(crate) least: &'static [Need],
}

struct Sqs {
    kind: &'static Kind,
    endpoint: String,
    _server: Provided,
}

/// A prefix per namespace. An emulator takes any credentials.
fn address(kind: &Kind, endpoint: &str, namespace: &str) -> String {
    format!("sqs://test:test@us-east-1/{namespace}?endpoint={endpoint}&fifo={}", kind.fifo)
}

async fn open(url: &str) -> Result<Arc<dyn Storage>> {
    let queue = SqsQueue::open(url).await?;
    queue.init().await?;
    Ok(Arc::new(queue))
}

async fn open_on(url: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
    let queue = SqsQueue::from_url(url)?.clock(clock).open().await?;
    queue.init().await?;
    Ok(Arc::new(queue))
}

#[async_trait]
impl Harness for Sqs {
    fn name(&self) -> &'static str {
        self.kind.name
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open(&address(self.kind, &self.endpoint, namespace)).await
    }

    fn open_skewed(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let address = address(self.kind, &self.endpoint, namespace);
        Some(Box::pin(async move { open_on(&address, clock).await }))
    }

    fn address(&self, namespace: &str) -> Option<String> {
        Some(address(self.kind, &self.endpoint, namespace))
    }

    async fn attach(address: &str) -> Result<Arc<dyn Storage>> {
        open(address).await
    }

    fn least(&self) -> &'static [Need] {
        self.kind.least
    }

    fn rule(&self, need: Need) -> Option<&'static str> {
        anyqueue_sqs::server_rule(self.kind.fifo, need.what())
    }

    fn corrupts(&self) -> bool {
        true
    }

    async fn corrupt(&self, namespace: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
        let end = if self.kind.fifo { ".fifo" } else { "" };
        let queue = format!("{}_p0-{}{end}", namespace.replace('_', "__"), partition.name());
        corrupt::corrupt(&self.endpoint, &queue, id).await
    }

    /// The emulator is one thread of Python; most cases wait most of the time.
    fn parallelism(&self) -> usize {
        8
    }

    async fn fault_target(&self) -> Result<Option<Arc<dyn FaultTarget>>> {
        Ok(Some(Arc::new(OwnServer::start(self.kind).await.map_err(failed)?)))
    }
}

/// A server for one case, and what it is reached through.
struct OwnServer {
    kind: &'static Kind,
    server: Server,
    proxy: Proxy,
}

impl OwnServer {
    async fn start(kind: &'static Kind) -> anyqueue_testkit::Result<Self> {
        let server = Server::start(Ministack::new().persistent()).await?;
        let proxy = Proxy::start(server.addr())?;
        Ok(Self { kind, server, proxy })
    }
}

fn failed(error: anyqueue_testkit::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the test server").with_source(error)
}

#[async_trait]
impl FaultTarget for OwnServer {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open(&address(self.kind, &format!("http://{}", self.proxy.addr()), namespace)).await
    }

    async fn disrupt(&self, disruption: Disruption) -> Result<()> {
        let done = match disruption {
            // The emulator saves what it holds when it is told to stop, and at no other time. The service itself keeps it.
            Disruption::Kill => self.server.stop().await,
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
    match runtime.map(|runtime| runtime.block_on(provide(Ministack::new()))) {
        Ok(Ok(provided)) => provided,
        other => {
            eprintln!("no server for the suite: {other:?}");
            std::process::exit(1)
        }
    }
}

/// Runs the suite over queues of this kind.
pub(crate) fn main(kind: &'static Kind) -> ExitCode {
    // A child process attaches to its parent's server; it needs none of its own.
    anyqueue_conformance::main(move || {
        let server = server();
        let Some(endpoint) = server.url().map(str::to_owned) else { std::process::exit(0) };
        Sqs { kind, endpoint, _server: server }
    })
}
