//! Counters of task ends by minute.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Bound, Range};
use std::time::SystemTime;

use anyqueue::adapter::{SeriesCell, SeriesKey, TaskEnd, first_minute_kept};
use anyqueue::{EndState, Page, PartitionId};

/// The limit for the number of counters. When it is reached, the oldest one is dropped, in whichever
/// partition it is.
const MAX_CELLS: usize = 500_000;

#[derive(Debug, Default)]
pub(crate) struct Series {
    partitions: HashMap<PartitionId, BTreeMap<SeriesKey, SeriesCell>>,
    /// The minutes that have counters, with their partitions. The oldest counter is in the first.
    minutes: BTreeSet<(u64, PartitionId)>,
    cells: usize,
}

impl Series {
    pub(crate) fn count(&mut self, partition: &PartitionId, end: &TaskEnd, now: SystemTime) {
        self.count_up_to(MAX_CELLS, partition, end, now);
    }

    fn count_up_to(&mut self, most: usize, partition: &PartitionId, end: &TaskEnd, now: SystemTime) {
        let cell = SeriesCell::of(end, now);
        let there = self.partitions.get_mut(partition).and_then(|cells| cells.get_mut(&cell.key));
        if let Some(there) = there {
            return there.add(&cell);
        }
        while self.cells >= most && self.pop_first() {}
        self.minutes.insert((cell.key.minute, partition.clone()));
        self.partitions.entry(partition.clone()).or_default().insert(cell.key.clone(), cell);
        self.cells += 1;
    }

    /// Frees the oldest counter, if there is one.
    fn pop_first(&mut self) -> bool {
        let Some((minute, partition)) = self.minutes.first() else { return false };
        let Some(cells) = self.partitions.get_mut(partition) else { return false };
        self.cells -= usize::from(cells.pop_first().is_some());
        let next = cells.first_key_value().map(|(key, _)| key.minute);
        if next.is_none() {
            self.partitions.remove(partition);
        }
        if next != Some(*minute) {
            self.minutes.pop_first();
        }
        true
    }

    pub(crate) fn page(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: &Page<SeriesKey>,
    ) -> Vec<SeriesCell> {
        let Some(cells) = self.partitions.get(partition) else { return Vec::new() };
        let first = match page.after.clone() {
            Some(after) if after >= first_of(minutes.start) => Bound::Excluded(after),
            _ => Bound::Included(first_of(minutes.start)),
        };
        let within = cells.range((first, Bound::Unbounded)).take_while(|(key, _)| key.minute < minutes.end);
        within.take(page.limit).map(|(_, cell)| cell.clone()).collect()
    }

    /// Frees up to `limit` counters that are too old to be kept, and returns how many.
    pub(crate) fn purge(&mut self, now: SystemTime, limit: usize) -> usize {
        let (first, mut freed) = (first_minute_kept(now), 0);
        let is_old = |(minute, _): &(u64, PartitionId)| *minute < first;
        while freed < limit && self.minutes.first().is_some_and(is_old) && self.pop_first() {
            freed += 1;
        }
        freed
    }
}

/// A key that sorts before all other keys of its minute.
fn first_of(minute: u64) -> SeriesKey {
    SeriesKey { minute, kind: None, state: EndState::Cancelled, ran_bucket: 0, waited_bucket: 0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyqueue::SERIES_KEPT;

    use super::*;

    #[test]
    fn counts_go_when_their_time_is_over_or_there_are_too_many_the_oldest_first() {
        let p = PartitionId::new("p").unwrap();
        let minute = |n| SystemTime::UNIX_EPOCH + Duration::from_mins(n);
        let end = TaskEnd::new(EndState::Succeeded);
        let mut series = Series::default();
        let minutes = |series: &Series| -> Vec<u64> {
            series.page(&p, 0..u64::MAX, &Page::of(10)).iter().map(|cell| cell.key.minute).collect()
        };
        for n in 1..=4 {
            series.count_up_to(3, &p, &end, minute(n));
        }
        assert_eq!(minutes(&series), [2, 3, 4]);
        let after = minute(4) + SERIES_KEPT;
        series.purge(after, 1);
        assert_eq!(minutes(&series), [3, 4], "one at once");
        series.purge(after, 10);
        assert_eq!(
            minutes(&series),
            [3, 4],
            "one more than is kept stays, so that the whole time can be asked for"
        );
        series.purge(after + Duration::from_mins(2), 10);
        assert_eq!((minutes(&series), series.cells, series.partitions.len()), (vec![], 0, 0));
    }

    #[test]
    fn there_are_never_more_however_many_partitions_come() {
        let part = |n: u64| PartitionId::new(&n.to_string()).unwrap();
        let minute = |n| SystemTime::UNIX_EPOCH + Duration::from_mins(n);
        let mut series = Series::default();
        let of = |series: &Series, n| series.page(&part(n), 0..u64::MAX, &Page::of(10)).len();
        for state in EndState::ALL {
            series.count_up_to(4, &part(0), &TaskEnd::new(state), minute(7));
        }
        for n in 1..=10 {
            series.count_up_to(4, &part(n), &TaskEnd::new(EndState::Succeeded), minute(7 + n));
            assert_eq!((series.cells, of(&series, n)), (4, 1));
        }
        assert_eq!(
            (6..=10).map(|n| of(&series, n)).collect::<Vec<_>>(),
            [0, 1, 1, 1, 1],
            "the oldest go first"
        );
        assert_eq!((series.partitions.len(), series.minutes.len()), (4, 4));
        series.count_up_to(4, &part(20), &TaskEnd::new(EndState::Succeeded), minute(1));
        assert_eq!((series.cells, of(&series, 20)), (4, 1), "a clock that was put back");
    }
}
