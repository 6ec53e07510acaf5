//! A TCP proxy within this process that does to connections what networks do.

mod accept;
mod pump;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::error::{Doing, Result};
use crate::port::Port;

/// What a proxy does to all its connections, old and new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing: bytes pass.
    #[default]
    Pass,
    /// Bytes arrive this much later, each way. How many are under way at once is limited to a mebibyte each way.
    Delay(Duration),
    /// A black hole: connections are accepted and held, and nothing flows. What was sent flows once this is over.
    Stall,
    /// Bytes in this direction end: their receiver sees the end of the stream, and what is sent is swallowed. The other
    /// direction goes on. A connection stays so when this is over.
    HalfClose(Direction),
    /// Connections are reset: those that are there, and each new one.
    Reset,
    /// Each connection is closed, both ways, once this many more bytes have passed in the direction.
    CutAfter {
        /// Which bytes count.
        direction: Direction,
        /// How many pass, counted from now, or from the beginning of a connection that is made later.
        bytes: u64,
    },
    /// Requests pass, replies are swallowed.
    DropReplies,
    /// New connections are refused, as if nobody listened. Those that are there go on.
    Refuse,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What went through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Connections that were accepted, also those that were reset at once.
    pub accepted: u64,
    /// Connections that are there now.
    pub open: u64,
    /// Bytes that were handed on to the server.
    pub to_server_bytes: u64,
    /// Bytes that were handed on to the client.
    pub to_client_bytes: u64,
    /// Bytes that a fault swallowed, both ways together.
    pub swallowed_bytes: u64,
}

impl Traffic {
    fn passed(&mut self, direction: Direction, bytes: u64) {
        match direction {
            Direction::ToServer => self.to_server_bytes += bytes,
            Direction::ToClient => self.to_client_bytes += bytes,
        }
    }
}

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

/// What connections are to do.
#[derive(Debug, Clone, Copy)]
struct Orders {
    /// Where new connections lead.
    upstream: SocketAddr,
    fault: Fault,
    /// Rises with each [`Proxy::set`].
    version: u64,
    /// Rise with each call: a connection made at a lower number is to end.
    cuts: u64,
    resets: u64,
}

/// How a connection is to end before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Reset,
}

impl Orders {
    fn new(upstream: SocketAddr) -> Self {
        Self { upstream, fault: Fault::default(), version: 0, cuts: 0, resets: 0 }
    }

    /// Whether a connection that was made under `born` is to end.
    fn end(&self, born: &Self) -> Option<End> {
        if self.resets > born.resets || self.fault == Fault::Reset {
            Some(End::Reset)
        } else {
            (self.cuts > born.cuts).then_some(End::Close)
        }
    }
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

    /// Changes what is done to connections. When this answers, it holds for all that is connected or sent from then on.
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
