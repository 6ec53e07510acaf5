//! Work that has a slot and waits to run, and work that has run and waits to be settled.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::work::{Done, Work};

/// A runner that needs longer than this for a task settles it before it starts another one, so that no
/// settlement waits long for others.
pub(crate) const QUICK: Duration = Duration::from_micros(100);

/// The work that is left. It is never longer than the number of slots: each entry holds a slot.
#[derive(Default)]
pub(crate) struct RunQueue(Mutex<State>);

#[derive(Default)]
pub(crate) struct State {
    pub(crate) waiting: VecDeque<Work>,
    pub(crate) done: Vec<Done>,
    /// How many runners are running something.
    pub(crate) out: usize,
    /// When a runner last asked for more work.
    pub(crate) turned: Option<Instant>,
    /// When a runner was requested that has not started yet.
    pub(crate) requested_at: Option<Instant>,
}

impl State {
    pub(crate) fn is_left(&self) -> bool {
        !self.waiting.is_empty() || !self.done.is_empty()
    }

    /// Whether a runner will be back in a moment, which can then settle everything that has ended.
    pub(crate) fn is_expecting(&self, now: Instant) -> bool {
        self.out > 0 && self.turned.is_some_and(|turned| now.saturating_duration_since(turned) < QUICK)
    }
}

impl RunQueue {
    /// Whether something waits to be run or settled, or will when a runner comes back.
    pub(crate) fn is_left(&self) -> bool {
        let state = self.lock();
        state.is_left() || state.out > 0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
