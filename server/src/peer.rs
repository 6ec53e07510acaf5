//! Where a connection comes from, known to all requests on it.

use std::net::IpAddr;
use std::task::{Context, Poll};

use axum::Router;
use axum::http::Request;
use tower_service::Service;

/// The address of whoever is at the other end: of a proxy, if there is one between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// All requests of one connection.
#[derive(Clone)]
pub(crate) struct Routed {
    pub(crate) router: Router,
    /// Unknown if it was gone at once.
    pub(crate) peer: Option<Peer>,
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
        self.router.call(request)
    }
}
