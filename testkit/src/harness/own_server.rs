//! A server for a single case, behind a proxy, that the case may harm.

use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Clock, Error, ErrorKind, Result};
use anyqueue_conformance::{Disruption, FaultTarget};
use async_trait::async_trait;

use super::backend::{ServerBackend, open};
use crate::program::Program;
use crate::proxy::{Fault, Proxy};
use crate::server::Server;

pub(super) struct OwnServer<B> {
    backend: Arc<B>,
    server: Server,
    proxy: Proxy,
}

impl<B: ServerBackend> OwnServer<B> {
    pub(super) async fn start(backend: Arc<B>, program: impl Program) -> Result<Self> {
        let server = Server::start(program).await.map_err(failed)?;
        let proxy = Proxy::start(server.addr()).map_err(failed)?;
        Ok(Self { backend, server, proxy })
    }

    /// The URL at which clients reach the server through the proxy.
    fn url(&self) -> String {
        self.server.url().replace(&self.server.addr().to_string(), &self.proxy.addr().to_string())
    }
}

fn failed(error: crate::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the test server").with_source(error)
}

#[async_trait]
impl<B: ServerBackend> FaultTarget for OwnServer<B> {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open::<B>(&self.backend.address(&self.url(), namespace), Clock::system()).await
    }

    async fn disrupt(&self, disruption: Disruption) -> Result<()> {
        let done = match disruption {
            Disruption::Kill => self.backend.kill(&self.server).await,
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
