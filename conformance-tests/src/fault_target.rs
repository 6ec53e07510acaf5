//! The server that belongs to one fault case, and what can be done to it.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::Result;
use anyqueue::adapter::{Storage, async_trait};

/// A server that belongs to one case, reached through connections that can be disrupted. Dropping this stops
/// the server.
///
/// With the private servers and the proxy of `anyqueue-testkit`, an implementation takes a few lines.
#[async_trait]
pub trait FaultTarget: Send + Sync {
    /// Opens an independent client of the storage called `namespace` on this server.
    ///
    /// # Errors
    /// Returns an error if the storage cannot be opened; the case then fails.
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>>;

    /// Causes the disruption, and returns once it is in effect.
    ///
    /// # Errors
    /// Returns an error if that fails; the case is then inconclusive.
    async fn disrupt(&self, disruption: Disruption) -> Result<()>;
}

/// What can happen to a server, and to the connections to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disruption {
    /// The server dies at once, as by `kill -9`, and stays down.
    Kill,
    /// The server starts again with the same data, at the same address. Complete when it accepts connections.
    Start,
    /// The server is suspended, as by SIGSTOP: connections stay open, nothing is answered.
    Freeze,
    /// A frozen server continues.
    Thaw,
    /// All connections break at once. New ones are accepted.
    Cut,
    /// Nothing gets through in either direction, and no connection breaks.
    Stall,
    /// Requests get through, but their replies never do.
    DropReplies,
    /// Data takes this much longer in each direction.
    Delay(Duration),
    /// Ends `Stall`, `DropReplies` and `Delay` for new connections. What was lost stays lost.
    Heal,
}

/// How the note of a disruption begins.
pub(crate) const DISRUPTED: &str = "the server: ";

/// Returns the note of the server's death.
pub(crate) fn killed() -> String {
    format!("{DISRUPTED}{:?}", Disruption::Kill)
}
