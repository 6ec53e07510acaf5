//! Delays: a ladder of queues whose messages expire after a fixed time each.
//!
//! Rung `k` holds a message for 2^k steps. A delay of so many steps, written in binary, tells on which rungs the message rests on
//! its way down. Each queue has one expiry for all its messages, so none ever waits behind a longer one.

use std::time::Duration;

use crate::names::{Line, Names};

/// What delays are rounded up to.
pub(crate) const STEP: Duration = Duration::from_millis(100);
/// Rungs from 0 to one less. The highest holds for 19 days; the server allows 49.
pub(crate) const RUNGS: u32 = 25;
/// The longest delay.
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(30 * 24);

/// Steps of a delay, rounded up.
pub(crate) fn steps(delay: Duration) -> u32 {
    let steps = delay.as_nanos().div_ceil(STEP.as_nanos());
    u32::try_from(steps).unwrap_or(u32::MAX).min((1 << RUNGS) - 1)
}

/// The rung where a message with so many steps (not zero) begins.
pub(crate) fn first_rung(steps: u32) -> u32 {
    steps.max(1).ilog2()
}

/// The routing key: a word for each rung from the highest down, and the line.
pub(crate) fn key(steps: u32, line: &Line) -> String {
    let mut key = String::with_capacity(128);
    for rung in (0..RUNGS).rev() {
        key.push(if steps & (1 << rung) == 0 { '0' } else { '1' });
        key.push('.');
    }
    key.push_str(&line.word());
    key
}

/// What a message has in its key that rests at this rung, or passes it.
pub(crate) fn pattern(rung: u32, rests: bool) -> String {
    let mut pattern = String::with_capacity(128);
    for other in (0..RUNGS).rev() {
        pattern.push(match (other == rung, rests) {
            (false, _) => '*',
            (true, true) => '1',
            (true, false) => '0',
        });
        pattern.push('.');
    }
    pattern.push('#');
    pattern
}

/// What a line that messages become due for has in its key.
pub(crate) fn due_pattern(line: &Line) -> String {
    format!("#.{}", line.word())
}

/// Where a message goes after this rung.
pub(crate) fn below(names: &Names, rung: u32) -> String {
    rung.checked_sub(1).map_or_else(|| names.due(), |below| names.rung(below))
}

/// How long a rung holds, in milliseconds.
pub(crate) fn holds_ms(rung: u32) -> u64 {
    u64::try_from(STEP.as_millis()).unwrap_or(u64::MAX) << rung
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;

    use super::*;

    #[test]
    fn the_rungs_of_a_delay_hold_exactly_as_long() {
        for ms in [1_u64, 100, 101, 450, 3600_000, 86_400_000 * 30] {
            let steps = steps(Duration::from_millis(ms));
            let held: u64 = (0..RUNGS).filter(|rung| steps & (1 << rung) != 0).map(holds_ms).sum();
            assert!(held >= ms && held < ms + 100, "{ms} ms are held for {held} ms");
            assert!(first_rung(steps) < RUNGS);
        }
    }

    #[test]
    fn keys_are_short_enough_and_have_a_word_for_each_rung() {
        let name = "x".repeat(PartitionId::MAX_NAME_BYTES);
        let line = Line::new(&PartitionId::new(&name).unwrap().dead_letters(), 9);
        let key = key(5, &line);
        assert!(key.len() < 255, "{}", key.len());
        assert_eq!(key.split('.').count(), RUNGS as usize + 1);
        assert!(key.contains(".1.0.1.d9:"), "{key}");
        assert_eq!(pattern(0, true).matches('*').count(), RUNGS as usize - 1);
    }
}
