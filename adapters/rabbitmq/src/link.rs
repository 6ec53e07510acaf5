//! A connection that is opened when needed, and again when it breaks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Result};
use lapin::tcp::{AMQPUriTcpExt, OwnedTLSConfig};
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties};

use crate::config::{Config, target};
use crate::error::{ERRORS, classify, timed_out};
use crate::handshake::Handshake;
use crate::log_filter;

/// One connection at a time. The client's own recovery is not used, because after each break it must be known
/// which deliveries are still held.
pub(crate) struct Link {
    config: Arc<Config>,
    /// The purpose of the connection, as the server shows it.
    purpose: &'static str,
    // A std mutex, because it is held for a few instructions and never across an await.
    current: Mutex<Current>,
    connecting: tokio::sync::Mutex<()>,
    /// The node to try first.
    next_node: AtomicUsize,
}

#[derive(Default)]
struct Current {
    conn: Option<Arc<Connection>>,
    /// The last attempt that failed, for all tasks that waited for it.
    failed: Option<(Instant, Error)>,
}

impl Link {
    pub(crate) fn new(config: &Arc<Config>, purpose: &'static str) -> Self {
        Self {
            config: Arc::clone(config),
            purpose,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            next_node: AtomicUsize::new(0),
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_one(&self) -> Option<Arc<Connection>> {
        self.current().conn.clone().filter(|conn| conn.status().connected())
    }

    /// Returns the connection. Opens one if there is none.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        if let Some(open) = self.open_one() {
            return Ok(open);
        }
        let came = Instant::now();
        let _guard = self.connecting.lock().await;
        if let Some(open) = self.open_one() {
            return Ok(open);
        }
        if let Some((at, error)) = &self.current().failed
            && *at >= came
        {
            return Err(error.clone());
        }
        let connected = self.connect().await;
        let mut current = self.current();
        match connected {
            Ok(conn) => {
                let conn = Arc::new(conn);
                current.conn = Some(Arc::clone(&conn));
                current.failed = None;
                Ok(conn)
            }
            Err(error) => {
                current.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Tries the nodes in turn. The node of the broken connection is tried last.
    async fn connect(&self) -> Result<Connection> {
        let count = self.config.node_count();
        let limit = self.config.connect_timeout / u32::try_from(count).unwrap_or(u32::MAX);
        let first = self.next_node.load(Ordering::Relaxed);
        let mut failed = timed_out();
        for index in (0..count).map(|offset| (first + offset) % count) {
            let uri = self.config.node(index);
            let target = target(&uri);
            match within(limit, self.connect_to(uri)).await {
                Ok(conn) => {
                    self.next_node.store(index + 1, Ordering::Relaxed);
                    return Ok(conn);
                }
                Err(error) => failed = unreachable(&target, error),
            }
        }
        Err(failed)
    }

    async fn connect_to(&self, mut uri: AMQPUri) -> Result<Connection> {
        uri.query.heartbeat = Some(u16::try_from(self.config.heartbeat.as_secs()).unwrap_or(u16::MAX));
        let name = format!("anyqueue {} {}", self.config.prefix, self.purpose);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let tls = self.tls().await?;
        let runtime = lapin::runtime::default_runtime().map_err(classify)?;
        let log_filter = log_filter::without_payloads();
        let connect = async move |uri: AMQPUri, runtime| {
            log_filter::set_for_thread(log_filter.as_ref());
            Ok(uri.connect_with_config_async(tls.as_ref(), &runtime).await?)
        };
        Connection::connector(uri, runtime, connect, properties).await.map_err(classify)
    }

    /// Asks the server of the last connection for its handshake.
    pub(crate) async fn handshake(&self) -> Result<Handshake> {
        let last = self.next_node.load(Ordering::Relaxed).saturating_sub(1) % self.config.node_count();
        let uri = self.config.node(last);
        let target = target(&uri);
        let asking = async { Handshake::ask(&uri, &self.tls().await?).await };
        within(self.config.connect_timeout, asking).await.map_err(|error| unreachable(&target, error))
    }

    async fn tls(&self) -> Result<OwnedTLSConfig> {
        let mut tls = OwnedTLSConfig::default();
        if let Some(path) = &self.config.ca_file {
            let read = tokio::fs::read_to_string(path).await;
            tls.cert_chain = Some(read.map_err(|cause| {
                ERRORS
                    .error(ErrorKind::InvalidInput, format!("ca_file {} cannot be read", path.display()))
                    .with_source(cause)
            })?);
        }
        Ok(tls)
    }

    /// Returns whether this is still the connection for new calls, neither discarded nor replaced.
    pub(crate) fn is_current(&self, conn: &Arc<Connection>) -> bool {
        self.current().conn.as_ref().is_some_and(|current| Arc::ptr_eq(current, conn))
    }

    /// Drops the connection, so that the next call opens another.
    pub(crate) fn discard(&self, conn: &Arc<Connection>) {
        let mut current = self.current();
        if current.conn.as_ref().is_some_and(|current| Arc::ptr_eq(current, conn)) {
            current.conn = None;
        }
    }

    /// Closes the connection properly, if the server is still listening.
    pub(crate) async fn close(&self, patience: Duration) {
        let conn = self.current().conn.take();
        if let Some(conn) = conn.filter(|conn| conn.status().connected()) {
            // A blocked broker would not read the request.
            let patience = if conn.status().blocked() { Duration::ZERO } else { patience };
            let _ = tokio::time::timeout(patience, conn.close(200, "bye".into())).await;
        }
    }
}

/// The error for a node that could not be connected to.
fn unreachable(target: &str, cause: Error) -> Error {
    let kind = if cause.kind() == ErrorKind::TimedOut { ErrorKind::Unavailable } else { cause.kind() };
    let retry = cause.retry();
    ERRORS.error(kind, format!("{target}: {}", cause.message())).with_retry(retry).with_source(cause)
}

/// Opens a channel on this connection.
pub(crate) async fn channel(conn: &Connection, limit: Duration) -> Result<Channel> {
    within(limit, async { conn.create_channel().await.map_err(classify) }).await
}

/// Limits the time of a call.
pub(crate) async fn within<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(timed_out()))
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("purpose", &self.purpose).finish_non_exhaustive()
    }
}
