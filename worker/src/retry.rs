//! When a failed task is tried again.

use std::time::Duration;

/// When a failed task is tried again: after c·2ⁿ, n being the number of failed attempts before this one, up to `max` times.
///
/// ```
/// use anyqueue_worker::Retry;
/// use std::time::Duration;
/// let retry = Retry::exponential(Duration::from_secs(20)).max(3).jitter(0.0);
/// let delays: Vec<_> = (0..4).map(|failed| retry.delay(failed)).collect();
/// let seconds = |s| Some(Duration::from_secs(s));
/// assert_eq!(delays, [seconds(20), seconds(40), seconds(80), None]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    base: Duration,
    max: u32,
    jitter: f64,
    cap: Duration,
}

impl Default for Retry {
    /// c = 20 s, 10 retries, ±10 %, at most 6 hours apart.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(20))
    }
}

impl Retry {
    /// Doubles from this delay on, with the rest as in the default.
    pub fn exponential(base: Duration) -> Self {
        Self { base, max: 10, jitter: 0.1, cap: Duration::from_hours(6) }
    }

    /// Never tries again.
    pub fn never() -> Self {
        Self::default().max(0)
    }

    /// How often a task is tried again; 0 is never. Default 10. A message's own
    /// [`max_retries`](anyqueue::TaskOptions::max_retries) goes before it.
    #[must_use]
    pub fn max(mut self, retries: u32) -> Self {
        self.max = retries;
        self
    }

    /// Each delay is changed at random by up to this share of it, so that what failed together does not come back together.
    /// From 0 to 1. Default 0.1.
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self
    }

    /// No delay is longer than this, jitter apart. Default 6 hours.
    #[must_use]
    pub fn cap(mut self, longest: Duration) -> Self {
        self.cap = longest;
        self
    }

    /// How often a task is tried again.
    pub fn retries(&self) -> u32 {
        self.max
    }

    /// The delay after a failure that `failed` failed attempts went before; `None` if the task is not tried again.
    pub fn delay(&self, failed: u32) -> Option<Duration> {
        (failed < self.max).then(|| self.spread(self.base.saturating_mul(1 << failed.min(31)).min(self.cap)))
    }

    fn spread(&self, delay: Duration) -> Duration {
        let factor = 1.0 + self.jitter * (2.0 * fastrand::f64() - 1.0);
        let room = || Duration::MAX.div_f64(factor.max(1.0) * 2.0);
        if self.jitter > 0.0 { delay.min(room()).mul_f64(factor) } else { delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap() {
        let retry =
            Retry::exponential(Duration::from_secs(20)).max(100).jitter(0.0).cap(Duration::from_mins(5));
        let seconds: Vec<_> = (0..7).map(|n| retry.delay(n).unwrap().as_secs()).collect();
        assert_eq!(seconds, [20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(retry.delay(99), Some(Duration::from_mins(5)));
        assert_eq!(retry.delay(100), None);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let retry = Retry::exponential(Duration::from_secs(100)).jitter(0.25);
        for _ in 0..1000 {
            let delay = retry.delay(0).unwrap();
            assert!((75.0..=125.0).contains(&delay.as_secs_f64()), "{delay:?}");
        }
    }

    #[test]
    fn the_longest_delays_have_room_for_jitter() {
        let retry = Retry::exponential(Duration::MAX).cap(Duration::MAX).jitter(1.0);
        assert!((0..1000).all(|_| retry.delay(3).is_some()));
    }

    #[test]
    fn zero_retries_are_none() {
        assert_eq!(Retry::never().delay(0), None);
    }
}
