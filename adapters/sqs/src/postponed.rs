//! How many messages of each queue this handle has postponed by a visibility timeout. The service counts them
//! as in flight, and delivers no more messages from a queue with about 120 000 in flight.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::names::LevelQueue;

/// The most messages of one queue that one handle postpones at a time: a twelfth of what the service allows for all handles
/// together.
pub(crate) const MAX_POSTPONED: u32 = 10_000;
/// Ends are counted by the minute, so a queue needs at most 720 numbers.
const GRAIN_SECS: u64 = 60;

/// Counts of postponed messages, by queue and by the minute in which the postponement ends.
#[derive(Debug)]
pub(crate) struct PostponedCounts {
    since: Instant,
    ends: Mutex<HashMap<LevelQueue, BTreeMap<u64, u32>>>,
}

impl Default for PostponedCounts {
    fn default() -> Self {
        Self { since: Instant::now(), ends: Mutex::default() }
    }
}

impl PostponedCounts {
    /// Counts one more message of this queue. Returns `false`, without counting it, if there is no room for
    /// it.
    pub(crate) fn add(&self, level_queue: &LevelQueue, duration: Duration) -> bool {
        let now = self.since.elapsed();
        let mut queues = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = |time: Duration| time.as_secs() / GRAIN_SECS;
        if queues.len() > 64 && !queues.contains_key(level_queue) {
            queues.retain(|_, ends| ends.last_key_value().is_some_and(|(end, _)| *end >= minute(now)));
        }
        let ends = queues.entry(level_queue.clone()).or_default();
        *ends = ends.split_off(&minute(now));
        if ends.values().sum::<u32>() >= MAX_POSTPONED {
            return false;
        }
        *ends.entry(minute(now + duration)).or_insert(0) += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;

    use super::*;

    #[test]
    fn there_is_an_end_to_what_is_hidden_of_one_queue_and_room_again_when_that_comes_back() {
        let level_queue = |level| LevelQueue::new(&PartitionId::new("p").unwrap(), level);
        let hour = Duration::from_hours(1);
        let mut postponed = PostponedCounts { since: Instant::now(), ends: Mutex::default() };
        for _ in 0..MAX_POSTPONED {
            assert!(postponed.add(&level_queue(0), hour));
        }
        assert!(!postponed.add(&level_queue(0), hour));
        assert!(postponed.add(&level_queue(1), hour), "of another queue");
        // As if that had been two hours ago.
        let Some(earlier) = postponed.since.checked_sub(2 * hour) else { return };
        postponed.since = earlier;
        assert!(postponed.add(&level_queue(0), hour));
    }
}
