//! Runners: the tasks that run handlers which have a slot.
//!
//! Most handlers of a busy worker end at the first poll, and a Tokio task for each would cost more than they
//! do. So a *runner* takes them one after the other, and the last runner settles together what has ended. A
//! handler that awaits continues in a task of its own. A handler that blocks its thread does not delay the
//! others: while something is left to run, one more runner has been requested. If that one does not start, or
//! if no runner comes back to settle, the fetch loop requests another one.

use std::future::{Future, poll_fn};
use std::sync::{Arc, MutexGuard};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};

use crate::execute::decide;
use crate::runs::{QUICK, RunQueue, State};
use crate::settle::settle;
use crate::shared::Shared;
use crate::work::{Done, Work};

/// The largest number of settlements that wait to be made together.
const MAX_TOGETHER: usize = 64;
/// After this time, a requested runner is late: it may be queued on a thread that is blocked. The same holds
/// for a runner that should be back to settle: it may be blocking its own thread.
pub(crate) const LATE: Duration = Duration::from_millis(5);

/// What a runner does next.
#[allow(clippy::large_enum_variant, reason = "moved out of at once")]
enum Step {
    Run(Work),
    Settle(Vec<Done>),
    Nothing,
}

impl RunQueue {
    /// Adds work, and has it run. While something is left, the fetch loop calls this at least once per
    /// [`LATE`].
    pub(crate) fn add(&self, shared: &Arc<Shared>, work: impl IntoIterator<Item = Work>) {
        let mut state = self.lock();
        state.waiting.extend(work);
        state.requested_at = state.requested_at.filter(|requested| requested.elapsed() < LATE);
        let is_needed = state.is_left();
        request_runner(shared, state, is_needed);
    }

    /// Adds what has ended, and returns what is next. Running comes before settling while handlers are quick,
    /// and the last runner that comes back settles for all.
    fn next_step(&self, runner: &mut Runner, ended: Option<Done>, now: Instant, took: Duration) -> Step {
        let mut state = self.lock();
        state.out -= usize::from(std::mem::take(&mut runner.out));
        state.done.extend(ended);
        let continues = state.done.is_empty() || took < QUICK && state.done.len() < MAX_TOGETHER;
        let next = if continues { state.waiting.pop_front() } else { None };
        let step = match next {
            Some(work) => {
                runner.out = true;
                state.out += 1;
                Step::Run(work)
            }
            None if state.done.is_empty() || continues && state.is_expecting(now) => Step::Nothing,
            None => Step::Settle(std::mem::take(&mut state.done)),
        };
        state.turned = Some(now);
        let is_needed = !state.waiting.is_empty();
        request_runner(&runner.shared, state, is_needed);
        step
    }
}

/// Requests a runner if none is requested: the one that runs now may block its thread next.
fn request_runner(shared: &Arc<Shared>, mut state: MutexGuard<'_, State>, is_needed: bool) {
    if is_needed && state.requested_at.is_none() {
        state.requested_at = Some(Instant::now());
        drop(state);
        let runner = Runner { shared: shared.clone(), requested: true, out: false, ended: false };
        tokio::spawn(async move { runner.start().run(None).await });
    }
}

/// A Tokio task that runs waiting work, one piece after the other.
struct Runner {
    shared: Arc<Shared>,
    /// Whether it was requested and has not started yet.
    requested: bool,
    /// Whether it counts as running something.
    out: bool,
    ended: bool,
}

impl Runner {
    fn start(mut self) -> Self {
        self.shared.runs.lock().requested_at = None;
        self.requested = false;
        self
    }

    fn run(mut self, mut ended: Option<Done>) -> BoxFuture<'static, ()> {
        async move {
            let mut turned = Instant::now();
            loop {
                let took = turned.elapsed();
                turned += took;
                let shared = self.shared.clone();
                match shared.runs.next_step(&mut self, ended.take(), turned, took) {
                    Step::Run(work) => ended = start(&self.shared, work).await,
                    Step::Settle(done) => {
                        settle(&self.shared, done).await;
                        // That may have woken the fetch loop on this thread: no handler may block the thread
                        // first.
                        break;
                    }
                    Step::Nothing => break,
                }
                tokio::task::consume_budget().await;
            }
            self.end();
        }
        .boxed()
    }

    fn end(mut self) {
        self.ended = true;
    }
}

/// A runner that does not end normally was dropped with its runtime. Then no runner may be left to run the
/// waiting work, so the work is released. A runner that panics loses only its own task: the fetch loop
/// requests another one.
impl Drop for Runner {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.shared.runs.lock();
        if self.requested {
            state.requested_at = None;
        }
        state.out -= usize::from(self.out);
        if std::thread::panicking() {
            return;
        }
        let left = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.done));
        drop(state);
        drop(left);
    }
}

/// Starts a handler. Returns the work if the handler has ended already; otherwise it continues in a task of
/// its own.
async fn start(shared: &Arc<Shared>, work: Work) -> Option<Done> {
    let mut deciding = Box::pin(decide(shared.clone(), work));
    match poll_fn(|cx| Poll::Ready(deciding.as_mut().poll(cx))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => {
            let runner = Runner { shared: shared.clone(), requested: false, out: false, ended: false };
            spawn_for_any(async move {
                let done = deciding.await;
                runner.run(Some(done)).await;
            });
            None
        }
    }
}

/// Spawns a Tokio task that any thread may take up. A thread of Tokio keeps the task that it spawned last for
/// itself, and a handler may block that thread next.
fn spawn_for_any(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
    tokio::spawn(async {});
}
