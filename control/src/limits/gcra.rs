//! The generic cell rate algorithm. It keeps a rate with a burst in one number: the time at which everything
//! allowed so far would be used up at that rate.

use super::limit::Rate;

/// How much of the rate is taken at once, at most: starts that are taken and not used are lost.
const BLOCK_NS: u64 = 50_000_000;

/// The state of a rate. Times are nanoseconds of Unix time, by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gcra {
    interval_ns: u64,
    burst: u64,
    tat_ns: u64,
}

impl Gcra {
    /// A stored time that is too far off, because the rate or the clock was changed, counts as a burst that
    /// has just been used. The result has to be written, or the time would count that way again.
    pub(super) fn new(rate: Rate, tat_ns: u64, now_ns: u64) -> Self {
        let (interval_ns, burst) = (rate.interval_ns(), rate.burst);
        let latest = now_ns.saturating_add(interval_ns.saturating_mul(burst));
        Self { interval_ns, burst, tat_ns: tat_ns.clamp(now_ns, latest) }
    }

    /// How many tasks may start now.
    pub(super) fn available(&self, now_ns: u64) -> u64 {
        let full = self.interval_ns.saturating_mul(self.burst);
        full.saturating_sub(self.tat_ns.saturating_sub(now_ns)) / self.interval_ns
    }

    /// Takes as many starts as are allowed now, at most `wanted` and at most a block.
    pub(super) fn take(&mut self, wanted: u64, now_ns: u64) -> u64 {
        let taken = self.available(now_ns).min(wanted).min(self.block());
        self.tat_ns = self.tat_ns.saturating_add(taken.saturating_mul(self.interval_ns));
        taken
    }

    /// How many starts are taken at once, at most.
    pub(super) fn block(&self) -> u64 {
        (BLOCK_NS / self.interval_ns).clamp(1, self.burst)
    }

    /// How many nanoseconds it takes until one task may start.
    pub(super) fn until_next(&self, now_ns: u64) -> u64 {
        let earliest = self.tat_ns.saturating_add(self.interval_ns);
        earliest.saturating_sub(self.interval_ns.saturating_mul(self.burst)).saturating_sub(now_ns)
    }

    pub(super) const fn tat_ns(&self) -> u64 {
        self.tat_ns
    }
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss, reason = "a few thousand permits")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn no_more_start_than_the_burst_and_the_rate_allow(
            per_second in 0.5..5000.0_f64,
            burst in 1..50_u64,
            steps in prop::collection::vec((0..SECOND / 5, 1..40_u64), 1..60),
        ) {
            let rate = Rate { per_second, burst };
            let (mut now, mut tat, mut taken) = (1_000 * SECOND, 0, Vec::new());
            for (pause, wanted) in steps {
                now += pause;
                let mut gcra = Gcra::new(rate, tat, now);
                let count = gcra.take(wanted, now);
                tat = gcra.tat_ns();
                taken.push((now, count));
            }
            // From each moment on.
            for (place, (from, _)) in taken.iter().enumerate() {
                let mut sum = 0;
                for (at, count) in &taken[place..] {
                    sum += count;
                    let most = burst as f64 + per_second * ((at - from) as f64 / 1e9);
                    prop_assert!(sum as f64 <= most + 1e-6, "{sum} of {most}");
                }
            }
        }
    }

    #[test]
    fn after_a_pause_a_whole_burst_may_start_and_then_the_rate_holds() {
        let rate = Rate { per_second: 10.0, burst: 3 };
        let now = 1_000 * SECOND;
        let mut gcra = Gcra::new(rate, 0, now);
        assert_eq!(gcra.available(now), 3);
        assert_eq!((0..5).map(|_| gcra.take(9, now)).sum::<u64>(), 3);
        assert_eq!(gcra.until_next(now), SECOND / 10);
        assert_eq!(gcra.available(now + SECOND / 10), 1);
    }

    #[test]
    fn a_clock_that_goes_back_stops_nothing_for_longer_than_the_burst_takes() {
        let rate = Rate { per_second: 10.0, burst: 3 };
        let gcra = Gcra::new(rate, 5_000 * SECOND, 1_000 * SECOND);
        assert_eq!(gcra.until_next(1_000 * SECOND), SECOND / 10);
    }
}
