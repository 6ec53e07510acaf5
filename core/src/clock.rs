//! Time as the library sees it: the real clock, or one that a test turns.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// A clock: monotonic time, time of day, and sleeping. Either the system's, or a [`ManualClock`]'s.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

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
    /// The system's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// Monotonic time.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System => Instant::now(),
            Source::Manual(manual) => manual.start + *manual.elapsed.borrow(),
        }
    }

    /// Time of day.
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            Source::System => SystemTime::now(),
            Source::Manual(manual) => manual.wall_start + *manual.elapsed.borrow(),
        }
    }

    /// Sleeps until the moment. Dropping the future is harmless. On a manual clock whose owner is gone it never ends.
    pub async fn sleep_until(&self, moment: Instant) {
        match &self.0 {
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

    /// Sleeps for a while, from now.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(far(self.now(), duration)).await;
    }
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
        Clock(Source::Manual(Manual {
            start: self.start,
            wall_start: self.wall_start,
            elapsed: self.elapsed.subscribe(),
        }))
    }

    /// Moves it forward, up to a century in all, and wakes those who slept until then.
    pub fn advance(&self, duration: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed = elapsed.saturating_add(duration).min(CENTURY));
    }
}
