//! Where a queue's work runs, and what its callers get when that runtime has ended or is not being driven.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::io::IoThread;

/// Runs the tasks of a queue. For tests that decide themselves what runs next.
pub type Spawner = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// Where a queue's calls run: in the runtime in which it was built, or on its I/O thread. Callers in that
/// place make their calls themselves; for others they are made there, since connections and timers live no
/// longer than the runtime in which they were made.
#[derive(Clone)]
pub(crate) struct Exec(Arc<Inner>);

struct Inner {
    home: Home,
    ended: AtomicBool,
    clock: Clock,
    /// How long a caller elsewhere waits for a runtime that makes no progress.
    patience: Duration,
    /// A timer for callers outside any runtime, when the queue's runtime may stand still.
    timer: OnceLock<Option<IoThread>>,
}

enum Home {
    Runtime(Handle),
    Thread(IoThread),
    Given(Spawner),
}

impl Exec {
    pub(crate) fn new(
        io: Option<IoThread>,
        spawner: Option<Spawner>,
        clock: Clock,
        patience: Duration,
    ) -> Result<Self> {
        let home = match (spawner, io) {
            (Some(spawner), _) => Home::Given(spawner),
            (None, Some(io)) => Home::Thread(io),
            (None, None) => Home::Runtime(Handle::try_current().map_err(|e| {
                Error::invalid("create a Queue within a tokio runtime, or give it an IoThread").with_source(e)
            })?),
        };
        let (ended, timer) = (AtomicBool::new(false), OnceLock::new());
        Ok(Self(Arc::new(Inner { home, ended, clock, patience, timer })))
    }

