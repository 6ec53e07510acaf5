//! Connections: as many as there is room for, and none that keeps its place by sending nothing, or by reading
//! nothing.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyqueue_control::tokens::Fingerprint;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConnection;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::first_bytes::FirstBytes;
use crate::peer::{Peer, Routed};
use crate::stall::Stall;
use crate::tls::Tls;

/// How long the headers of a request may take, and before them the TLS handshake, and the first bytes.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);
/// The interval of pings to clients of HTTP/2; a client that does not answer one is disconnected.
const PING_EVERY: Duration = Duration::from_secs(20);
/// The most concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 100;
/// The pause after the operating system refused a connection, for instance because no file descriptors are
/// left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long requests that are under way when the service ends may still take.
const DRAIN: Duration = Duration::from_secs(10);
/// How long a certificate is trusted that a client showed when it connected. After that the client has to
/// show it again, on another connection, where its validity is checked again.
const BELIEVED: Duration = Duration::from_hours(1);
/// How long requests that are under way at that moment may still take before they are cut off. Without this
/// limit a request that never ends, or a client that keeps sending requests, would be trusted forever.
const LAST_REQUESTS: Duration = Duration::from_mins(10);

/// How many clients are served, and how long they are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The most connections at once.
    pub(crate) most: usize,
    /// How long a client may read nothing while data is waiting for it, and how long a body may take.
    pub(crate) patience: Duration,
}

/// Serves until `end` fires; then requests under way may finish.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    room: Room,
    tls: Option<Tls>,
    end: CancellationToken,
) {
    let Room { most, patience } = room;
    let room = Arc::new(Semaphore::new(most));
    let open = TaskTracker::new();
    let talk =
        Arc::new(Talk { protocol: protocol(), router, acceptor: tls.as_ref().map(Tls::acceptor), patience });
    loop {
        let Some((stream, place)) = next(&listener, &room, &end).await else { break };
        let (talk, end) = (talk.clone(), end.clone());
        open.spawn(async move {
            talk.with(stream, &end).await;
            drop(place);
        });
    }
    drop(listener);
    open.close();
    if tokio::time::timeout(DRAIN, open.wait()).await.is_err() {
        tracing::warn!("requests are still under way; the service ends without them");
    }
}

/// Everything that is needed to serve a connection.
struct Talk {
    protocol: Builder<TokioExecutor>,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    patience: Duration,
}

