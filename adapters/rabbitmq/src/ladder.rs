//! Delays: a ladder of queues whose messages expire after a fixed time each.
//!
//! A delay is so many steps. Written in base 16 each of its digits but zero names a queue where the message rests on its way down:
//! digit `d` of rung `r` holds it for `d` times 16^r steps. Each queue has one expiry for all its messages, so none ever waits behind
//! a longer one, and only queues that some delay needs are made.

use std::time::Duration;

use crate::names::{Line, Names};

/// What delays are rounded up to.
pub(crate) const STEP: Duration = Duration::from_millis(100);
/// Rungs from 0 to one less.
const RUNGS: u32 = 7;
const BITS: u32 = 4;
const DIGIT: u32 = (1 << BITS) - 1;
/// The longest delay. Its highest digit holds for 19 days; the server allows 49.
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(30 * 24);

/// A queue of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) rung: u32,
    pub(crate) digit: u32,
}

impl Rest {
    /// How long it holds, in milliseconds.
    pub(crate) fn holds_ms(self) -> u64 {
        let step = u64::try_from(STEP.as_millis()).unwrap_or(u64::MAX);
        (step * u64::from(self.digit)) << (BITS * self.rung)
    }

    /// What it is called on the server.
    pub(crate) fn queue(self, names: &Names) -> String {
        names.rest(self.rung, self.digit)
    }

    /// What a message has in its key that rests here.
    pub(crate) fn pattern(self) -> String {
        pattern(self.rung, self.digit)
    }
}

/// Steps of a delay, rounded up.
pub(crate) fn steps(delay: Duration) -> u32 {
    let steps = delay.min(MAX_DELAY).as_nanos().div_ceil(STEP.as_nanos());
    u32::try_from(steps).unwrap_or(u32::MAX)
}

fn digit(steps: u32, rung: u32) -> u32 {
    (steps >> (BITS * rung)) & DIGIT
}

/// The rung where a message with so many steps (not zero) begins.
pub(crate) fn first_rung(steps: u32) -> u32 {
    steps.max(1).ilog2() / BITS
}

/// Where a message with so many steps rests.
pub(crate) fn rests(steps: u32) -> impl Iterator<Item = Rest> {
    (0..RUNGS).map(move |rung| Rest { rung, digit: digit(steps, rung) }).filter(|rest| rest.digit > 0)
}

/// The routing key: a digit for each rung from the highest down, and the line.
pub(crate) fn key(steps: u32, line: &Line) -> String {
    let digits = (0..RUNGS).rev().map(|rung| format!("{:x}.", digit(steps, rung)));
    digits.chain([line.word()]).collect()
}

/// What a message has in its key that passes a rung.
pub(crate) fn passing(rung: u32) -> String {
    pattern(rung, 0)
}

fn pattern(rung: u32, digit: u32) -> String {
    let words =
        (0..RUNGS).rev().map(|other| if other == rung { format!("{digit:x}.") } else { "*.".to_owned() });
    words.chain(["#".to_owned()]).collect()
}

/// What a line that messages become due for has in its key.
pub(crate) fn due_pattern(line: &Line) -> String {
    format!("#.{}", line.word())
}

/// Where a message goes after this rung.
pub(crate) fn below(names: &Names, rung: u32) -> String {
    rung.checked_sub(1).map_or_else(|| names.due(), |below| names.rung(below))
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;

    use super::*;

    #[test]
    fn what_a_delay_rests_on_holds_exactly_as_long() {
        for ms in [1_u64, 100, 101, 450, 3_600_000, 86_400_000 * 30] {
            let steps = steps(Duration::from_millis(ms));
            let held: u64 = rests(steps).map(Rest::holds_ms).sum();
            assert!(held >= ms && held < ms + 100, "{ms} ms are held for {held} ms");
            assert!(rests(steps).all(|rest| rest.rung <= first_rung(steps)));
            assert!(
                rests(steps).all(|rest| u32::try_from(rest.holds_ms()).is_ok()),
                "the server allows no more"
            );
        }
        assert_eq!(rests(0).count(), 0);
    }

    #[test]
    fn keys_are_short_enough_and_have_a_word_for_each_rung() {
        let name = "x".repeat(PartitionId::MAX_NAME_BYTES);
        let line = Line::new(&PartitionId::new(&name).unwrap().dead_letters(), 9);
        let key = key(0x1f3, &line);
        assert!(key.len() < 255 && key.starts_with("0.0.0.0.1.f.3.d9:"), "{key}");
        assert_eq!(Rest { rung: 1, digit: 15 }.pattern(), "*.*.*.*.*.f.*.#");
        assert_eq!(passing(0), "*.*.*.*.*.*.0.#");
    }
}