    /// Notes that the runtime has ended and its tasks are gone.
    pub(crate) fn end(&self) {
        self.0.ended.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::SeqCst)
    }

    /// Spawns a task, from any thread, even outside a runtime and while panicking. If the queue's runtime has
    /// ended, the caller's runtime is used instead, though connections of the first may be useless there;
    /// without any runtime the task is dropped.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        match &self.0.home {
            Home::Given(spawner) => spawner(Box::pin(future)),
            Home::Thread(io) => {
                // The thread lives until this task has ended, whoever drops the queue meanwhile.
                let lives = io.clone();
                io.handle().spawn(async move {
                    future.await;
                    drop(lives);
                });
            }
            Home::Runtime(handle) if !self.has_ended() => drop(handle.spawn(future)),
            Home::Runtime(_) => {
                if let Ok(current) = Handle::try_current() {
                    current.spawn(future);
                }
            }
        }
    }

    /// Polls a future once here; if it is not done then, it goes on in a task. Not for use in `Drop`.
    pub(crate) fn begin(&self, future: impl Future<Output = ()> + Send + 'static) {
        let mut future = Box::pin(future);
        let first = {
            // Timers and connections belong to the queue's runtime, whoever calls.
            let _runtime = self.handle().map(Handle::enter);
            let mut poll = || future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            // The timer of a runtime that has ended panics; the dropped future then notifies whoever waits
            // for it.
            std::panic::catch_unwind(AssertUnwindSafe(&mut poll))
        };
        if matches!(first, Ok(Poll::Pending)) {
            // Polled again there, with a real waker.
            self.spawn(future);
        }
    }

    /// Runs a future to its end even if the returned future is dropped; its output is then dropped when it
    /// ends.
    ///
    /// # Errors
    /// As for [`answer`](Self::answer); the future runs to its end all the same.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: BoxFuture<'static, T>,
    ) -> impl Future<Output = Result<T>> + Send + use<T> {
        let exec = self.clone();
        async move {
            if exec.is_here() || exec.has_ended() {
                return Ok(ToItsEnd { future: Some(future), exec }.await);
            }
            let (say, mut told) = oneshot::channel();
            exec.spawn(async move {
                // The caller may be gone.
                let _ = say.send(future.await);
            });
            exec.answer(&mut told).await
        }
    }

    /// Makes a call that is dropped if its caller is.
    ///
    /// # Errors
    /// As for [`answer`](Self::answer); the call is then dropped.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        if self.is_here() {
            return Ok(call.await);
        }
        if self.has_ended() {
            // Without any runtime there are no timers, and no call is made without a deadline.
            return if Handle::try_current().is_ok() { Ok(call.await) } else { Err(runtime_ended()) };
        }
        let (mut say, mut told) = oneshot::channel();
        self.spawn(async move {
            let answer = tokio::select! {
                biased;
                () = say.closed() => return,
                answer = call => answer,
            };
            let _ = say.send(answer);
        });
        self.answer(&mut told).await
    }

    /// Waits for the result of a task of the queue. After a cancellation or an error, the result can still be
    /// waited for.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed) if the runtime has ended; [`TimedOut`](ErrorKind::TimedOut) if nobody
    /// drives it: its own timers stand still then, so the caller keeps the deadline.
    pub(crate) async fn answer<T>(&self, answer: &mut oneshot::Receiver<T>) -> Result<T> {
        if !self.may_stand_still() || self.is_here() {
            return answer.await.map_err(|_| self.lost_answer());
        }
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| self.lost_answer()),
            // Boxed: otherwise every awaited settlement would reserve room for what only few need.
            () = Box::pin(self.stands_still()) => Err(Error::new(
                ErrorKind::TimedOut,
                format!(
                    "nobody has driven the tokio runtime of this queue for {}: it was made in a current_thread runtime that is not \
                     in block_on; make the queue in this runtime, or give it an IoThread",
                    humantime::format_duration(self.0.patience)
                ),
            )),
        }
    }

    /// Ends when the queue's runtime has not run a task for a while.
    async fn stands_still(&self) {
        let half = self.0.patience / 2;
        loop {
            self.sleep(half).await;
            let (say, mut told) = oneshot::channel();
            self.spawn(async move {
                let _ = say.send(());
            });
            self.sleep(half).await;
            if told.try_recv().is_err() {
                return;
            }
        }
    }

    /// Sleeps wherever the caller is, even outside of any runtime.
    pub(crate) async fn sleep(&self, duration: Duration) {
        let clock = &self.0.clock;
        let handle = match &self.0.home {
            Home::Given(_) => return clock.sleep(duration).await,
            _ if Handle::try_current().is_ok() => return clock.sleep(duration).await,
            Home::Thread(io) => Some(io.handle()),
            Home::Runtime(handle) if !self.may_stand_still() => Some(handle),
            Home::Runtime(_) => {
                self.0.timer.get_or_init(|| IoThread::start().ok()).as_ref().map(IoThread::handle)
            }
        };
        let Some(handle) = handle else { return std::future::pending().await };
        let (mut say, slept) = oneshot::channel::<()>();
        let clock = clock.clone();
        handle.spawn(async move {
            tokio::select! { biased; () = clock.sleep(duration) => {}, () = say.closed() => {} }
        });
        let _ = slept.await;
    }

    /// Whether the queue's runtime makes progress only while the application is in its `block_on`.
    fn may_stand_still(&self) -> bool {
        matches!(&self.0.home, Home::Runtime(handle) if handle.runtime_flavor() == RuntimeFlavor::CurrentThread)
    }

    fn handle(&self) -> Option<&Handle> {
        match &self.0.home {
            Home::Runtime(handle) => Some(handle),
            Home::Thread(io) => Some(io.handle()),
            Home::Given(_) => None,
        }
    }

    fn is_here(&self) -> bool {
        let here = |home: &Handle| Handle::try_current().is_ok_and(|current| current.id() == home.id());
        self.handle().is_none_or(here)
    }

    /// The error for when the task that should have returned a result was dropped.
    fn lost_answer(&self) -> Error {
        let is_gone = |home: &Handle| {
            let probe = home.spawn(std::future::pending::<()>());
            let refused = probe.is_finished();
            probe.abort();
            refused
        };
        if self.has_ended() || self.handle().is_some_and(is_gone) {
            return runtime_ended();
        }
        Error::new(ErrorKind::Internal, "a task of the queue panicked")
    }
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec").field("has_ended", &self.has_ended()).finish_non_exhaustive()
    }
}

/// The error of a queue that outlived its runtime.
pub(crate) fn runtime_ended() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the tokio runtime that this queue was created in has ended: create a queue in each runtime, or give it an IoThread",
    )
}

/// A future that runs to its end even if it is dropped.
struct ToItsEnd<T: Send + 'static> {
    future: Option<BoxFuture<'static, T>>,
    exec: Exec,
}

impl<T: Send + 'static> Future for ToItsEnd<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out meanwhile: if it panics, it ends here and is not polled again.
        let Some(mut future) = self.future.take() else { return Poll::Pending };
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            self.future = Some(future);
        }
        Poll::Ready(ready!(polled))
    }
}

impl<T: Send + 'static> Drop for ToItsEnd<T> {
    /// Also runs while the caller's task panics: the future may carry what other tasks have handed over.
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.exec.spawn(async move { drop(future.await) });
        }
    }
}
