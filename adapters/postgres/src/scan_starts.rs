//! Where pulls start to scan while something keeps dead rows from being cleaned up.
//!
//! Index entries of deleted messages stay until no transaction on the server can see them any more. Normally
//! each scan removes those that the previous one met. A transaction that stays open for minutes prevents
//! that, and then each pull would scan everything that was processed since. So if several full scans in a row
//! are slow, full scans become rare, and in between pulls start where the last one found something. A single
//! slow scan means nothing: a busy machine can cause it. Pushes are slow then too, and a message that one of
//! them stores late would be passed over until the next full scan.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::PartitionId;

use crate::limits::PRIORITY_LEVELS;
use crate::sql::millis;

/// A full scan that takes this long counts as slow. Scans that find many messages can take nearly as long.
const SLOW: Duration = Duration::from_millis(5);
/// How many full scans must be slow, each begun after the previous one ended. Dead rows make all of them
/// slow.
const SLOW_IN_A_ROW: u32 = 8;
/// After a slow full scan, the next one waits for this many times its duration.
const PAUSE_FACTOR: u32 = 20;
/// How much time may pass between the position of a push and its commit, if its messages are not to wait for
/// the next full scan.
const MARGIN: Duration = Duration::from_millis(100);
/// Positions are microseconds times this.
const POSITIONS_PER_MICROSECOND: i64 = 1024;
const LAST_LANE: i16 = 2 * PRIORITY_LEVELS as i16 - 1;
/// The most partitions that are remembered.
const MAX_PARTITIONS: usize = 1000;

/// What a pull scans: ranges from a position in a first lane to the end of a last lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanRanges {
    pub(crate) lanes: Vec<i16>,
    pub(crate) positions: Vec<i64>,
    pub(crate) last_lanes: Vec<i16>,
    /// Messages that have been due for longer than this are left out.
    pub(crate) due_ms: Option<i64>,
}

impl ScanRanges {
    /// The range of all messages.
    pub(crate) fn all() -> Self {
        Self { lanes: vec![0], positions: vec![0], last_lanes: vec![LAST_LANE], due_ms: None }
    }

    /// Whether something is left out.
    pub(crate) fn is_part(&self) -> bool {
        self.due_ms.is_some()
    }

    fn from(lowest: &BTreeMap<i16, i64>, due: Duration) -> Self {
        let none = Self { lanes: Vec::new(), positions: Vec::new(), last_lanes: Vec::new(), due_ms: None };
        let (mut part, mut next) = (Self { due_ms: Some(millis(due)), ..none }, 0);
        for (lane, start_at) in lowest {
            if *lane > next {
                part.add(next, 0, lane - 1);
            }
            part.add(*lane, *start_at, *lane);
            next = lane + 1;
        }
        if next <= LAST_LANE {
            part.add(next, 0, LAST_LANE);
        }
        part
    }

    fn add(&mut self, lane: i16, position: i64, last_lane: i16) {
        self.lanes.push(lane);
        self.positions.push(position);
        self.last_lanes.push(last_lane);
    }
}

/// The partitions where full scans are slow, or may turn out to be.
#[derive(Debug, Default)]
pub(crate) struct ScanStarts(Mutex<HashMap<PartitionId, Scans>>);

#[derive(Debug)]
enum Scans {
    /// Consecutive full scans that were slow, and when the last one ended.
    Suspect { slow: u32, ended: Instant },
    /// Scans start at these positions.
    Marked(ScanStart),
}

impl Scans {
    /// A state in which one more slow full scan is enough.
    fn nearly_marked(ended: Instant) -> Self {
        Self::Suspect { slow: SLOW_IN_A_ROW - 1, ended }
    }
}

#[derive(Debug)]
struct ScanStart {
    /// The position in each lane before which nothing is expected.
    lowest: BTreeMap<i16, i64>,
    valid_until: Instant,
    last_pull: Instant,
}

