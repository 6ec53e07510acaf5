//! How long a failed process pauses before it is restarted.

use std::time::Duration;

use super::options::SupervisorOptions;

/// How much of a pause is random, so that processes that failed together do not all restart together.
const CHANCE: f64 = 0.2;

/// The pauses of one process.
#[derive(Debug)]
pub(super) struct Backoff {
    options: SupervisorOptions,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(options: SupervisorOptions) -> Self {
        Self { options, next: options.first_pause }
    }

    /// The pause after a failure.
    pub(super) fn pause(&mut self, lived: Duration) -> Duration {
        if lived >= self.options.steady_after {
            self.next = self.options.first_pause;
        }
        let pause = self.next.min(self.options.longest_pause);
        self.next = pause.saturating_mul(2);
        pause.mul_f64(1.0 - CHANCE * fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// This long, but for chance.
    fn is_about(pause: Duration, most: u64) -> bool {
        pause <= seconds(most) && pause >= seconds(most).mul_f64(1.0 - CHANCE)
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_a_long_life() {
        let mut backoff = Backoff::new(SupervisorOptions::default());
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            let pause = backoff.pause(seconds(59));
            assert!(is_about(pause, expected), "{pause:?}, not {expected} s");
        }
        assert!(is_about(backoff.pause(seconds(60)), 1));
        assert!(is_about(backoff.pause(seconds(0)), 2));
    }
}
