//! Where pulls begin to look while something keeps dead rows from being cleaned up.
//!
//! Index entries of messages that are gone stay until no transaction on the server can see them any more. Normally each scan
//! disposes of what the last one met. A transaction that stays open for minutes prevents that, and then each pull would wade
//! through all that was worked since. So if looking everywhere turns out to be slow, it is done seldom, and in between pulls
//! begin where the last one found something.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::PartitionId;

use crate::limits::PRIORITY_LEVELS;
use crate::sql::millis;

/// From this time on, looking everywhere counts as slow. Less would be reached by looks that find much.
const SLOW: Duration = Duration::from_millis(5);
/// How many times as long as it took nobody looks everywhere again.
const SPARED: u32 = 20;
/// How long a push may take from taking its place to its commit, so as not to wait until somebody looks everywhere.
const MARGIN: Duration = Duration::from_millis(20);
/// Places are microseconds times this.
const PLACES_PER_MICROSECOND: i64 = 1024;
const LAST_LANE: i16 = 2 * PRIORITY_LEVELS as i16 - 1;
/// More partitions than this are not remembered.
const MAX_PARTITIONS: usize = 1000;

/// What a pull looks through: stretches from a place in a first lane to the end of a last lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretches {
    pub(crate) lanes: Vec<i16>,
    pub(crate) places: Vec<i64>,
    pub(crate) last_lanes: Vec<i16>,
    /// What is due longer ago is left out.
    pub(crate) due_ms: Option<i64>,
}

impl Stretches {
    /// All there is.
    pub(crate) fn all() -> Self {
        Self { lanes: vec![0], places: vec![0], last_lanes: vec![LAST_LANE], due_ms: None }
    }

    /// Whether something is left out.
    pub(crate) fn is_part(&self) -> bool {
        self.due_ms.is_some()
    }

    fn from(lows: &BTreeMap<i16, i64>, due: Duration) -> Self {
        let none = Self { lanes: Vec::new(), places: Vec::new(), last_lanes: Vec::new(), due_ms: None };
        let (mut part, mut next) = (Self { due_ms: Some(millis(due)), ..none }, 0);
        for (lane, low) in lows {
            if *lane > next {
                part.add(next, 0, lane - 1);
            }
            part.add(*lane, *low, *lane);
            next = lane + 1;
        }
        if next <= LAST_LANE {
            part.add(next, 0, LAST_LANE);
        }
        part
    }

    fn add(&mut self, lane: i16, place: i64, last_lane: i16) {
        self.lanes.push(lane);
        self.places.push(place);
        self.last_lanes.push(last_lane);
    }
}

/// What is known of the partitions where looking everywhere is slow. Others are not in it.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<HashMap<PartitionId, Mark>>);

#[derive(Debug)]
struct Mark {
    /// By lane: nothing is expected before.
    lows: BTreeMap<i16, i64>,
    valid_until: Instant,
    last_pull: Instant,
}

impl Marks {
    fn lock(&self) -> MutexGuard<'_, HashMap<PartitionId, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to look now.
    pub(crate) fn stretches(&self, partition: &PartitionId, now: Instant) -> Stretches {
        let mut marks = self.lock();
        let Some(mark) = marks.get_mut(partition) else { return Stretches::all() };
        if mark.valid_until <= now {
            marks.remove(partition);
            return Stretches::all();
        }
        let due = now.saturating_duration_since(mark.last_pull) + MARGIN;
        mark.last_pull = now;
        Stretches::from(&mark.lows, due)
    }

    /// Learns from a pull that began at this time, looked for so long, and found messages at these lanes and places.
    pub(crate) fn learn(
        &self,
        partition: &PartitionId,
        looked: &Stretches,
        (began, took): (Instant, Duration),
        found: impl Iterator<Item = (i16, i64)>,
    ) {
        let firsts = firsts(found);
        let mut marks = self.lock();
        if !looked.is_part() {
            if took < SLOW {
                marks.remove(partition);
                return;
            }
            let valid_until = began + took * (SPARED + 1);
            let has_room = marks.len() < MAX_PARTITIONS;
            match marks.get_mut(partition) {
                // Nothing has come to light that the marks leave out.
                Some(mark) if firsts.is_empty() => mark.valid_until = valid_until,
                // Without a find there is no place to begin at.
                _ if firsts.is_empty() || !has_room => {}
                _ => {
                    let mark = Mark { lows: BTreeMap::new(), valid_until, last_pull: began };
                    marks.insert(partition.clone(), mark);
                }
            }
        }
        let Some(mark) = marks.get_mut(partition) else { return };
        let margin = i64::try_from(MARGIN.as_micros()).unwrap_or(0) * PLACES_PER_MICROSECOND;
        for (lane, first) in firsts {
            let low = mark.lows.entry(lane).or_insert(0);
            *low = (*low).max(first - margin);
        }
    }

