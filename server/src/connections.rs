//! Connections: as many as there is room for, and none that keeps its place by saying nothing, or by reading nothing.

use std::sync::Arc;
use std::time::Duration;

use anyqueue_control::tokens::Fingerprint;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConnection;
use tokio_util::sync::CancellationToken;

use crate::peer::{Peer, Routed};
use crate::stall::Stall;
use crate::tls::Tls;

/// How long the headers of a request may take, and the agreement on a key before.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);
/// How long a connection is kept on which a client of HTTP/2 does not answer.
const PING_EVERY: Duration = Duration::from_secs(20);
/// The most requests at once on one connection of HTTP/2.
const MAX_STREAMS: u32 = 100;
/// The pause after the machine refused a connection, for instance because there are no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long requests may take that are under way when the service ends.
const DRAIN: Duration = Duration::from_secs(10);

/// What clients are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The most connections at once.
    pub(crate) most: usize,
    /// How long a client may read nothing while there is something for it, and how long a body may take.
    pub(crate) patience: Duration,
}

/// Serves until it is told to end; then what is under way may finish.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    room: Room,
    tls: Option<Tls>,
    end: CancellationToken,
) {
    let Room { most, patience } = room;
    let room = Arc::new(Semaphore::new(most));
    let open = GracefulShutdown::new();
    let talk =
        Arc::new(Talk { protocol: protocol(), router, acceptor: tls.as_ref().map(Tls::acceptor), patience });
    loop {
        let Some((stream, place)) = next(&listener, &room, &end).await else { break };
        let (talk, watcher, end) = (talk.clone(), open.watcher(), end.clone());
        tokio::spawn(async move {
            talk.with(stream, watcher, &end).await;
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, open.shutdown()).await.is_err() {
        tracing::warn!("requests are still under way; the service ends without them");
    }
}

/// How clients are talked to.
struct Talk {
    protocol: Builder<TokioExecutor>,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    patience: Duration,
}

impl Talk {
    async fn with(&self, stream: TcpStream, watcher: Watcher, end: &CancellationToken) {
        // A long poll has nothing to say meanwhile; whoever has gone away is noticed all the same.
        let _ = stream.set_nodelay(true);
        let peer = stream.peer_addr().ok().map(|address| Peer(address.ip().to_canonical()));
        let stream = Stall::new(stream, self.patience);
        let Some(acceptor) = &self.acceptor else { return self.over(stream, peer, None, watcher).await };
        let agreed = tokio::time::timeout(HEADER_DEADLINE.min(self.patience), acceptor.accept(stream));
        let agreed = tokio::select! {
            biased;
            // Nothing is asked yet: it need not be waited for.
            () = end.cancelled() => return,
            agreed = agreed => agreed,
        };
        match agreed {
            Ok(Ok(stream)) => {
                let certificate = shown(stream.get_ref().1);
                self.over(stream, peer, certificate, watcher).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a client did not agree on a key"),
            Err(_) => tracing::debug!("a client did not agree on a key in time"),
        }
    }

    async fn over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Option<Peer>,
        certificate: Option<Fingerprint>,
        watcher: Watcher,
    ) {
        let service = TowerToHyperService::new(Routed { router: self.router.clone(), peer, certificate });
        let connection = self.protocol.serve_connection(TokioIo::new(stream), service).into_owned();
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

/// The certificate of the client itself, which is the first; the others lead to its authority.
fn shown(agreed: &ServerConnection) -> Option<Fingerprint> {
    agreed.peer_certificates()?.first().map(|certificate| Fingerprint::of(certificate))
}

fn protocol() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE).max_buf_size(64 << 10);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(32 << 10)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(HEADER_DEADLINE);
    builder
}

/// The next connection, once there is room for it.
async fn next(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    end: &CancellationToken,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = tokio::select! {
        biased;
        () = end.cancelled() => return None,
        place = Arc::clone(room).acquire_owned() => place.ok()?,
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = end.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => return Some((stream, place)),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
