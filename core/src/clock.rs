//! Time as the library sees it: the real clock, or one that a test controls.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// A clock: monotonic time, time of day, and sleeping. It is either the system's clock or that of a
/// [`ManualClock`].
#[derive(Clone, Debug, Default)]
pub struct Clock {
    source: Source,
    skew: Skew,
    /// Set by a test while the clock runs; takes precedence over `skew`.
    set: Option<watch::Receiver<Skew>>,
}

/// How far the time of day is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Skew {
    /// The clock is right.
    #[default]
    None,
    /// The clock is ahead by this much.
    Ahead(Duration),
    /// The clock is behind by this much.
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
    /// Sets how far the time of day of the clock, and of all its clones, is off. Monotonic time is not
    /// affected.
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
    /// Returns the system's clock. In a tokio runtime whose clock is paused
    /// (`#[tokio::test(start_paused = true)]`) this is tokio's clock, so that a queue in memory, and a worker
    /// on it, go by the time that the test sees: leases, waits, delays and pauses take no real time.
    ///
    /// A paused clock jumps ahead while a backend does real I/O. Therefore a call to any backend other than
    /// memory times out only once as much real time has passed, and the jump is held up for a tenth of a
    /// second, within which most calls return. What a server times itself (a lease that nobody renews, a
    /// delay) goes by the server's clock; tests of that need real time. So does a queue with an
    /// [`IoThread`](crate::IoThread), which has a clock of its own.
    pub fn system() -> Self {
        Self::default()
    }

    /// Returns the monotonic time.
    pub fn now(&self) -> Instant {
        match &self.source {
            // Tokio's clock, which is the same unless it is paused: sleeps go by it too.
            Source::System => tokio::time::Instant::now().into_std(),
            Source::Manual(manual) => manual.start + *manual.elapsed.borrow(),
        }
    }

    /// Returns the time of day.
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

    /// Returns this clock with a time of day that is off, like that of a client whose clock is wrong. For
    /// tests.
    #[must_use]
    pub fn skewed(mut self, skew: Skew) -> Self {
        (self.skew, self.set) = (skew, None);
        self
    }

    /// Returns this clock with a time of day that can be set while it runs, as an administrator or a time
    /// service does. For tests.
    pub fn settable(mut self) -> (Self, ClockSetter) {
        let (setter, set) = watch::channel(self.skew);
        self.set = Some(set);
        (self, ClockSetter(setter))
    }

    /// Sleeps until the given moment. Dropping the future is harmless. On a manual clock that has been
    /// dropped, this never ends.
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

    /// Ends when the time for a call is over. For real I/O that much real time must have passed as well: a
    /// paused tokio clock jumps ahead as soon as only the server is still working.
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

    /// Sleeps for this long.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(far(self.now(), duration)).await;
    }
}

/// How long, in real time, a paused clock is kept from jumping ahead. Not forever: an adapter may itself
/// sleep.
const HOLD_UP: Duration = Duration::from_millis(100);

/// If tokio's clock is paused, keeps it from jumping until the returned value is dropped or [`HOLD_UP`] is
/// over.
fn hold_up_jumps() -> Option<std::sync::mpsc::SyncSender<()>> {
    let now = tokio::time::Instant::now();
    // A running clock has moved on by now, or will have at one of the next looks.
    let is_paused = (0..1000).all(|_| tokio::time::Instant::now() == now);
    if !is_paused || tokio::runtime::Handle::try_current().is_err() {
        return None;
    }
    let (let_go, held) = std::sync::mpsc::sync_channel(0);
    // A paused clock does not jump while something blocks.
    tokio::task::spawn_blocking(move || held.recv_timeout(HOLD_UP));
    Some(let_go)
}

/// Longer than anything lasts. Long durations from users, such as [`Duration::MAX`], are cut to this, so that
/// calculations do not overflow.
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
    /// Creates a clock that stands at 2026-01-01 00:00 UTC.
    #[allow(clippy::new_without_default, reason = "clocks are made on purpose")]
    pub fn new() -> Self {
        let wall_start = SystemTime::UNIX_EPOCH + Duration::from_hours(20_454 * 24);
        Self { start: Instant::now(), wall_start, elapsed: watch::Sender::new(Duration::ZERO) }
    }

    /// Returns a [`Clock`] that shows this clock's time.
    pub fn clock(&self) -> Clock {
        let (start, wall_start, elapsed) = (self.start, self.wall_start, self.elapsed.subscribe());
        Clock { source: Source::Manual(Manual { start, wall_start, elapsed }), skew: Skew::None, set: None }
    }

    /// Moves the clock forward, up to a century in all, and wakes sleepers whose time has come.
    pub fn advance(&self, duration: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed = elapsed.saturating_add(duration).min(CENTURY));
    }
}
