//! A separate thread for I/O and heartbeats.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};

/// A small runtime on a thread of its own. Connections opened on it, and the heartbeat of a
/// [`Queue`](crate::Queue) built with it, keep going while the application's executor is blocked, so a
/// handler that computes for minutes without awaiting does not lose its lease. All calls of the queue are
/// made on this thread, wherever they come from: from any runtime, even one that ends before the queue does,
/// or from outside of tokio. The price is a hop between threads for each call.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use anyqueue::{IoThread, Queue};
/// let io = IoThread::start()?;
/// let storage = io.run(async { anyqueue_memory::MemoryQueue::new() }).await?;
/// let queue = Queue::builder(storage).io(&io).build()?;
/// # drop(queue);
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct IoThread(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
}

impl IoThread {
    /// Starts the thread. It ends once the last clone and the last queue built with it are gone and the calls
    /// in flight have ended.
    ///
    /// # Errors
    /// [`Full`](ErrorKind::Full) if the system cannot start another thread.
    pub fn start() -> Result<Self> {
        Self::start_on(std::thread::Builder::new().name("anyqueue-io".to_owned()))
    }

    fn start_on(thread: std::thread::Builder) -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::new(
                ErrorKind::Full,
                "no thread for I/O could be started: the system has no room for one now",
            )
            .with_source(e)
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let driven = Driven(Some(runtime));
        thread.spawn(move || driven.until(stopped)).map_err(failed)?;
        Ok(Self(Arc::new(Inner { handle, stop: Some(stop) })))
    }

    /// Runs a future on the thread. A storage opened this way has its connections there.
    ///
    /// # Errors
    /// [`Internal`](ErrorKind::Internal) if the future panicked.
    ///
    /// # Cancellation
    /// Dropping the returned future does not stop the future on the thread, which does not keep the thread
    /// alive either.
    pub async fn run<F>(&self, future: F) -> Result<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.handle.spawn(future).await.map_err(|e| {
            Error::new(ErrorKind::Internal, "what was run on the I/O thread panicked").with_source(e)
        })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0.handle
    }
}

/// A runtime that can be dropped where nothing may block, such as in the caller's own runtime when no thread
/// could be started.
struct Driven(Option<Runtime>);

impl Driven {
    fn until(self, stopped: oneshot::Receiver<()>) {
        if let Some(runtime) = &self.0 {
            // The result does not matter: dropping the sender stops the thread.
            let _ = runtime.block_on(stopped);
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn where_there_is_no_thread_to_be_had_it_says_so() {
        // No address space has room for a stack of this size.
        let error = IoThread::start_on(std::thread::Builder::new().stack_size(1 << 60)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full);
    }
}
