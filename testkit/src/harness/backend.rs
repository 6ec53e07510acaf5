//! What an adapter tells of its backend, so that the suite can run over it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, MessageId, PartitionId};
use anyqueue_conformance::{Need, Options};
use async_trait::async_trait;

use crate::error::Result;
use crate::program::Program;
use crate::provide::provide;
use crate::server::Server;

/// A backend with a server, as a [`ServerHarness`](super::ServerHarness) needs to know it.
///
/// What has a default here is what most backends do; see [`Harness`](anyqueue_conformance::Harness) for what the suite asks of each.
#[async_trait]
pub trait ServerBackend: Send + Sync + 'static {
    /// Its server.
    type Program: Program;

    /// As reports call it.
    fn name(&self) -> &str;

    /// The server that all cases of a run share.
    fn program(&self) -> Self::Program;

    /// The server that a case has to itself, which it may harm. `None`: there is none, and such cases do not run.
    fn own_program(&self) -> Option<Self::Program> {
        Some(self.program())
    }

    /// The servers of a run, if not the one of [`provide`]. `None`: this machine has none, which was said.
    ///
    /// # Errors
    /// As of [`provide`].
    async fn servers(&self) -> Result<Option<Servers>> {
        let provided = provide(self.program()).await?;
        Ok(provided.url().map(str::to_owned).map(|url| Servers::new(url, provided)))
    }

    /// What the server's URL is given for a client of this namespace.
    fn options(&self, namespace: &str) -> String {
        format!("prefix={namespace}")
    }

    /// The URL of a namespace on the server at this one.
    fn address(&self, url: &str, namespace: &str) -> String {
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}{}", self.options(namespace))
    }

    /// A client of its own, by an [`address`](Self::address), also in a process that has nothing else. It is initialised then.
    ///
    /// # Errors
    /// If it cannot be opened.
    async fn open(address: &str, clock: Clock) -> anyqueue::Result<Arc<dyn Storage>>
    where
        Self: Sized;

    /// What it must declare at least.
    fn least(&self) -> &'static [Need];

    /// The server's own rule because of which it lacks something.
    fn rule(&self, need: Need) -> Option<&'static str> {
        (need == Need::ControlledClock).then_some("time is the server's: its clock cannot be turned")
    }

    /// How many cases run at once.
    fn parallelism(&self) -> usize {
        Options::default().parallelism
    }

    /// Ends a case's own server at once, such that it can be started again with what it had answered for.
    ///
    /// # Errors
    /// As of [`Server::kill`].
    async fn kill(&self, server: &Server) -> Result<()> {
        server.kill().await
    }

    /// Whether [`plant`](Self::plant) is there.
    fn stores_bytes(&self) -> bool {
        false
    }

    /// As [`Harness::plant`](anyqueue_conformance::Harness::plant), on the server at this URL.
    ///
    /// # Errors
    /// If they cannot be put there.
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

    /// Whether [`corrupt`](Self::corrupt) is there, which a backend has to say that has none.
    fn corrupts(&self) -> bool {
        true
    }

    /// As [`Harness::corrupt`](anyqueue_conformance::Harness::corrupt), on the server at this URL.
    ///
    /// # Errors
    /// If it cannot be damaged.
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

    /// Frees what the namespace takes on the server at this URL.
    async fn remove(&self, url: &str, namespace: &str) {
        let _ = (url, namespace);
    }
}

/// The servers of a run; gone, as far as they are private, when this is dropped.
pub struct Servers {
    url: String,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Servers {
    /// Reached at this URL as long as `kept` is.
    pub fn new(url: impl Into<String>, kept: impl Send + Sync + 'static) -> Self {
        Self { url: url.into(), _kept: Box::new(kept) }
    }

    /// How clients reach them.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A client that can be used at once.
pub(super) async fn open<B: ServerBackend>(
    address: &str,
    clock: Clock,
) -> anyqueue::Result<Arc<dyn Storage>> {
    let storage = B::open(address, clock).await?;
    storage.init().await?;
    Ok(storage)
}
