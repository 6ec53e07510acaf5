//! A thread of core's own for I/O and heartbeats, and where a queue's work runs.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};

/// A small runtime on a thread of its own. Connections opened on it and the heartbeat of a
/// [`Queue`](crate::Queue) built with it go on while the application's executor is blocked, so that a handler that
/// computes for minutes without awaiting loses no lease. The price is a hop between threads for each call.
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
    /// Starts the thread. It ends when the last clone, and the last queue built with it, is gone.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start() -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::new(ErrorKind::Full, "no thread for I/O could be started").with_source(e)
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("anyqueue-io".to_owned())
            .spawn(move || {
                // The answer does not matter: the sender is dropped to stop the thread.
                let _ = runtime.block_on(stopped);
            })
            .map_err(failed)?;
        Ok(Self(Arc::new(Inner { handle, stop: Some(stop) })))
    }

    /// Runs a future on the thread: opening a storage there puts its connections there.
    ///
    /// # Errors
    /// [`Internal`](ErrorKind::Internal) if the future panicked.
    pub async fn run<F>(&self, future: F) -> Result<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.handle.spawn(future).await.map_err(|e| panicked().with_source(e))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.take();
    }
}

/// Where a queue's calls run: inline in the caller's task, or on the I/O thread.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    handle: Handle,
    io: Option<IoThread>,
}

impl Exec {
    pub(crate) fn new(io: Option<IoThread>) -> Result<Self> {
        let handle = match &io {
            Some(io) => io.0.handle.clone(),
            None => Handle::try_current().map_err(|e| {
                Error::invalid("make a Queue within a tokio runtime, or give it an IoThread").with_source(e)
            })?,
        };
        Ok(Self { handle, io })
    }

    /// Spawns a task; from any thread, also outside a runtime. If the runtime is gone the task is dropped.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(future);
    }

    /// Begins a future here and now; if it does not end at once it goes on in a task. Not for use in `Drop`.
    pub(crate) fn begin(&self, future: impl Future<Output = ()> + Send + 'static) {
        let mut future = Box::pin(future);
        let first = {
            // Timers and connections belong to the queue's runtime, whoever calls.
            let _runtime = self.handle.enter();
            let mut poll = || future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            // The timer of a runtime that has ended panics; dropped, the future tells whoever waits for it.
            std::panic::catch_unwind(AssertUnwindSafe(&mut poll))
        };
        if matches!(first, Ok(Poll::Pending)) {
            // Polled again there, with a waker that counts.
            self.handle.spawn(future);
        }
    }

    /// Runs a future to its end even if the answer is dropped meanwhile: what it holds then is dropped when it ends.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> ToItsEnd<T> {
        if self.io.is_some() {
            ToItsEnd(Running::Elsewhere(self.handle.spawn(future)))
        } else {
            ToItsEnd(Running::Here(Some(Box::pin(future)), self.handle.clone()))
        }
    }
}

/// A future that is carried through, also when it is dropped.
pub(crate) struct ToItsEnd<T: Send + 'static>(Running<T>);

enum Running<T> {
    Here(Option<Pin<Box<dyn Future<Output = T> + Send>>>, Handle),
    Elsewhere(tokio::task::JoinHandle<T>),
}

impl<T: Send + 'static> Future for ToItsEnd<T> {
    type Output = Result<T>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            Running::Here(slot, _) => {
                let Some(future) = slot else { return Poll::Ready(Err(panicked())) };
                let answer = ready!(future.as_mut().poll(cx));
                *slot = None;
                Poll::Ready(Ok(answer))
            }
            Running::Elsewhere(task) => {
                let answer = ready!(Pin::new(task).poll(cx));
                Poll::Ready(answer.map_err(|e| panicked().with_source(e)))
            }
        }
    }
}

impl<T: Send + 'static> Drop for ToItsEnd<T> {
    fn drop(&mut self) {
        if let Running::Here(slot, handle) = &mut self.0
            && let Some(future) = slot.take()
            && !std::thread::panicking()
        {
            handle.spawn(future);
        }
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Internal, "a call into the backend panicked, or its runtime is gone")
}
