//! How much is prefetched. Messages that no pull takes in time are requeued for other consumers. The server
//! counts that as a delivery, so it must not happen often: each time it does, less is prefetched and kept
//! longer.

use std::time::Duration;

/// How long a prefetched message waits for a pull at first.
const MIN_HOLD_TIME: Duration = Duration::from_secs(1);
/// How long it waits at most.
const MAX_HOLD_TIME: Duration = Duration::from_secs(16);

/// See the module.
#[derive(Debug)]
pub(crate) struct AdaptivePrefetch {
    /// The configured prefetch.
    max: usize,
    /// The prefetch of the next consumer.
    credit: usize,
    hold_time: Duration,
    /// Messages that pulls took since some were last requeued.
    taken: usize,
}

impl AdaptivePrefetch {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, credit: max, hold_time: MIN_HOLD_TIME, taken: 0 }
    }

    /// How long prefetched messages wait for a pull.
    pub(crate) fn hold_time(&self) -> Duration {
        self.hold_time
    }

    /// Records that pulls took this many messages.
    pub(crate) fn record_taken(&mut self, messages: usize) {
        self.taken = self.taken.saturating_add(messages);
    }

    /// Records that this many messages were left when their time was over.
    pub(crate) fn record_unused(&mut self, left: usize) {
        if left > 0 {
            self.credit = self.taken.clamp(1, self.max.max(1));
            self.hold_time = (self.hold_time * 2).min(MAX_HOLD_TIME);
        }
        self.taken = 0;
    }

    /// Returns the prefetch of the next consumer, which is higher than that of the last one, since all of
    /// that was taken.
    pub(crate) fn next_credit(&mut self) -> usize {
        let credit = self.credit;
        self.credit = (credit * 2).min(self.max);
        if credit == self.max {
            self.hold_time = MIN_HOLD_TIME;
        }
        credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_makes_it_smaller_and_slower_and_full_flow_makes_it_whole_again() {
        let mut prefetch = AdaptivePrefetch::new(256);
        assert_eq!((prefetch.next_credit(), prefetch.next_credit()), (256, 256));
        prefetch.record_taken(3);
        prefetch.record_unused(253);
        assert_eq!((prefetch.next_credit(), prefetch.hold_time()), (3, 2 * MIN_HOLD_TIME));
        for _ in 0..9 {
            prefetch.record_unused(1);
        }
        assert_eq!((prefetch.hold_time(), prefetch.next_credit()), (MAX_HOLD_TIME, 1));
        let grown: Vec<usize> = (0..9).map(|_| prefetch.next_credit()).collect();
        assert_eq!(grown, [2, 4, 8, 16, 32, 64, 128, 256, 256]);
        assert_eq!(prefetch.hold_time(), MIN_HOLD_TIME);
        prefetch.record_unused(0);
        assert_eq!(prefetch.next_credit(), 256);
    }
}