impl ScanStarts {
    fn lock(&self) -> MutexGuard<'_, HashMap<PartitionId, Scans>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ranges to scan now.
    pub(crate) fn ranges(&self, partition: &PartitionId, now: Instant) -> ScanRanges {
        let mut scan_starts = self.lock();
        let Some(Scans::Marked(start)) = scan_starts.get_mut(partition) else { return ScanRanges::all() };
        if start.valid_until <= now {
            scan_starts.insert(partition.clone(), Scans::nearly_marked(now));
            return ScanRanges::all();
        }
        let due = now.saturating_duration_since(start.last_pull) + MARGIN;
        start.last_pull = now;
        ScanRanges::from(&start.lowest, due)
    }

    /// Records a pull: when it began, how long it scanned these ranges, and the lanes and positions of its
    /// messages.
    pub(crate) fn record(
        &self,
        partition: &PartitionId,
        ranges: &ScanRanges,
        (began, took): (Instant, Duration),
        found: impl Iterator<Item = (i16, i64)>,
    ) {
        let firsts = firsts(found);
        let mut scan_starts = self.lock();
        if !ranges.is_part() {
            if took < SLOW {
                scan_starts.remove(partition);
                return;
            }
            let valid_until = began + took * (PAUSE_FACTOR + 1);
            let has_room = scan_starts.len() < MAX_PARTITIONS;
            match scan_starts.get_mut(partition) {
                // The full scan found nothing that the ranges leave out.
                Some(Scans::Marked(start)) if firsts.is_empty() => start.valid_until = valid_until,
                // Without a message there is no position to start at.
                _ if firsts.is_empty() => {}
                Some(Scans::Suspect { ended, .. }) if began < *ended => {}
                Some(Scans::Suspect { slow, ended }) if *slow + 1 < SLOW_IN_A_ROW => {
                    (*slow, *ended) = (*slow + 1, began + took);
                }
                Some(scans) => {
                    let start = ScanStart { lowest: BTreeMap::new(), valid_until, last_pull: began };
                    *scans = Scans::Marked(start);
                }
                None if has_room => {
                    let suspect = Scans::Suspect { slow: 1, ended: began + took };
                    scan_starts.insert(partition.clone(), suspect);
                }
                None => {}
            }
        }
        let Some(Scans::Marked(start)) = scan_starts.get_mut(partition) else { return };
        let margin = i64::try_from(MARGIN.as_micros()).unwrap_or(0) * POSITIONS_PER_MICROSECOND;
        for (lane, first) in firsts {
            let start_at = start.lowest.entry(lane).or_insert(0);
            *start_at = (*start_at).max(first - margin);
        }
    }

    /// Forgets the start, because a message became ready at an old position.
    pub(crate) fn forget(&self, partition: &PartitionId) {
        if let Some(scans @ Scans::Marked(_)) = self.lock().get_mut(partition) {
            *scans = Scans::nearly_marked(Instant::now());
        }
    }
}

