//! What fault cases need: a server of their own, which they may harm.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::Result;
use anyqueue::adapter::{Storage, async_trait};

/// A server that one case has to itself, reached through connections that can be disturbed. It is gone when this is dropped.
///
/// `anyqueue-testkit` has private servers and a proxy from which one is made in a few lines.
#[async_trait]
pub trait Victim: Send + Sync {
    /// An independent client of the storage called `namespace` on this server.
    ///
    /// # Errors
    /// If the storage cannot be opened; the case then fails.
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>>;

    /// Brings it about, and returns once it is so.
    ///
    /// # Errors
    /// If it cannot be brought about; the case is then inconclusive.
    async fn harm(&self, harm: Harm) -> Result<()>;
}

/// What can happen to a server and to the connections to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Harm {
    /// The server ends at once, as by `kill -9`, and stays down.
    Kill,
    /// The server is started again on the same data and address. Done when it accepts connections.
    Start,
    /// The server stops as it stands, as by SIGSTOP: connections stay open, nothing is answered.
    Freeze,
    /// A frozen server goes on.
    Thaw,
    /// All connections end at once. New ones are welcome.
    Cut,
    /// Nothing gets through in either direction, and nobody is told.
    Stall,
    /// Requests get through, their answers never do.
    Mute,
    /// Each direction takes this much longer.
    Delay(Duration),
    /// Ends `Stall`, `Mute` and `Delay` for new connections. What was lost stays lost.
    Heal,
}

/// What the note of a harm begins with.
pub(crate) const HARMED: &str = "the server: ";

/// The note of the server's death.
pub(crate) fn killed() -> String {
    format!("{HARMED}{:?}", Harm::Kill)
}
