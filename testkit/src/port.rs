//! A loopback port that stays reserved while nobody listens on it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 128;

/// A free port on 127.0.0.1.
///
/// Choosing a port and releasing it leaves a gap in which another process can get it, at the first start and
/// at each restart. So a socket that never listens stays bound to the port: the system then gives the port to
/// nobody else, while a server that sets `SO_REUSEADDR`, as servers do, can still bind it and listen.
#[derive(Debug)]
pub(crate) struct Port {
    addr: SocketAddr,
    _keeper: TcpSocket,
}

impl Port {
    pub(crate) fn reserve() -> io::Result<Self> {
        let keeper = TcpSocket::new_v4()?;
        // Without `SO_REUSEADDR`, so that it cannot get a port that somebody else keeps in the same way.
        keeper.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        keeper.set_reuseaddr(true)?;
        Ok(Self { addr: keeper.local_addr()?, _keeper: keeper })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Listens on the port, again if an earlier listener was dropped.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.addr)?;
        socket.listen(BACKLOG)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_reserved_port_refuses_until_somebody_listens() {
        let port = Port::reserve().unwrap();
        for _ in 0..2 {
            let refused = TcpStream::connect(port.addr()).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let listener = port.listen().unwrap();
            let (connected, accepted) = tokio::join!(TcpStream::connect(port.addr()), listener.accept());
            connected.unwrap();
            accepted.unwrap();
        }
    }

    #[test]
    fn a_reserved_port_is_given_to_nobody_else() {
        let ports: Vec<_> = (0..300).map(|_| Port::reserve().unwrap()).collect();
        let numbers: BTreeSet<_> = ports.iter().map(Port::addr).collect();
        assert_eq!(numbers.len(), ports.len());
        let plain = TcpSocket::new_v4().unwrap();
        let refused = plain.bind(ports[0].addr()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
