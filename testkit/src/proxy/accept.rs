//! Accepts connections, and refuses or resets them when ordered to.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::orders::{Direction, End, Fault, Orders, Traffic};
use super::pump::Pump;
use crate::port::Port;

/// Further connections wait in the system's queue.
const MAX_CONNECTIONS: usize = 4096;
/// How long the server may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Accepts a proxy's connections, which end with it.
pub(super) struct Acceptor {
    port: Port,
    listener: Option<TcpListener>,
    orders: watch::Receiver<Orders>,
    traffic: Arc<watch::Sender<Traffic>>,
}

impl Acceptor {
    pub(super) fn new(
        port: Port,
        orders: watch::Receiver<Orders>,
        traffic: Arc<watch::Sender<Traffic>>,
    ) -> io::Result<Self> {
        let listener = Some(port.listen()?);
        Ok(Self { port, listener, orders, traffic })
    }

    /// Runs until the proxy is dropped, or cannot listen. Announces which version of the orders it follows.
    pub(super) async fn run(mut self, obeying: watch::Sender<u64>) -> io::Result<()> {
        let mut connections = JoinSet::new();
        loop {
            let orders = *self.orders.borrow_and_update();
            if orders.fault == Fault::Refuse {
                self.listener = None;
            } else if self.listener.is_none() {
                self.listener = Some(self.port.listen()?);
            }
            obeying.send_replace(orders.version);
            tokio::select! {
                biased;
                changed = self.orders.changed() => changed.map_err(io::Error::other)?,
                Some(_) = connections.join_next() => {}
                client = accept(self.listener.as_ref()), if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(self.connection().run(client));
                }
            }
        }
    }

    fn connection(&self) -> Connection {
        let orders = self.orders.clone();
        let born = *orders.borrow();
        self.traffic.send_modify(|traffic| {
            traffic.accepted += 1;
            traffic.open += 1;
        });
        Connection { orders, born, traffic: Arc::clone(&self.traffic) }
    }
}

/// Accepts the next connection. An error means a connection that was gone before it could be accepted.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return pending().await };
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            // Perhaps the process is out of file handles: connections that end release some.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// One connection of a client.
struct Connection {
    orders: watch::Receiver<Orders>,
    born: Orders,
    traffic: Arc<watch::Sender<Traffic>>,
}

impl Connection {
    async fn run(mut self, mut client: TcpStream) {
        if let Err(end) = self.may_begin().await {
            return finish(end, &[client]);
        }
        let upstream = self.orders.borrow().upstream;
        let Ok(Ok(mut server)) = timeout(CONNECT_LIMIT, TcpStream::connect(upstream)).await else {
            return finish(End::Reset, &[client]);
        };
        // Small writes must not be held back to be sent together: only this proxy makes delays.
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
        }
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let pump = |direction| Pump::new(direction, self.orders.clone(), self.born, &self.traffic);
        let ended = tokio::try_join!(
            pump(Direction::ToServer).run(from_client, to_server),
            pump(Direction::ToClient).run(from_server, to_client),
        );
        if let Err(end) = ended {
            finish(end, &[client, server]);
        }
    }

    /// Holds the connection while nothing may flow.
    async fn may_begin(&mut self) -> Result<(), End> {
        loop {
            let orders = *self.orders.borrow_and_update();
            if let Some(end) = orders.end(&self.born) {
                return Err(end);
            }
            if orders.fault != Fault::Stall {
                return Ok(());
            }
            self.orders.changed().await.map_err(|_| End::Close)?;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.traffic.send_modify(|traffic| traffic.open -= 1);
    }
}

/// Dropping the streams closes them in an orderly way. For a reset, the system is told to discard unsent
/// bytes.
fn finish(end: End, streams: &[TcpStream]) {
    if end == End::Reset {
        for stream in streams {
            // This fails on a connection that is already gone.
            let _ = stream.set_zero_linger();
        }
    }
}
