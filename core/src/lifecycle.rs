//! What every storage has, whatever else it can do: a name, capabilities, `init`, `check` and `close`.

use std::fmt;
use std::time::SystemTime;

use async_trait::async_trait;

use crate::capabilities::Capabilities;
use crate::error::Result;

/// What every storage has: a name, capabilities and a life cycle.
///
/// Obligations: no method retries (core does, by the error's [`RetryClass`](crate::RetryClass)); no method
/// blocks the executor's thread; every method ends in bounded time, even if the server is gone.
#[async_trait]
pub trait QueueStorage: fmt::Debug + Send + Sync + 'static {
    /// Returns the backend's name for errors, logs and tables, such as `"postgres"`.
    fn name(&self) -> &'static str;

    /// Returns what this storage offers, as configured and on this server. Known once the handle is open, and
    /// immutable.
    fn capabilities(&self) -> &Capabilities;

    /// Creates what the storage needs on the server, or checks that it exists. Idempotent, and safe when many
    /// processes do it at once.
    ///
    /// # Errors
    /// [`Incompatible`](crate::ErrorKind::Incompatible) if what exists is from a newer release or has
    /// different settings.
    async fn init(&self) -> Result<()>;

    /// Asks the server whether it can serve; never returns a remembered result. A server that is down is an
    /// error; once it is up again the result is `Ok`, without a new handle.
    ///
    /// # Errors
    /// If the server cannot serve; the error says why.
    async fn check(&self) -> Result<Health>;

    /// Closes the handle: ends waiting pulls (they return nothing or [`Closed`](crate::ErrorKind::Closed)),
    /// lets calls in flight finish, and frees connections. Leased messages come back as after a crash.
    /// Idempotent; every later call except `close` returns [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Errors
    /// If freeing the resources failed; the handle is closed all the same.
    async fn close(&self) -> Result<()>;
}

/// What a reachable server reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The server's (or library's) version.
    pub server_version: Option<String>,
    /// The server's time during the check, if the server tells it. Compare it with the caller's clock: points
    /// in time that callers give (`not_before`, `expires_at`) are off by the difference between the two.
    pub server_time: Option<SystemTime>,
    /// What an operator should look at, in full sentences; empty if all is well.
    pub warnings: Vec<String>,
}

impl Health {
    /// Creates the health of a server of this version that is well.
    pub fn of_version(version: impl Into<String>) -> Self {
        Self { server_version: Some(version.into()), ..Self::default() }
    }
}
