//! Where a connection comes from, and who made it according to its certificate: known to all requests on it.

use std::net::IpAddr;
use std::task::{Context, Poll};

use anyqueue_control::tokens::Fingerprint;
use axum::Router;
use axum::http::Request;
use tower_service::Service;

/// The address of the other end: of the proxy, if there is one in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Serves all requests of one connection.
#[derive(Clone)]
pub(crate) struct Routed {
    pub(crate) router: Router,
    /// `None` if the client was gone at once.
    pub(crate) peer: Option<Peer>,
    /// The fingerprint of the certificate whose key the client proved to hold.
    pub(crate) certificate: Option<Fingerprint>,
}

impl<B> Service<Request<B>> for Routed
where
    Router: Service<Request<B>>,
{
    type Response = <Router as Service<Request<B>>>::Response;
    type Error = <Router as Service<Request<B>>>::Error;
    type Future = <Router as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.router.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(certificate) = self.certificate {
            request.extensions_mut().insert(certificate);
        }
        self.router.call(request)
    }
}