    /// Something became ready at an old place.
    pub(crate) fn forget(&self, partition: &PartitionId) {
        self.lock().remove(partition);
    }
}

/// The first place of each lane that can be left behind. What was released, in the even lanes, keeps its old place.
fn firsts(found: impl Iterator<Item = (i16, i64)>) -> BTreeMap<i16, i64> {
    let mut firsts = BTreeMap::new();
    for (lane, place) in found.filter(|(lane, _)| lane % 2 == 1) {
        let first = firsts.entry(lane).or_insert(place);
        *first = place.min(*first);
    }
    firsts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lane: i16, seconds: i64) -> std::iter::Once<(i16, i64)> {
        std::iter::once((lane, seconds * 1_000_000 * PLACES_PER_MICROSECOND))
    }

    #[test]
    fn as_long_as_looking_everywhere_is_quick_everything_is_looked_through() {
        let (marks, p, now) = (Marks::default(), PartitionId::new("p").unwrap(), Instant::now());
        marks.learn(&p, &Stretches::all(), (now, SLOW / 2), found(19, 100));
        assert_eq!(marks.stretches(&p, now), Stretches::all());
    }

    #[test]
    fn where_it_is_slow_pulls_begin_shortly_before_the_last_find_but_not_for_ever() {
        let (marks, p, now) = (Marks::default(), PartitionId::new("p").unwrap(), Instant::now());
        marks.learn(
            &p,
            &Stretches::all(),
            (now, SLOW),
            found(17, 100).chain(found(19, 50)).chain(found(18, 1)),
        );
        let part = marks.stretches(&p, now + SLOW);
        assert_eq!((part.lanes, part.last_lanes), (vec![0, 17, 18, 19], vec![16, 17, 18, 19]));
        let place = |micros: i64| micros * PLACES_PER_MICROSECOND;
        assert_eq!(part.places, [0, place(99_980_000), 0, place(49_980_000)]);
        assert_eq!(part.due_ms, Some(millis(SLOW + MARGIN)));
        assert_eq!(marks.stretches(&p, now + SLOW * (SPARED + 1)), Stretches::all());
    }

    #[test]
    fn a_slow_look_that_finds_nothing_keeps_the_marks_there_are_and_a_quick_one_ends_them() {
        let (marks, p, now) = (Marks::default(), PartitionId::new("p").unwrap(), Instant::now());
        marks.learn(&p, &Stretches::all(), (now, SLOW), std::iter::empty());
        assert_eq!(marks.stretches(&p, now), Stretches::all());
        marks.learn(&p, &Stretches::all(), (now, SLOW), found(19, 100));
        let later = now + SLOW * SPARED;
        marks.learn(&p, &Stretches::all(), (later, SLOW), std::iter::empty());
        assert!(marks.stretches(&p, later + SLOW * SPARED).is_part());
        marks.learn(&p, &Stretches::all(), (later, SLOW / 2), std::iter::empty());
        assert_eq!(marks.stretches(&p, later), Stretches::all());
    }

    #[test]
    fn marks_move_forward_with_what_is_found_and_never_back() {
        let (marks, p, now) = (Marks::default(), PartitionId::new("p").unwrap(), Instant::now());
        marks.learn(&p, &Stretches::all(), (now, SLOW), found(19, 100));
        let part = marks.stretches(&p, now);
        marks.learn(&p, &part, (now, SLOW), found(19, 200));
        let further = marks.stretches(&p, now);
        marks.learn(&p, &further, (now, SLOW), found(19, 150));
        assert!(part.places < further.places);
        assert_eq!(marks.stretches(&p, now).places, further.places);
        marks.forget(&p);
        assert_eq!(marks.stretches(&p, now), Stretches::all());
    }
}
