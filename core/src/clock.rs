//! Time as the library sees it: the real clock, or one that a test turns.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// A clock: monotonic time, time of day, and sleeping. Either the system's, or a [`ManualClock`]'s.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    source: Source,
    skew: Skew,
    /// What a test sets while the clock runs; it counts instead of `skew`.
    set: Option<watch::Receiver<Skew>>,
}

/// How far a time of day is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Skew {
    /// Not at all.
    #[default]
    None,
    /// It says a later time than it is.
    Ahead(Duration),
    /// It says an earlier time than it is.
    Behind(Duration),
}

/// Sets the time of day of a [`Clock`]: see [`Clock::settable`].
///
/// ```
/// use anyqueue::{Clock, Skew};
/// use std::time::Duration;
/// let hour = Duration::from_hours(1);
/// let (clock, setter) = Clock::system().settable();
/// let before = clock.wall();
/// setter.set(Skew::Ahead(hour));
/// assert!(clock.wall() >= before + hour);
/// ```
#[derive(Debug)]
pub struct ClockSetter(watch::Sender<Skew>);

impl ClockSetter {
    /// Sets the clock, and all its clones, so far off the right time. Monotonic time goes on as before.
    pub fn set(&self, skew: Skew) {
        self.0.send_replace(skew);
    }
}

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    Manual(Manual),
}

#[derive(Clone, Debug)]
struct Manual {
    start: Instant,
    wall_start: SystemTime,
    elapsed: watch::Receiver<Duration>,
}

impl Clock {
    /// The system's clock. In a tokio runtime whose clock is paused (`#[tokio::test(start_paused = true)]`) it is that one, so that a
    /// queue in memory, and a worker on it, go by the time that the test sees: leases, waits, delays and pauses take no real time.
    ///
    /// A paused clock jumps ahead while a backend does real I/O. So deadlines of calls to other backends than memory are over only when
    /// as much real time has passed, and the jump is held up for a tenth of a second, in which most answers come. What a server times
    /// itself (a lease that nobody renews, a delay) goes by its own clock. Tests of that need real time. So does a queue with an
    /// [`IoThread`](crate::IoThread), which has a clock of its own.
    pub fn system() -> Self {
        Self::default()
    }

    /// Monotonic time.
    pub fn now(&self) -> Instant {
        match &self.source {
            // Tokio's, which is the same unless it is paused: sleeps go by it too.
            Source::System => tokio::time::Instant::now().into_std(),
            Source::Manual(manual) => manual.start + *manual.elapsed.borrow(),
        }
    }

    /// Time of day.
    pub fn wall(&self) -> SystemTime {
        let right = match &self.source {
            Source::System => SystemTime::now(),
            Source::Manual(manual) => manual.wall_start + *manual.elapsed.borrow(),
        };
        let skew = self.set.as_ref().map_or(self.skew, |set| *set.borrow());
        let skewed = match skew {
            Skew::None => Some(right),
            Skew::Ahead(by) => right.checked_add(by),
            Skew::Behind(by) => right.checked_sub(by),
        };
        skewed.unwrap_or(right)
    }

    /// The same, with a time of day that is off: what a client has whose clock was set wrong. For tests.
    #[must_use]
    pub fn skewed(mut self, skew: Skew) -> Self {
        (self.skew, self.set) = (skew, None);
        self
    }

    /// The same, with a time of day that can be set while it runs, as an administrator does, or a time service. For tests.
    pub fn settable(mut self) -> (Self, ClockSetter) {
        let (setter, set) = watch::channel(self.skew);
        self.set = Some(set);
        (self, ClockSetter(setter))
    }

    /// Sleeps until the moment. Dropping the future is harmless. On a manual clock whose owner is gone it never ends.
    pub async fn sleep_until(&self, moment: Instant) {
        match &self.source {
            Source::System => tokio::time::sleep_until(moment.into()).await,
            Source::Manual(manual) => {
                let target = moment.saturating_duration_since(manual.start);
                let mut elapsed = manual.elapsed.clone();
                if elapsed.wait_for(|elapsed| *elapsed >= target).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Ends when the time for a call is over. For real I/O that is by real time as well: a clock of tokio's that is paused jumps ahead
    /// as soon as nobody but the server is at work.
    pub(crate) async fn deadline(&self, after: Duration, real_io: bool) {
        if !real_io || matches!(self.source, Source::Manual(_)) {
            return self.sleep(after).await;
        }
        let begun = Instant::now();
        loop {
            let _held_up = hold_up_jumps();
            self.sleep(after).await;
            if begun.elapsed() >= after {
                return;
            }
        }
    }

    /// Sleeps for a while, from now.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(far(self.now(), duration)).await;
    }
}

/// For how long, of real time, a paused clock is kept from jumping ahead. It is not forever: an adapter may itself sleep.
const HOLD_UP: Duration = Duration::from_millis(100);

/// If tokio's clock is paused, it does not jump before this is dropped, or [`HOLD_UP`] is over.
fn hold_up_jumps() -> Option<std::sync::mpsc::SyncSender<()>> {
    let now = tokio::time::Instant::now();
    // A clock that runs has moved on by now, or will at one of the next looks.
    let is_paused = (0..1000).all(|_| tokio::time::Instant::now() == now);
    if !is_paused || tokio::runtime::Handle::try_current().is_err() {
        return None;
    }
    let (let_go, held) = std::sync::mpsc::sync_channel(0);
    // It does not jump while something blocks.
    tokio::task::spawn_blocking(move || held.recv_timeout(HOLD_UP));
    Some(let_go)
}

/// Longer than anything lasts. What users give as [`Duration::MAX`] is taken for this, so that there is room to reckon.
pub(crate) const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);

/// `now + duration`, or a time too far off to matter where that cannot be expressed.
pub(crate) fn far(now: Instant, duration: Duration) -> Instant {
    now.checked_add(duration.min(CENTURY)).unwrap_or(now)
}

/// A clock that stands still until a test advances it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use anyqueue::ManualClock;
/// use std::time::Duration;
/// let manual = ManualClock::new();
/// let clock = manual.clock();
/// let before = clock.now();
/// manual.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now() - before, Duration::from_secs(3600));
/// # });
/// ```
#[derive(Debug)]
pub struct ManualClock {
    start: Instant,
    wall_start: SystemTime,
    elapsed: watch::Sender<Duration>,
}

impl ManualClock {
    /// A clock that stands at 2026-01-01 00:00 UTC.
    #[allow(clippy::new_without_default, reason = "clocks are made on purpose")]
    pub fn new() -> Self {
        let wall_start = SystemTime::UNIX_EPOCH + Duration::from_hours(20_454 * 24);
        Self { start: Instant::now(), wall_start, elapsed: watch::Sender::new(Duration::ZERO) }
    }

    /// A view of it to hand out.
    pub fn clock(&self) -> Clock {
        let (start, wall_start, elapsed) = (self.start, self.wall_start, self.elapsed.subscribe());
        Clock { source: Source::Manual(Manual { start, wall_start, elapsed }), skew: Skew::None, set: None }
    }

    /// Moves it forward, up to a century in all, and wakes those who slept until then.
    pub fn advance(&self, duration: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed = elapsed.saturating_add(duration).min(CENTURY));
    }
}
