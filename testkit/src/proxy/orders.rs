//! What a proxy should do to its connections, and what it counts.

use std::net::SocketAddr;
use std::time::Duration;

/// What a proxy does to all its connections, old and new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing: bytes pass.
    #[default]
    Pass,
    /// Bytes arrive this much later, in each direction. At most a mebibyte is under way in each direction at
    /// once.
    Delay(Duration),
    /// A black hole: connections are accepted and held, and nothing flows. Bytes sent in the meantime flow
    /// once this is over.
    Stall,
    /// Bytes in this direction end: their receiver sees the end of the stream, and further bytes are
    /// swallowed. The other direction continues. An affected connection stays like that when this is over.
    HalfClose(Direction),
    /// Connections are reset: the existing ones, and each new one.
    Reset,
    /// Each connection is closed in both directions once this many more bytes have passed in the given
    /// direction.
    CutAfter {
        /// The direction in which bytes count.
        direction: Direction,
        /// How many bytes pass, counted from now, or from the beginning of a connection that is made later.
        bytes: u64,
    },
    /// Requests pass, replies are swallowed.
    DropReplies,
    /// New connections are refused, as if nobody listened. Existing ones continue.
    Refuse,
}

/// The direction in which bytes flow.
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
    /// Connections that were accepted, including those that were reset at once.
    pub accepted: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Bytes that were forwarded to the server.
    pub to_server_bytes: u64,
    /// Bytes that were forwarded to the client.
    pub to_client_bytes: u64,
    /// Bytes that a fault swallowed, in both directions together.
    pub swallowed_bytes: u64,
}

impl Traffic {
    pub(super) fn passed(&mut self, direction: Direction, bytes: u64) {
        match direction {
            Direction::ToServer => self.to_server_bytes += bytes,
            Direction::ToClient => self.to_client_bytes += bytes,
        }
    }
}

/// What connections should do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Orders {
    /// Where new connections lead.
    pub(super) upstream: SocketAddr,
    pub(super) fault: Fault,
    /// Increases with each [`Proxy::set`](super::Proxy::set).
    pub(super) version: u64,
    /// Both increase with each call: a connection that was made at a lower number has to end.
    pub(super) cuts: u64,
    pub(super) resets: u64,
}

/// How a connection ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Close,
    Reset,
}

impl Orders {
    pub(super) fn new(upstream: SocketAddr) -> Self {
        Self { upstream, fault: Fault::default(), version: 0, cuts: 0, resets: 0 }
    }

    /// Whether a connection that was made under `born` has to end.
    pub(super) fn end(&self, born: &Self) -> Option<End> {
        if self.resets > born.resets || self.fault == Fault::Reset {
            Some(End::Reset)
        } else {
            (self.cuts > born.cuts).then_some(End::Close)
        }
    }
}
