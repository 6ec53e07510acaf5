//! A TCP proxy within this process that does to connections what networks do.

mod accept;
mod orders;
mod pump;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use self::orders::{Direction, Fault, Traffic};

use self::orders::Orders;
use crate::error::{Doing, Result};
use crate::port::Port;

/// A proxy that listens on a free loopback port and forwards everything to another address.
///
/// It lives in the runtime in which it was started. Dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    orders: watch::Sender<Orders>,
    /// The latest version of the orders that the acceptor follows.
    obeyed: watch::Receiver<u64>,
    traffic: Arc<watch::Sender<Traffic>>,
    acceptor: AbortHandle,
}

impl Proxy {
    /// Starts a proxy in front of this address. Nothing needs to listen there yet; as long as nothing does,
    /// connections to the proxy are reset.
    ///
    /// # Errors
    /// If there is no free port.
    ///
    /// # Panics
    /// If called outside of a Tokio runtime.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        let port = Port::reserve().doing(|| "reserve a port".to_owned())?;
        let addr = port.addr();
        let (orders, receiver) = watch::channel(Orders::new(upstream));
        let (obeying, mut obeyed) = watch::channel(0);
        obeyed.mark_unchanged();
        let traffic = Arc::new(watch::Sender::new(Traffic::default()));
        let acceptor = accept::Acceptor::new(port, receiver, Arc::clone(&traffic));
        let acceptor = acceptor.doing(|| "listen on a port".to_owned())?;
        let acceptor = tokio::spawn(acceptor.run(obeying)).abort_handle();
        Ok(Self { addr, orders, obeyed, traffic, acceptor })
    }

    /// The address that the proxy listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes what is done to connections. Once this returns, the change applies to everything that is
    /// connected or sent from then on.
    ///
    /// # Errors
    /// If the proxy cannot listen again after [`Fault::Refuse`]; it is then no longer usable.
    pub async fn set(&self, fault: Fault) -> Result<()> {
        let mut version = 0;
        self.orders.send_modify(|orders| {
            orders.version += 1;
            orders.fault = fault;
            version = orders.version;
        });
        let mut obeyed = self.obeyed.clone();
        let obeyed = obeyed.wait_for(|obeyed| *obeyed >= version).await;
        obeyed.map(drop).map_err(io::Error::other).doing(|| "listen again".to_owned())
    }

    /// Leads new connections to another address, as an address that moves to another server does in a
    /// failover. Existing connections stay where they are.
    pub fn redirect(&self, upstream: SocketAddr) {
        self.orders.send_modify(|orders| orders.upstream = upstream);
    }

    /// Closes the existing connections. New ones are accepted as before, and a connection over which nothing
    /// has come yet may count as new.
    pub fn cut_all(&self) {
        self.orders.send_modify(|orders| orders.cuts += 1);
    }

    /// Resets the existing connections, as [`cut_all`](Self::cut_all) closes them.
    pub fn reset_all(&self) {
        self.orders.send_modify(|orders| orders.resets += 1);
    }

    /// The traffic so far.
    pub fn traffic(&self) -> Traffic {
        *self.traffic.borrow()
    }

    /// Waits until the traffic meets the condition, for instance until a reply was swallowed. It has no limit
    /// of its own, so put it into a timeout.
    pub async fn traffic_when(&self, condition: impl FnMut(&Traffic) -> bool) -> Traffic {
        let mut traffic = self.traffic.subscribe();
        // This fails only if the sender is gone, but `self` holds it.
        let met = traffic.wait_for(condition).await.map(|traffic| *traffic);
        met.unwrap_or_else(|_| self.traffic())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}
