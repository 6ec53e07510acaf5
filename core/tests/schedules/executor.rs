//! An executor of one thread that a seed rules: of the tasks that are ready, it says which is polled next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use anyqueue::ManualClock;
use anyqueue::adapter::Spawner;
use fastrand::Rng;
use futures_util::future::BoxFuture;

/// Time passes by this much…
const TICK: Duration = Duration::from_micros(10);
/// …each time that so many turns were passed.
const PASSES_OF_A_TICK: u64 = 4;
/// No schedule needs more, unless something spins.
const MOST_POLLS: u64 = 400_000;

type Ready = Arc<Mutex<BTreeSet<usize>>>;
type Spawned = Arc<Mutex<Vec<(&'static str, BoxFuture<'static, ()>)>>>;

/// Whom the choice favours.
#[derive(Clone, Copy)]
enum Taste {
    Nobody,
    Newest,
    Oldest,
    /// Everybody but this one of each dozen.
    AllBut(usize),
}

pub(crate) struct Executor {
    tasks: BTreeMap<usize, (&'static str, BoxFuture<'static, ()>)>,
    ready: Ready,
    spawned: Spawned,
    next: usize,
    rng: Rng,
    taste: Taste,
    clock: Arc<ManualClock>,
    polls: u64,
    passes: u64,
    /// What was chosen so far, as one number.
    trace: u64,
}

/// Wakes may come in any order: what is ready is a set.
struct Wakes(usize, Ready);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().insert(self.0);
    }
}

/// Spawns tasks that the test knows by name.
#[derive(Clone)]
pub(crate) struct Spawns(Spawned);

impl Spawns {
    pub(crate) fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().unwrap().push((name, Box::pin(task)));
    }
}

impl Executor {
    pub(crate) fn new(seed: u64, clock: Arc<ManualClock>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let taste = match rng.u8(..6) {
            0 => Taste::Newest,
            1 => Taste::Oldest,
            2 | 3 => Taste::AllBut(rng.usize(..12)),
            _ => Taste::Nobody,
        };
        let (tasks, ready, spawned) = Default::default();
        Self { tasks, ready, spawned, next: 0, rng, taste, clock, polls: 0, passes: 0, trace: 0 }
    }

    pub(crate) fn spawns(&self) -> Spawns {
        Spawns(self.spawned.clone())
    }

    /// For the tasks of the queue itself.
    pub(crate) fn spawner(&self) -> Spawner {
        let spawned = self.spawned.clone();
        Arc::new(move |task| spawned.lock().unwrap().push(("core", task)))
    }

    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    /// The names of the tasks that have not ended.
    pub(crate) fn alive(&self) -> Vec<&'static str> {
        self.tasks.values().map(|(name, _)| *name).collect()
    }

    /// Polls what is ready until nothing is.
    pub(crate) fn run_until_idle(&mut self) {
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        for task in std::mem::take(&mut *self.spawned.lock().unwrap()) {
            self.tasks.insert(self.next, task);
            self.ready.lock().unwrap().insert(self.next);
            self.next += 1;
        }
        let Some(id) = self.choose() else { return false };
        let waker = Waker::from(Arc::new(Wakes(id, self.ready.clone())));
        let Some((_, task)) = self.tasks.get_mut(&id) else { return true };
        self.trace = (self.trace ^ id as u64).wrapping_mul(0x0100_0000_01b3).rotate_left(7);
        if task.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
            self.tasks.remove(&id);
        }
        self.polls += 1;
        assert!(self.polls < MOST_POLLS, "something spins; alive: {:?}", self.alive());
        // Only turns that were passed count: those whom a tick wakes must not make the next one.
        self.passes += u64::from(self.ready.lock().unwrap().contains(&id));
        if self.passes == PASSES_OF_A_TICK {
            self.passes = 0;
            self.clock.advance(TICK);
        }
        true
    }

    fn choose(&mut self) -> Option<usize> {
        let mut ready = self.ready.lock().unwrap();
        let favoured: Vec<usize> = match self.taste {
            Taste::Nobody => Vec::new(),
            Taste::Newest => ready.last().copied().into_iter().collect(),
            Taste::Oldest => ready.first().copied().into_iter().collect(),
            Taste::AllBut(one) => ready.iter().copied().filter(|id| id % 12 != one).collect(),
        };
        let of: Vec<usize> = if favoured.is_empty() || self.rng.u8(..16) < 4 {
            ready.iter().copied().collect()
        } else {
            favoured
        };
        let id = self.rng.choice(of)?;
        ready.remove(&id);
        Some(id)
    }
}

/// Lets others go first.
pub(crate) async fn pass() {
    let mut passed = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut passed, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls a future so many times, then drops it.
pub(crate) async fn cut<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        let Some(less) = left.checked_sub(1) else { return Poll::Ready(None) };
        left = less;
        match future.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => {
                if left == 0 {
                    cx.waker().wake_by_ref(); // dropped in a turn of its own
                }
                Poll::Pending
            }
        }
    })
    .await
}
