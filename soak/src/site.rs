//! A backend's server and the proxy before it, or its file.

use anyqueue_testkit::{Proxy, Server};
use tempfile::TempDir;

use crate::backends::{Backend, Result};

/// How long a call may take during the faults.
const CALL_TIMEOUT_S: u32 = 3;
/// The same at the end: to count what a long run has left takes longer.
const LOOK_TIMEOUT_S: u32 = 60;

/// Where the messages, or the ends of tasks, of a run are.
#[derive(Debug)]
pub(crate) struct Site {
    backend: Backend,
    server: Option<(Server, Proxy)>,
    url: String,
    direct_url: String,
    _folder: Option<TempDir>,
}

impl Site {
    /// A fresh one; `None` if its server is not installed, which is reported.
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

    /// The server and the proxy, if it has them.
    pub(crate) fn server(&self) -> Option<&(Server, Proxy)> {
        self.server.as_ref()
    }

    /// Its clients' URL, through the proxy.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL that no fault of the network reaches.
    pub(crate) fn direct_url(&self) -> &str {
        &self.direct_url
    }

    /// The server's version, if it has one.
    pub(crate) fn version(&self) -> Option<&str> {
        self.server().map(|(server, _)| server.version())
    }
}
