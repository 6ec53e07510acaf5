//! Delayed messages pass through queues where they expire after a fixed time.
//!
//! A delay is a number of steps. Written in base 16, each digit except zero names a queue that the message
//! passes through: digit `d` of stage `s` holds it for `d` × 16^s steps. All messages of a queue have the
//! same time to live, so none waits behind one with a longer delay. Queues are declared only when a delay
//! needs them.

use std::time::Duration;

use crate::names::{LevelQueue, Names};

/// Delays are rounded up to a multiple of this.
pub(crate) const STEP: Duration = Duration::from_millis(100);
/// The number of stages, which are numbered from 0.
const STAGES: u32 = 7;
const BITS: u32 = 4;
const DIGIT: u32 = (1 << BITS) - 1;
/// The longest delay. Its highest digit takes 19 days; the server allows 49.
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(30 * 24);

/// A queue that holds messages for a fixed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DelayQueue {
    pub(crate) stage: u32,
    pub(crate) digit: u32,
}

impl DelayQueue {
    /// Its time to live in milliseconds.
    pub(crate) fn ttl_ms(self) -> u64 {
        let step = u64::try_from(STEP.as_millis()).unwrap_or(u64::MAX);
        (step * u64::from(self.digit)) << (BITS * self.stage)
    }

    /// Its name on the server.
    pub(crate) fn queue(self, names: &Names) -> String {
        names.delay_queue(self.stage, self.digit)
    }

    /// The binding key of messages that it holds.
    pub(crate) fn binding_key(self) -> String {
        binding_key(self.stage, self.digit)
    }
}

/// Returns the number of steps of a delay, rounded up.
pub(crate) fn steps(delay: Duration) -> u32 {
    let steps = delay.min(MAX_DELAY).as_nanos().div_ceil(STEP.as_nanos());
    u32::try_from(steps).unwrap_or(u32::MAX)
}

fn digit(steps: u32, stage: u32) -> u32 {
    (steps >> (BITS * stage)) & DIGIT
}

/// Returns the first stage of a message with this many steps, which must not be zero.
pub(crate) fn first_stage(steps: u32) -> u32 {
    steps.max(1).ilog2() / BITS
}

/// Returns the queues that a message with this many steps passes through.
pub(crate) fn queues_for(steps: u32) -> impl Iterator<Item = DelayQueue> {
    (0..STAGES)
        .map(move |stage| DelayQueue { stage, digit: digit(steps, stage) })
        .filter(|queue| queue.digit > 0)
}

/// Returns the routing key: a digit for each stage, from the highest down, and the level's queue.
pub(crate) fn routing_key(steps: u32, level_queue: &LevelQueue) -> String {
    let digits = (0..STAGES).rev().map(|stage| format!("{:x}.", digit(steps, stage)));
    digits.chain([level_queue.routing_word()]).collect()
}

/// The binding key of messages that skip a stage.
pub(crate) fn passing_key(stage: u32) -> String {
    binding_key(stage, 0)
}

fn binding_key(stage: u32, digit: u32) -> String {
    let words =
        (0..STAGES).rev().map(|other| if other == stage { format!("{digit:x}.") } else { "*.".to_owned() });
    words.chain(["#".to_owned()]).collect()
}

/// The binding key of messages that are due for a level's queue.
pub(crate) fn due_binding_key(level_queue: &LevelQueue) -> String {
    format!("#.{}", level_queue.routing_word())
}

/// The exchange that a message goes to after this stage.
pub(crate) fn next_exchange(names: &Names, stage: u32) -> String {
    stage.checked_sub(1).map_or_else(|| names.due(), |below| names.delay_stage(below))
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;

    use super::*;

    #[test]
    fn what_a_delay_rests_on_holds_exactly_as_long() {
        for ms in [1_u64, 100, 101, 450, 3_600_000, 86_400_000 * 30] {
            let steps = steps(Duration::from_millis(ms));
            let held: u64 = queues_for(steps).map(DelayQueue::ttl_ms).sum();
            assert!(held >= ms && held < ms + 100, "{ms} ms are held for {held} ms");
            assert!(queues_for(steps).all(|queue| queue.stage <= first_stage(steps)));
            assert!(
                queues_for(steps).all(|queue| u32::try_from(queue.ttl_ms()).is_ok()),
                "the server allows no more"
            );
        }
        assert_eq!(queues_for(0).count(), 0);
    }

    #[test]
    fn keys_are_short_enough_and_have_a_word_for_each_rung() {
        let name = "x".repeat(PartitionId::MAX_NAME_BYTES);
        let level_queue = LevelQueue::new(&PartitionId::new(&name).unwrap().dead_letters(), 9);
        let key = routing_key(0x1f3, &level_queue);
        assert!(key.len() < 255 && key.starts_with("0.0.0.0.1.f.3.d9:"), "{key}");
        assert_eq!(DelayQueue { stage: 1, digit: 15 }.binding_key(), "*.*.*.*.*.f.*.#");
        assert_eq!(passing_key(0), "*.*.*.*.*.*.0.#");
    }
}
