//! The conformance suite's harness for any backend that has a server: written once, and told what is
//! different about a backend.

mod backend;
mod own_server;
mod servers;
mod told;

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, MessageId, PartitionId, Result};
use anyqueue_conformance::{FaultTarget, Harness, Need, Opening};
use async_trait::async_trait;

pub use self::backend::ServerBackend;
pub use self::servers::Servers;
pub use self::told::is_told_of_ends;

use self::backend::open;
use self::own_server::OwnServer;

/// A conformance harness over one or several private servers, or over the one that the environment names. It
/// gives each case a namespace on one of them, other processes on the same server, clients with wrong clocks,
/// and, if the case harms a server, a server of its own behind a [`Proxy`](crate::Proxy).
///
/// A backend is a type that implements [`ServerBackend`], not a set of values: a child process opens a
/// storage by nothing but its address, without a harness.
pub struct ServerHarness<B> {
    backend: Arc<B>,
    servers: Servers,
}

impl<B: ServerBackend> ServerHarness<B> {
    /// Makes a harness over servers that are already running.
    pub fn new(backend: B, servers: Servers) -> Self {
        Self { backend: Arc::new(backend), servers }
    }

    /// The `main` of a test target with `harness = false`: runs the suite over the backend's servers. If this
    /// machine has none, nothing is run, with a notice; if the variable `CI` or `ANYQUEUE_REQUIRE_SERVERS` is
    /// set, that is a failure.
    pub fn main(backend: B) -> ExitCode {
        // A child process attaches to its parent's server; it needs none of its own.
        anyqueue_conformance::main(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime.map(|runtime| runtime.block_on(backend.servers())) {
                Ok(Ok(Some(servers))) => Self::new(backend, servers),
                Ok(Ok(None)) => std::process::exit(0),
                other => {
                    eprintln!("no server for the suite: {other:?}");
                    std::process::exit(1)
                }
            }
        })
    }

    fn at(&self, namespace: &str) -> String {
        self.backend.address(&self.servers.url_of(namespace), namespace)
    }
}

impl<B> fmt::Debug for ServerHarness<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHarness").field("servers", &self.servers).finish_non_exhaustive()
    }
}

#[async_trait]
impl<B: ServerBackend> Harness for ServerHarness<B> {
    fn name(&self) -> &str {
        self.backend.name()
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open::<B>(&self.at(namespace), Clock::system()).await
    }

    fn open_skewed(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        // It takes no place before it is awaited: the suite also asks only to see whether there is an answer.
        let namespace = namespace.to_owned();
        Some(Box::pin(async move { open::<B>(&self.at(&namespace), clock).await }))
    }

    fn address(&self, namespace: &str) -> Option<String> {
        Some(self.at(namespace))
    }

    async fn attach(address: &str) -> Result<Arc<dyn Storage>> {
        open::<B>(address, Clock::system()).await
    }

    fn least(&self) -> &'static [Need] {
        self.backend.least()
    }

    fn rule(&self, need: Need) -> Option<&'static str> {
        self.backend.rule(need)
    }

    fn stores_bytes(&self) -> bool {
        self.backend.stores_bytes()
    }

    async fn plant(&self, namespace: &str, partition: &PartitionId, stored: &[u8]) -> Result<()> {
        self.backend.plant(&self.servers.url_of(namespace), namespace, partition, stored).await
    }

    fn corrupts(&self) -> bool {
        self.backend.corrupts()
    }

    async fn corrupt(&self, namespace: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
        self.backend.corrupt(&self.servers.url_of(namespace), namespace, partition, id).await
    }

    async fn fault_target(&self) -> Result<Option<Arc<dyn FaultTarget>>> {
        let Some(program) = self.backend.own_program() else { return Ok(None) };
        Ok(Some(Arc::new(OwnServer::start(Arc::clone(&self.backend), program).await?)))
    }

    fn parallelism(&self) -> usize {
        self.backend.parallelism() * self.servers.count()
    }

    async fn remove(&self, namespace: &str) {
        // A case with a server of its own has taken nothing here.
        let Some(url) = self.servers.leave(namespace) else { return };
        self.backend.remove(&url, namespace).await;
    }
}
