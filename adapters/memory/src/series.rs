//! Counters of ends, by the minute.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};
use std::time::SystemTime;

use anyqueue::adapter::{SeriesCell, SeriesKey, TaskEnd, first_minute_kept};
use anyqueue::{EndState, Page, PartitionId};

/// The most counters. Beyond them the oldest one of the partition that gets a new one goes.
const MAX_CELLS: usize = 500_000;

#[derive(Debug, Default)]
pub(crate) struct Series {
    partitions: HashMap<PartitionId, BTreeMap<SeriesKey, SeriesCell>>,
    cells: usize,
}

impl Series {
    pub(crate) fn count(&mut self, partition: &PartitionId, end: &TaskEnd, now: SystemTime) {
        self.count_up_to(MAX_CELLS, partition, end, now);
    }

    fn count_up_to(&mut self, most: usize, partition: &PartitionId, end: &TaskEnd, now: SystemTime) {
        let cell = SeriesCell::of(end, now);
        let cells = self.partitions.entry(partition.clone()).or_default();
        if let Some(there) = cells.get_mut(&cell.key) {
            return there.add(&cell);
        }
        if self.cells >= most && cells.pop_first().is_some() {
            self.cells -= 1;
        }
        cells.insert(cell.key.clone(), cell);
        self.cells += 1;
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

    /// Frees what is no longer kept, at most so many. Returns how many.
    pub(crate) fn purge(&mut self, now: SystemTime, limit: usize) -> usize {
        let (first, mut left) = (first_minute_kept(now), limit);
        for cells in self.partitions.values_mut() {
            while left > 0 && cells.first_key_value().is_some_and(|(key, _)| key.minute < first) {
                cells.pop_first();
                (left, self.cells) = (left - 1, self.cells - 1);
            }
        }
        self.partitions.retain(|_, cells| !cells.is_empty());
        limit - left
    }
}

/// Before every other key of its minute.
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
}
