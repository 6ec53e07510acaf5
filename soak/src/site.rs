//! A backend's server and the proxy in front of it, or its file.

use anyqueue_testkit::{Proxy, Server};
use tempfile::TempDir;

use crate::backends::{Backend, Result};

/// How long a call may take during the faults.
const CALL_TIMEOUT_S: u32 = 3;
/// The same at the end: counting what a long run has left takes longer.
const LOOK_TIMEOUT_S: u32 = 60;

/// Where the messages of a run are, or the ends of its tasks.
#[derive(Debug)]
pub(crate) struct Site {
    backend: Backend,
    server: Option<(Server, Proxy)>,
    url: String,
    direct_url: String,
    _folder: Option<TempDir>,
}

impl Site {
    /// Starts a fresh one; `None` if its server is not installed, which is reported.
    pub(crate) async fn start(backend: Backend) -> Result<Option<Self>> {
        if backend == Backend::Sqlite {
            let folder = tempfile::tempdir()?;
            let url = format!("sqlite:{}", folder.path().join("soak.db").display());
            let direct_url = url.clone();
            return Ok(Some(Self { backend, server: None, url, direct_url, _folder: Some(folder) }));
        }
        let Some(server) = backend.start().await? else { return Ok(None) };
        let proxy = Proxy::start(server.addr())?;
        let through = server.url().replace(&server.addr().to_string(), &proxy.addr().to_string());
        let (url, direct_url) =
            (backend.url(&through, CALL_TIMEOUT_S), backend.url(server.url(), LOOK_TIMEOUT_S));
        Ok(Some(Self { backend, server: Some((server, proxy)), url, direct_url, _folder: None }))
    }

    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the server and the proxy, if there are any.
    pub(crate) fn server(&self) -> Option<&(Server, Proxy)> {
        self.server.as_ref()
    }

    /// Returns the URL for clients, through the proxy.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the URL that no network fault affects.
    pub(crate) fn direct_url(&self) -> &str {
        &self.direct_url
    }

    /// Returns the server's version, if there is a server.
    pub(crate) fn version(&self) -> Option<&str> {
        self.server().map(|(server, _)| server.version())
    }
}
