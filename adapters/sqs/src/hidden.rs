//! How many messages of each queue this handle keeps hidden: the service counts them as in flight, and hands out nothing more of a queue
//! that has about 120 000 of those.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::names::Place;

/// Messages of one queue that one handle hides at once: a twelfth of what the service allows all of them together.
pub(crate) const MOST_HIDDEN: u32 = 10_000;
/// Ends are counted by the minute, so that a queue takes no more than 720 numbers.
const GRAIN_SECS: u64 = 60;

/// Counts by queue, and by when they come to an end.
#[derive(Debug)]
pub(crate) struct Hidden {
    since: Instant,
    ends: Mutex<HashMap<Place, BTreeMap<u64, u32>>>,
}

impl Default for Hidden {
    fn default() -> Self {
        Self { since: Instant::now(), ends: Mutex::default() }
    }
}

impl Hidden {
    /// Whether there is room for one more of this queue, which is then counted.
    pub(crate) fn add(&self, place: &Place, hidden_for: Duration) -> bool {
        let now = self.since.elapsed();
        let mut queues = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = |time: Duration| time.as_secs() / GRAIN_SECS;
        if queues.len() > 64 && !queues.contains_key(place) {
            queues.retain(|_, ends| ends.last_key_value().is_some_and(|(end, _)| *end >= minute(now)));
        }
        let ends = queues.entry(place.clone()).or_default();
        *ends = ends.split_off(&minute(now));
        if ends.values().sum::<u32>() >= MOST_HIDDEN {
            return false;
        }
        *ends.entry(minute(now + hidden_for)).or_insert(0) += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;

    use super::*;

    #[test]
    fn there_is_an_end_to_what_is_hidden_of_one_queue_and_room_again_when_that_comes_back() {
        let place = |level| Place::new(&PartitionId::new("p").unwrap(), level);
        let hour = Duration::from_hours(1);
        let mut hidden = Hidden { since: Instant::now(), ends: Mutex::default() };
        for _ in 0..MOST_HIDDEN {
            assert!(hidden.add(&place(0), hour));
        }
        assert!(!hidden.add(&place(0), hour));
        assert!(hidden.add(&place(1), hour), "of another queue");
        // As if that had been two hours ago.
        let Some(earlier) = hidden.since.checked_sub(2 * hour) else { return };
        hidden.since = earlier;
        assert!(hidden.add(&place(0), hour));
    }
}
