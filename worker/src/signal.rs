//! The signals that ask a process to end.

use anyqueue::{Error, Result};

/// SIGTERM and SIGINT; Ctrl-C where there are no such signals.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

fn failed(error: std::io::Error) -> Error {
    Error::new(anyqueue::ErrorKind::Internal, "signals cannot be listened to").with_source(error)
}

impl Signals {
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        tokio::select! { _ = self.terminate.recv() => {}, _ = self.interrupt.recv() => {} }
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await.map_err(failed) {
            tracing::error!(%error, "the worker cannot be stopped by a signal");
            std::future::pending::<()>().await;
        }
    }
}

/// Ends at the first SIGTERM or SIGINT: for [`Worker::run_until`](crate::Worker::run_until) beside other reasons to end.
///
/// # Errors
/// If signals cannot be listened to.
pub async fn shutdown_signal() -> Result<()> {
    Signals::listen()?.next().await;
    Ok(())
}