/// Returns the first position of each lane that may serve as a start. The even lanes are left out, since
/// released messages keep their old positions.
fn firsts(found: impl Iterator<Item = (i16, i64)>) -> BTreeMap<i16, i64> {
    let mut firsts = BTreeMap::new();
    for (lane, position) in found.filter(|(lane, _)| lane % 2 == 1) {
        let first = firsts.entry(lane).or_insert(position);
        *first = position.min(*first);
    }
    firsts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lane: i16, seconds: i64) -> std::iter::Once<(i16, i64)> {
        std::iter::once((lane, seconds * 1_000_000 * POSITIONS_PER_MICROSECOND))
    }

    #[test]
    fn as_long_as_looking_everywhere_is_quick_everything_is_looked_through() {
        let (scan_starts, p, now) = (ScanStarts::default(), PartitionId::new("p").unwrap(), Instant::now());
        scan_starts.record(&p, &ScanRanges::all(), (now, SLOW / 2), found(19, 100));
        assert_eq!(scan_starts.ranges(&p, now), ScanRanges::all());
    }

    /// Records as many slow full scans in a row as are needed for a start. Returns when the last one began.
    fn slow_scans(
        scan_starts: &ScanStarts,
        p: &PartitionId,
        mut now: Instant,
        found: &[(i16, i64)],
    ) -> Instant {
        for _ in 1..SLOW_IN_A_ROW {
            scan_starts.record(p, &ScanRanges::all(), (now, SLOW), found.iter().copied());
            assert_eq!(scan_starts.ranges(p, now), ScanRanges::all());
            now += SLOW;
        }
        scan_starts.record(p, &ScanRanges::all(), (now, SLOW), found.iter().copied());
        now
    }

    #[test]
    fn slow_scans_beside_one_another_or_with_a_quick_one_between_them_mark_nothing() {
        let (scan_starts, p, now) = (ScanStarts::default(), PartitionId::new("p").unwrap(), Instant::now());
        for _ in 0..2 * SLOW_IN_A_ROW {
            scan_starts.record(&p, &ScanRanges::all(), (now, SLOW), found(19, 100));
        }
        assert_eq!(scan_starts.ranges(&p, now), ScanRanges::all());
        for number in 0..4 * SLOW_IN_A_ROW {
            let took = if number % SLOW_IN_A_ROW == 0 { SLOW / 2 } else { SLOW };
            scan_starts.record(&p, &ScanRanges::all(), (now + 2 * SLOW * number, took), found(19, 100));
            assert_eq!(scan_starts.ranges(&p, now + 2 * SLOW * number), ScanRanges::all());
        }
    }

    #[test]
    fn where_it_is_slow_pulls_begin_shortly_before_the_last_find_but_not_for_ever() {
        let (scan_starts, p) = (ScanStarts::default(), PartitionId::new("p").unwrap());
        let all: Vec<_> = found(17, 100).chain(found(19, 50)).chain(found(18, 1)).collect();
        let now = slow_scans(&scan_starts, &p, Instant::now(), &all);
        let part = scan_starts.ranges(&p, now + SLOW);
        assert_eq!((part.lanes, part.last_lanes), (vec![0, 17, 18, 19], vec![16, 17, 18, 19]));
        let position = |micros: i64| micros * POSITIONS_PER_MICROSECOND;
        assert_eq!(part.positions, [0, position(99_900_000), 0, position(49_900_000)]);
        assert_eq!(part.due_ms, Some(millis(SLOW + MARGIN)));
        let later = now + SLOW * (PAUSE_FACTOR + 1);
        assert_eq!(scan_starts.ranges(&p, later), ScanRanges::all());
        scan_starts.record(&p, &ScanRanges::all(), (later, SLOW), all.into_iter());
        assert!(scan_starts.ranges(&p, later).is_part(), "one more slow scan is enough then");
    }

    #[test]
    fn a_slow_look_that_finds_nothing_keeps_the_marks_there_are_and_a_quick_one_ends_them() {
        let (scan_starts, p, now) = (ScanStarts::default(), PartitionId::new("p").unwrap(), Instant::now());
        let later = slow_scans(&scan_starts, &p, now, &[]);
        assert_eq!(scan_starts.ranges(&p, later), ScanRanges::all());
        let all: Vec<_> = found(19, 100).collect();
        let later = slow_scans(&scan_starts, &p, later + SLOW, &all) + SLOW * PAUSE_FACTOR;
        scan_starts.record(&p, &ScanRanges::all(), (later, SLOW), std::iter::empty());
        assert!(scan_starts.ranges(&p, later + SLOW * PAUSE_FACTOR).is_part());
        scan_starts.record(&p, &ScanRanges::all(), (later, SLOW / 2), std::iter::empty());
        assert_eq!(scan_starts.ranges(&p, later), ScanRanges::all());
        scan_starts.record(&p, &ScanRanges::all(), (later, SLOW), all.into_iter());
        assert_eq!(scan_starts.ranges(&p, later), ScanRanges::all());
    }

    #[test]
    fn marks_move_forward_with_what_is_found_and_never_back() {
        let (scan_starts, p) = (ScanStarts::default(), PartitionId::new("p").unwrap());
        let all: Vec<_> = found(19, 100).collect();
        let now = slow_scans(&scan_starts, &p, Instant::now(), &all);
        let part = scan_starts.ranges(&p, now);
        scan_starts.record(&p, &part, (now, SLOW), found(19, 200));
        let further = scan_starts.ranges(&p, now);
        scan_starts.record(&p, &further, (now, SLOW), found(19, 150));
        assert!(part.positions < further.positions);
        assert_eq!(scan_starts.ranges(&p, now).positions, further.positions);
        scan_starts.forget(&p);
        assert_eq!(scan_starts.ranges(&p, now), ScanRanges::all());
    }
}
