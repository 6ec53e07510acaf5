//! How a process learns that its supervisor has ended.

use std::io;

use tokio::sync::oneshot;

/// Waits until the supervisor of this process has ended, in whatever way: then its end of this process's
/// standard input is closed. This is for processes that a [`Supervisor`](super::Supervisor) has started. In
/// others it waits for the end of standard input, and discards everything read from it.
///
/// ```no_run
/// # async fn run(worker: anyqueue_worker::Worker) -> anyqueue::Result<()> {
/// let watch = worker.clone();
/// tokio::spawn(async move {
///     anyqueue_control::supervisor::supervisor_ended().await;
///     watch.shutdown();
/// });
/// let summary = worker.run().await?;
/// # Ok(()) }
/// ```
///
/// # Cancellation
/// Dropping the future leaves a thread that reads standard input.
pub async fn supervisor_ended() {
    let (ended, wait) = oneshot::channel();
    // On a thread of its own, since reading standard input blocks, and must not keep a runtime from ending.
    let read = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink()); // what cannot be read has ended too
        let _ = ended.send(()); // nobody may wait any more
    };
    let thread = std::thread::Builder::new().name("anyqueue-supervised".to_owned()).spawn(read);
    if let Err(error) = thread {
        tracing::warn!(%error, "this process will not notice when its supervisor ends");
        std::future::pending::<()>().await;
    }
    let _ = wait.await; // the thread sends before it ends
}
