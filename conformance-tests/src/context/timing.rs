//! Every duration that a case uses, derived from what the backend declares.

use std::sync::LazyLock;
use std::time::Duration;

use anyqueue::adapter::Capabilities;

/// How late a busy machine may be, unless the environment says otherwise.
const SCHEDULING: Duration = Duration::from_secs(2);

/// Returns how late the machine may run due work: it is added to every upper bound, and to no lower one. Two
/// seconds, or as many as the environment variable `ANYQUEUE_CONFORMANCE_SCHEDULING` says.
///
/// This belongs to the machine, not to the backend: it is the same for all cases and children of a process.
#[must_use]
pub fn scheduling() -> Duration {
    static SECONDS: LazyLock<Option<u32>> =
        LazyLock::new(|| std::env::var("ANYQUEUE_CONFORMANCE_SCHEDULING").ok()?.parse().ok());
    SECONDS.map_or(SCHEDULING, |seconds| Duration::from_secs(seconds.into()))
}

/// How much earlier than promised a timed event may be seen, because clocks count in whole milliseconds.
pub(crate) const CLOCK_GRAIN: Duration = Duration::from_millis(2);

/// Added to every wait for something that must not come.
const NEGATIVE_MARGIN: Duration = Duration::from_millis(200);

const SHORT_LEASE: Duration = Duration::from_millis(400);
const ACT_LEASE: Duration = Duration::from_millis(1500);
const LONG_LEASE: Duration = Duration::from_mins(1);
const SHORT_DELAY: Duration = Duration::from_millis(450);

/// The durations for one backend.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// A lease that a case lets expire.
    pub lease: Duration,
    /// A lease that expires within the case's time, but not before the case has done something under it.
    pub act_lease: Duration,
    /// A lease that outlives the case, for messages that it holds or settles.
    pub long_lease: Duration,
    /// A delay that a case waits for; not a multiple of a whole second unless the granularity demands it.
    pub delay: Duration,
    /// How late a timed promise may be kept, as declared.
    pub slack: Duration,
    /// The longest wait for something that must come at once.
    pub soon: Duration,
}

impl Timing {
    pub(crate) fn of(capabilities: &Capabilities) -> Self {
        let granularity = |delay: Option<anyqueue::adapter::DelayCapability>| {
            delay.map_or(Duration::ZERO, |d| d.granularity)
        };
        let coarse = granularity(capabilities.push_delay).max(granularity(capabilities.postpone_delay));
        Self {
            lease: SHORT_LEASE.clamp(capabilities.lease.min, capabilities.lease.max),
            act_lease: ACT_LEASE.clamp(capabilities.lease.min, capabilities.lease.max),
            long_lease: LONG_LEASE.clamp(capabilities.lease.min, capabilities.lease.max),
            delay: round_up(SHORT_DELAY, coarse),
            slack: capabilities.slack,
            soon: capabilities.slack + capabilities.wake_latency + scheduling(),
        }
    }

    /// Returns how long to watch for something that must never come, not even when `lease` has expired.
    pub fn never(&self) -> Duration {
        self.never_after(self.lease)
    }

    /// Like [`never`](Self::never), if something was held under a lease of this length.
    pub fn never_after(&self, lease: Duration) -> Duration {
        lease + self.slack + NEGATIVE_MARGIN
    }

    /// Returns the latest moment at which something due after `duration` may be seen.
    pub fn latest(&self, duration: Duration) -> Duration {
        duration + self.soon
    }
}

fn round_up(duration: Duration, granularity: Duration) -> Duration {
    if granularity.is_zero() {
        return duration;
    }
    let steps = duration.as_nanos().div_ceil(granularity.as_nanos());
    granularity.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_multiples_of_the_granularity() {
        let ms = Duration::from_millis;
        assert_eq!(round_up(ms(450), Duration::ZERO), ms(450));
        assert_eq!(round_up(ms(450), ms(1)), ms(450));
        assert_eq!(round_up(ms(450), ms(1000)), ms(1000));
        assert_eq!(round_up(ms(1001), ms(1000)), ms(2000));
    }
}
