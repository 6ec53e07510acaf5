//! When a failed task is retried.

use std::time::Duration;

/// When a failed task is retried: after c·2ⁿ, where n is the number of failed attempts before this one, up to
/// `max` times.
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
#[must_use = "give it to a worker, a partition or a kind"]
pub struct Retry {
    base: Duration,
    max: u32,
    jitter: f64,
    cap: Duration,
    as_new_message: bool,
}

impl Default for Retry {
    /// c = 20 s, 10 retries, ±10 %, at most 6 hours apart.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(20))
    }
}

impl Retry {
    /// Starts with this delay and doubles it each time. All else is as in the default.
    pub fn exponential(base: Duration) -> Self {
        Self { base, max: 10, jitter: 0.1, cap: Duration::from_hours(6), as_new_message: false }
    }

    /// Never retries.
    pub fn never() -> Self {
        Self::default().max(0)
    }

    /// Sets how often a task is retried; 0 means never. The message's
    /// [`max_retries`](anyqueue::TaskOptions::max_retries) overrides it. Default: 10.
    pub fn max(mut self, retries: u32) -> Self {
        self.max = retries;
        self
    }

    /// Sets by how much a delay varies at random, as a share of it from 0 to 1, so that tasks that failed
    /// together do not come back together. Default: 0.1.
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self
    }

    /// Sets the longest delay, before jitter. Default: 6 hours.
    pub fn cap(mut self, longest: Duration) -> Self {
        self.cap = longest;
        self
    }

    /// Makes each retry a message of its own, with a new id, stored in one step with the end of the failed
    /// message (see [`Capabilities::successors`](anyqueue::adapter::Capabilities::successors)). Its header
    /// [`task-retry-of`](crate::header::RETRY_OF) has the id of the first message. By default the message
    /// itself is postponed, and keeps its id.
    ///
    /// This is for queues that cannot postpone a message together with its attempts (SQS FIFO), and for
    /// queues whose messages should not grow old. In a group, the retry goes to the end of the group. If the
    /// backend cannot delay a push, the retry comes at once.
    pub fn as_new_message(mut self) -> Self {
        self.as_new_message = true;
        self
    }

    pub(crate) fn is_as_new_message(&self) -> bool {
        self.as_new_message
    }

    /// How often a task is retried.
    pub fn retries(&self) -> u32 {
        self.max
    }

    /// The delay before the next retry, where `failed` is the number of attempts that had failed before the
    /// last one; `None` if there is no retry.
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
