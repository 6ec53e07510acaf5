//! What every storage has, whatever else it can do: a name, capabilities, and a beginning and an end.

use std::fmt;
use std::time::SystemTime;

use async_trait::async_trait;

use crate::capabilities::Capabilities;
use crate::error::Result;

/// What every storage has: a name, capabilities and a life cycle.
///
/// Obligations: no method retries (core does, by the error's [`RetryClass`](crate::RetryClass)); none blocks the executor's
/// thread; each ends in bounded time even if the server is gone.
#[async_trait]
pub trait QueueStorage: fmt::Debug + Send + Sync + 'static {
    /// The backend's name in errors, logs and tables: `"postgres"`.
    fn name(&self) -> &'static str;

    /// What this storage gives, as configured and on this server. Known once the handle is open, and immutable.
    fn capabilities(&self) -> &Capabilities;

    /// Creates what it needs on the server, or checks that it is there. Idempotent, and safe when many processes do it
    /// at once.
    ///
    /// # Errors
    /// [`Incompatible`](crate::ErrorKind::Incompatible) if what is there is from a newer release or differs in its settings.
    async fn init(&self) -> Result<()>;

    /// Asks the server now; never returns from a remembered flag. Down is an error, up again is `Ok` without a new handle.
    ///
    /// # Errors
    /// Says why the server cannot serve.
    async fn check(&self) -> Result<Health>;

    /// Ends waiting pulls (they return nothing or [`Closed`](crate::ErrorKind::Closed)), lets calls in flight finish, frees
    /// connections. What was leased comes back as after a crash. Idempotent; every later call except `close` returns
    /// [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Errors
    /// If letting go failed; the handle is closed all the same.
    async fn close(&self) -> Result<()>;
}

/// What a reachable server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The server's (or library's) version.
    pub server_version: Option<String>,
    /// The server's clock while it was checked, where the server shows it. It is compared with the caller's: points in time that callers give
    /// (`not_before`, `expires_at`) are off by as much as the clocks are.
    pub server_time: Option<SystemTime>,
    /// What an operator should look at, in full sentences; empty when all is well.
    pub warnings: Vec<String>,
}

impl Health {
    /// Healthy, on a server of this version.
    pub fn of_version(version: impl Into<String>) -> Self {
        Self { server_version: Some(version.into()), ..Self::default() }
    }
}
