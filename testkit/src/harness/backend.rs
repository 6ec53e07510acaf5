//! What an adapter says about its backend, so that the suite can run over it.

use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, MessageId, PartitionId};
use anyqueue_conformance::{Need, Options};
use async_trait::async_trait;

use super::servers::Servers;
use crate::error::Result;
use crate::program::Program;
use crate::provide::provide;
use crate::server::Server;

/// A backend with a server, as a [`ServerHarness`](super::ServerHarness) needs to know it.
///
/// The defaults are what most backends do; see [`Harness`](anyqueue_conformance::Harness) for what the suite
/// expects of each method.
#[async_trait]
pub trait ServerBackend: Send + Sync + 'static {
    /// Its server.
    type Program: Program;

    /// The name of the backend in reports.
    fn name(&self) -> &str;

    /// The server that the cases of a run share, or each of several.
    fn program(&self) -> Self::Program;

    /// How many of these servers the cases of a run are spread over: more than one for a server that uses no
    /// more than one core. A server that the environment names is the only one.
    fn server_count(&self) -> usize {
        1
    }

    /// The server for a single case, which may harm it. `None` if there is none; then such cases do not run.
    fn own_program(&self) -> Option<Self::Program> {
        Some(self.program())
    }

    /// The servers of a run, if not the one of [`provide`] and others like it. `None` if this machine has
    /// none, which has been reported.
    ///
    /// # Errors
    /// As [`provide`].
    async fn servers(&self) -> Result<Option<Servers>> {
        let first = provide(self.program()).await?;
        let Some(url) = first.url().map(str::to_owned) else { return Ok(None) };
        let count = if first.server().is_some() { self.server_count() } else { 1 };
        let mut servers = Servers::new(url, first);
        for _ in 1..count {
            let another = Server::start(self.program()).await?;
            servers = servers.and(another.url().to_owned(), another);
        }
        Ok(Some(servers))
    }

    /// What is appended to the server's URL for a client of this namespace.
    fn options(&self, namespace: &str) -> String {
        format!("prefix={namespace}")
    }

    /// The URL of a namespace on the server at `url`.
    fn address(&self, url: &str, namespace: &str) -> String {
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}{}", self.options(namespace))
    }

    /// Opens a client by its [`address`](Self::address), possibly in a process that has nothing else. The
    /// caller initialises it.
    ///
    /// # Errors
    /// If it cannot be opened.
    async fn open(address: &str, clock: Clock) -> anyqueue::Result<Arc<dyn Storage>>
    where
        Self: Sized;

    /// What the backend must declare at least.
    fn least(&self) -> &'static [Need];

    /// The server's own rule that makes it lack something.
    fn rule(&self, need: Need) -> Option<&'static str> {
        (need == Need::ControlledClock).then_some("time is the server's: its clock cannot be turned")
    }

    /// How many cases run at once on each of the servers.
    fn parallelism(&self) -> usize {
        Options::default().parallelism
    }

    /// Kills a case's own server at once, such that it can be started again with everything that it had
    /// confirmed.
    ///
    /// # Errors
    /// As [`Server::kill`].
    async fn kill(&self, server: &Server) -> Result<()> {
        server.kill().await
    }

    /// Whether [`plant`](Self::plant) is implemented.
    fn stores_bytes(&self) -> bool {
        false
    }

    /// Like [`Harness::plant`](anyqueue_conformance::Harness::plant), on the server at this URL.
    ///
    /// # Errors
    /// If the bytes cannot be stored.
    async fn plant(
        &self,
        url: &str,
        namespace: &str,
        partition: &PartitionId,
        stored: &[u8],
    ) -> anyqueue::Result<()> {
        let _ = (url, namespace, partition, stored);
        Err(anyqueue::Error::unsupported("nothing was said of how to plant"))
    }

    /// Whether [`corrupt`](Self::corrupt) is implemented. A backend without it must say so.
    fn corrupts(&self) -> bool {
        true
    }

    /// Like [`Harness::corrupt`](anyqueue_conformance::Harness::corrupt), on the server at this URL.
    ///
    /// # Errors
    /// If the message cannot be damaged.
    async fn corrupt(
        &self,
        url: &str,
        namespace: &str,
        partition: &PartitionId,
        id: MessageId,
    ) -> anyqueue::Result<()> {
        let _ = (url, namespace, partition, id);
        Err(anyqueue::Error::unsupported("nothing was said of how to corrupt"))
    }

    /// Frees what the namespace occupies on the server at this URL.
    async fn remove(&self, url: &str, namespace: &str) {
        let _ = (url, namespace);
    }
}

/// Opens a client that is ready for use.
pub(super) async fn open<B: ServerBackend>(
    address: &str,
    clock: Clock,
) -> anyqueue::Result<Arc<dyn Storage>> {
    let storage = B::open(address, clock).await?;
    storage.init().await?;
    Ok(storage)
}
