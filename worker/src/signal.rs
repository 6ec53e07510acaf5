//! The signals that ask a process to end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use anyqueue::{Error, Result};

/// SIGTERM and SIGINT; Ctrl-C where there are no such signals.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

fn failed(error: std::io::Error) -> Error {
    Error::new(anyqueue::ErrorKind::Internal, "cannot listen to signals").with_source(error)
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

    /// Waits for the next signal, and returns its number.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! { _ = self.terminate.recv() => SIGTERM, _ = self.interrupt.recv() => SIGINT }
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) -> i32 {
        if let Err(error) = tokio::signal::ctrl_c().await.map_err(failed) {
            tracing::error!(%error, "no signal can stop the worker");
            std::future::pending::<()>().await;
        }
        SIGINT
    }
}

/// The numbers that POSIX gives to the signals, and what a shell adds to the number for the status of a
/// process that a signal ended.
#[cfg(unix)]
const SIGTERM: i32 = 15;
const SIGINT: i32 = 2;
const ENDED_BY: i32 = 128;

/// The number of runs in this process that listen to signals now.
static LISTENING: AtomicUsize = AtomicUsize::new(0);
/// Whether a signal ends the process if no run listens to signals.
static EXIT_ON_SIGNAL: AtomicBool = AtomicBool::new(false);

/// A run that listens to signals.
pub(crate) struct Listening(());

impl Listening {
    pub(crate) fn begin() -> Self {
        LISTENING.fetch_add(1, SeqCst);
        Self(())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENING.fetch_sub(1, SeqCst);
    }
}

/// Makes signals end the process again. Once Tokio listens to a signal, it disables the signal's default
/// action forever, and handlers that block keep the runtime from ending. While another run listens, a signal
/// belongs to that run.
pub(crate) async fn exit_on_next_signal() {
    if EXIT_ON_SIGNAL.swap(true, SeqCst) {
        return;
    }
    let (ready, listening) = tokio::sync::oneshot::channel();
    // On a thread of its own: all threads of the application's runtime may be blocked.
    let watch = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async move {
            let Ok(mut signals) = Signals::listen() else { return };
            let _ = ready.send(()); // the caller may be gone
            loop {
                let signal = signals.next().await;
                if LISTENING.load(SeqCst) == 0 {
                    std::process::exit(ENDED_BY + signal);
                }
            }
        });
    };
    let thread = std::thread::Builder::new().name("anyqueue-signals".to_owned()).spawn(watch);
    if thread.is_err() || listening.await.is_err() {
        EXIT_ON_SIGNAL.store(false, SeqCst);
        tracing::warn!("cannot listen to signals any more: only SIGKILL may end this process now");
    }
}

/// Waits for SIGTERM or SIGINT. Combine it with other reasons to stop in
/// [`Worker::run_until`](crate::Worker::run_until).
///
/// ```
/// # use anyqueue_worker::{Summary, Worker, shutdown_signal};
/// async fn run(worker: Worker, stop: tokio::sync::oneshot::Receiver<()>) -> anyqueue::Result<Summary> {
///     let shutdown = async {
///         tokio::select! { _ = shutdown_signal() => {}, _ = stop => {} }
///     };
///     worker.run_until(shutdown).await
/// }
/// ```
///
/// # Errors
/// If the process cannot listen to signals.
pub async fn shutdown_signal() -> Result<()> {
    Signals::listen()?.next().await;
    Ok(())
}