impl Talk {
    async fn with(&self, stream: TcpStream, end: &CancellationToken) {
        // A long poll sends nothing meanwhile; a client that has gone away is noticed all the same.
        let _ = stream.set_nodelay(true);
        let peer = stream.peer_addr().ok().map(|address| Peer(address.ip().to_canonical()));
        let stream = Stall::new(stream, self.patience);
        let Some(acceptor) = &self.acceptor else { return self.over(stream, peer, None, end).await };
        let agreed = tokio::time::timeout(HEADER_DEADLINE.min(self.patience), acceptor.accept(stream));
        let agreed = tokio::select! {
            biased;
            // No request has been made yet: there is nothing to wait for.
            () = end.cancelled() => return,
            agreed = agreed => agreed,
        };
        match agreed {
            Ok(Ok(stream)) => {
                let certificate = shown(stream.get_ref().1);
                self.over(stream, peer, certificate, end).await;
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
        end: &CancellationToken,
    ) {
        let service = TowerToHyperService::new(Routed { router: self.router.clone(), peer, certificate });
        let stream = FirstBytes::new(stream, HEADER_DEADLINE.min(self.patience));
        let mut connection = pin!(self.protocol.serve_connection(TokioIo::new(stream), service).into_owned());
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = until_no_more(certificate.is_some(), end) => {
                // The client is notified, and requests under way may finish.
                connection.as_mut().graceful_shutdown();
                match certificate {
                    None => connection.await,
                    Some(_) => tokio::time::timeout(LAST_REQUESTS, connection).await.unwrap_or(Ok(())),
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

/// Waits until the connection may take no more requests: the service ends, or the certificate that was shown
/// on it is no longer trusted.
async fn until_no_more(has_certificate: bool, end: &CancellationToken) {
    if has_certificate {
        let _ = tokio::time::timeout(BELIEVED, end.cancelled()).await;
    } else {
        end.cancelled().await;
    }
}

/// The client's own certificate, which is the first; the others lead to its authority.
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

/// Accepts the next connection, once there is room for it.
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

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::{Instant, sleep};

    use super::*;

    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;

    /// Connects a client that has shown this certificate.
    fn client(certificate: Option<Fingerprint>) -> DuplexStream {
        let late = || async {
            sleep(BELIEVED + LAST_REQUESTS / 2).await;
            "late"
        };
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/late", get(late))
            .route("/never", get(std::future::pending::<()>));
        let talk = Talk { protocol: protocol(), router, acceptor: None, patience: HEADER_DEADLINE };
        let (client, server) = duplex(1 << 16);
        tokio::spawn(async move { talk.over(server, None, certificate, &CancellationToken::new()).await });
        client
    }

    fn certificate() -> Fingerprint {
        Fingerprint::of(b"shown")
    }

    async fn ask(client: &mut DuplexStream, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        // If the server has hung up, that is noticed when the answer is read.
        let _ = client.write_all(request.as_bytes()).await;
    }

    /// Asks again and again, for at most this long, and returns for how long there were answers.
    async fn answered(client: &mut DuplexStream, most: Duration) -> Duration {
        let begun = Instant::now();
        while begun.elapsed() < most {
            ask(client, "/").await;
            let mut answer = Vec::new();
            while !answer.ends_with(b"here") {
                if client.read_buf(&mut answer).await.unwrap() == 0 {
                    return begun.elapsed();
                }
            }
            sleep(HEADER_DEADLINE / 2).await;
        }
        begun.elapsed()
    }

    fn is_after(time: Duration, wanted: Duration) -> bool {
        (wanted..wanted + 2 * HEADER_DEADLINE).contains(&time)
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_has_to_be_shown_anew_once_it_was_believed_for_long_enough() {
        let time = answered(&mut client(Some(certificate())), 3 * BELIEVED).await;
        assert!(is_after(time, BELIEVED), "{time:?}");
        let time = answered(&mut client(None), 3 * BELIEVED).await;
        assert!(
            is_after(time, 3 * BELIEVED),
            "who brings a token with each request is asked no more: {time:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_then_is_answered_and_what_goes_on_for_good_is_cut() {
        let (mut late, mut never) = (client(Some(certificate())), client(Some(certificate())));
        let begun = Instant::now();
        ask(&mut late, "/late").await;
        ask(&mut never, "/never").await;
        let mut answer = String::new();
        late.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("late"), "{answer}");
        assert!(is_after(begun.elapsed(), BELIEVED + LAST_REQUESTS / 2), "{:?}", begun.elapsed());
        never.read_to_string(&mut answer).await.unwrap();
        assert!(is_after(begun.elapsed(), BELIEVED + LAST_REQUESTS), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_or_only_how_it_would_begin_is_cut_and_who_is_slow_to_ask_is_served() {
        for said in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r", "GET / HTTP/1.1\r\n"] {
            let (mut client, begun) = (client(None), Instant::now());
            for byte in said.as_bytes() {
                client.write_all(&[*byte]).await.unwrap();
                sleep(HEADER_DEADLINE / 100).await;
            }
            client.read_to_end(&mut Vec::new()).await.unwrap();
            assert!(is_after(begun.elapsed(), HEADER_DEADLINE), "{said:?}: {:?}", begun.elapsed());
        }
        let mut client = client(None);
        sleep(HEADER_DEADLINE / 2).await;
        assert!(answered(&mut client, 3 * HEADER_DEADLINE).await >= 3 * HEADER_DEADLINE);
    }

    async fn write_frame(client: &mut DuplexStream, kind: u8, flags: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).unwrap();
        let frame = [&[0, 0, length, kind, flags, 0, 0, 0, 0], payload].concat();
        client.write_all(&frame).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_of_http_2_is_told_to_go_away_then() {
        let mut client = client(Some(certificate()));
        let begun = Instant::now();
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        write_frame(&mut client, SETTINGS, 0, b"").await;
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
            client.read_exact(&mut payload).await.unwrap();
            match (head[3], head[4]) {
                (PING, 0) => write_frame(&mut client, PING, 1, &payload).await,
                (GOAWAY, _) => break,
                _ => {}
            }
        }
        assert!(is_after(begun.elapsed(), BELIEVED), "{:?}", begun.elapsed());
    }
}
