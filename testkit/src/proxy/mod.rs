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

/// Listens on a free loopback port and hands all that comes on to another address.
///
/// It lives in the runtime in which it was started. Dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    orders: watch::Sender<Orders>,
    /// The latest version of the orders that whoever accepts connections obeys.
    obeyed: watch::Receiver<u64>,
    traffic: Arc<watch::Sender<Traffic>>,
    acceptor: AbortHandle,
}

impl Proxy {
    /// Starts a proxy in front of this address. Nothing needs to listen there yet; while nothing does, connections to the
    /// proxy are reset.
    ///
    /// # Errors
    /// If there is no free port.
    ///
    /// # Panics
    /// Outside of a runtime.
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

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes what is done to connections. When this returns, it holds for all that is connected or sent from then on.
    ///
    /// # Errors
    /// If the proxy cannot listen again after [`Fault::Refuse`]; it is then of no more use.
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

    /// Leads new connections elsewhere, as an address does that moves to another server in a fail-over. Those that are there
    /// stay where they are.
    pub fn redirect(&self, upstream: SocketAddr) {
        self.orders.send_modify(|orders| orders.upstream = upstream);
    }

    /// Closes the connections that are there. New ones are taken as before, and one over which nothing has come yet
    /// may count as new.
    pub fn cut_all(&self) {
        self.orders.send_modify(|orders| orders.cuts += 1);
    }

    /// Resets the connections that are there, as [`cut_all`](Self::cut_all) closes them.
    pub fn reset_all(&self) {
        self.orders.send_modify(|orders| orders.resets += 1);
    }

    /// What went through until now.
    pub fn traffic(&self) -> Traffic {
        *self.traffic.borrow()
    }

    /// Waits until what went through meets the condition, for instance until a reply was swallowed. Has no limit of its
    /// own: put it into a timeout.
    pub async fn traffic_when(&self, condition: impl FnMut(&Traffic) -> bool) -> Traffic {
        let mut traffic = self.traffic.subscribe();
        // It fails only if the sender is gone, which `self` holds.
        let met = traffic.wait_for(condition).await.map(|traffic| *traffic);
        met.unwrap_or_else(|_| self.traffic())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}
