//! The tasks that run what has a slot.
//!
//! Most handlers of a busy worker end at once, and a task for each would cost more than they do. So *runners* take them one
//! after the other, and the last of them settles together what has ended. A handler that awaits goes on in a task of its own. One that
//! blocks its thread keeps nobody else waiting: as long as something is left to run, one more runner is on its way, and the fetch loop
//! sends for another if that one does not arrive, or if nobody comes back to settle.

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

/// The most settlements that wait for company.
const MOST_TOGETHER: usize = 64;
/// A runner that is sent for and has not begun after so long may be kept for a thread that is blocked, and one that should be back to
/// settle may block its own.
pub(crate) const LATE: Duration = Duration::from_millis(5);
/// What a runner does next.
#[allow(clippy::large_enum_variant, reason = "moved out of at once")]
enum Turn {
    Run(Work),
    Settle(Vec<Done>),
    Nothing,
}

impl RunQueue {
    /// Takes up what is to be run, and has it run. The fetch loop looks in at least once in [`LATE`], while something is left.
    pub(crate) fn add(&self, shared: &Arc<Shared>, work: impl IntoIterator<Item = Work>) {
        let mut state = self.lock();
        state.waiting.extend(work);
        state.sent_for = state.sent_for.filter(|sent_for| sent_for.elapsed() < LATE);
        let is_needed = state.is_left();
        send_for_runner(shared, state, is_needed);
    }

    /// Takes up what has ended, and returns what is next: running goes before settling, as long as that goes on quickly, and the
    /// last who comes back settles for all.
    fn turn(&self, runner: &mut Runner, ended: Option<Done>, now: Instant, took: Duration) -> Turn {
        let mut state = self.lock();
        state.out -= usize::from(std::mem::take(&mut runner.out));
        state.done.extend(ended);
        let goes_on = state.done.is_empty() || took < QUICK && state.done.len() < MOST_TOGETHER;
        let next = if goes_on { state.waiting.pop_front() } else { None };
        let turn = match next {
            Some(work) => {
                runner.out = true;
                state.out += 1;
                Turn::Run(work)
            }
            None if state.done.is_empty() || goes_on && state.is_expecting(now) => Turn::Nothing,
            None => Turn::Settle(std::mem::take(&mut state.done)),
        };
        state.turned = Some(now);
        let is_needed = !state.waiting.is_empty();
        send_for_runner(&runner.shared, state, is_needed);
        turn
    }
}

/// Whoever looks after what is left may block his thread next: another one is sent for, if none is on its way.
fn send_for_runner(shared: &Arc<Shared>, mut state: MutexGuard<'_, State>, is_needed: bool) {
    if is_needed && state.sent_for.is_none() {
        state.sent_for = Some(Instant::now());
        drop(state);
        let runner = Runner { shared: shared.clone(), sent_for: true, out: false, ended: false };
        tokio::spawn(async move { runner.arrive().run(None).await });
    }
}

/// A task that runs what waits, one after the other.
struct Runner {
    shared: Arc<Shared>,
    sent_for: bool,
    /// Whether it counts among those that have gone to run something.
    out: bool,
    ended: bool,
}

impl Runner {
    fn arrive(mut self) -> Self {
        self.shared.runs.lock().sent_for = None;
        self.sent_for = false;
        self
    }

    fn run(mut self, mut ended: Option<Done>) -> BoxFuture<'static, ()> {
        async move {
            let mut turned = Instant::now();
            loop {
                let took = turned.elapsed();
                turned += took;
                let shared = self.shared.clone();
                match shared.runs.turn(&mut self, ended.take(), turned, took) {
                    Turn::Run(work) => ended = begin(&self.shared, work).await,
                    Turn::Settle(done) => {
                        settle(&self.shared, done).await;
                        // That has woken the fetch loop, maybe on this thread: no handler may block it first.
                        break;
                    }
                    Turn::Nothing => break,
                }
                tokio::task::consume_budget().await;
            }
            self.leave();
        }
        .boxed()
    }

    fn leave(mut self) {
        self.ended = true;
    }
}

/// A runner that does not come to its end was dropped with its runtime: nobody may be left to run what waits, so that it is given
/// back. One that panics takes only its own task along: the fetch loop sends for another.
impl Drop for Runner {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.shared.runs.lock();
        if self.sent_for {
            state.sent_for = None;
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

/// Begins a task. Returns it if that was all; if not, it goes on in a task of its own.
async fn begin(shared: &Arc<Shared>, work: Work) -> Option<Done> {
    let mut deciding = Box::pin(decide(shared.clone(), work));
    match poll_fn(|cx| Poll::Ready(deciding.as_mut().poll(cx))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => {
            let runner = Runner { shared: shared.clone(), sent_for: false, out: false, ended: false };
            spawn_for_any(async move {
                let done = deciding.await;
                runner.run(Some(done)).await;
            });
            None
        }
    }
}

/// Spawns what any thread may take up: one of tokio's keeps for itself what it has spawned last, and a handler may block it next.
fn spawn_for_any(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
    tokio::spawn(async {});
}
