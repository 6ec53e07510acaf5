//! Queries about how many tasks ended, and how long they took.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use super::guard;
use super::handle::Queue;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::inspect::{MAX_PAGE, Page};
use crate::ledger::{
    MAX_SERIES_ROWS, MAX_SERIES_STEPS, SERIES_KEPT, SeriesCell, SeriesKey, SeriesQuery, SeriesRow, minute_of,
};
use crate::partition::{IntoPartitionId, PartitionId};

/// The largest number of counters that one call reads, including those of other kinds: eight days of some ten
/// kinds, by the minute.
const MAX_CELLS: usize = 500_000;

impl Queue {
    /// Returns how many tasks of a partition ended, by time step, kind and state, and how long they waited
    /// and ran. Rows are in this order; steps in which no task ended are left out. Every settled end is
    /// counted, even one that is kept for no time, and a task that became a dead letter counts as failed. A
    /// task that is put back from there and ends again is counted again. The cost of the query depends on the
    /// time span and the number of kinds, not on the number of tasks.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use anyqueue::{EndState, Keep, MessageData, Queue, QueueMessageStatus::Processed, SeriesQuery};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let queue = Queue::builder(anyqueue_memory::MemoryQueue::new()).ledger(Keep::default()).build()?;
    /// queue.push("mail", MessageData::new("hello")).await?;
    /// queue.pull("mail").await?[0].settle(Processed).await?;
    ///
    /// let hour = SeriesQuery::since(SystemTime::now() - Duration::from_hours(1));
    /// let ended: u64 = queue.series("mail", &hour).await?.iter().map(|row| row.tasks).sum();
    /// assert_eq!(ended, 1);
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if ends are not counted;
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the query begins longer than [`SERIES_KEPT`] ago, or
    /// spans more than [`MAX_SERIES_STEPS`] steps; [`TooLarge`](ErrorKind::TooLarge) for more than
    /// [`MAX_SERIES_ROWS`] rows (use a longer step, a shorter time or a single kind), or if more than half a
    /// million counters, including those of other kinds, would have to be read (use a shorter time);
    /// otherwise the server's error.
    pub async fn series(
        &self,
        partition: impl IntoPartitionId,
        query: &SeriesQuery,
    ) -> Result<Vec<SeriesRow>> {
        let partition = partition.into_partition_id()?.live();
        if !self.capabilities().series || !self.has_ledger() {
            return Err(self.refused(guard::unsupported("count of the ends of tasks by the minute")));
        }
        let minutes = minutes_of(query, self.clock().wall()).map_err(|error| self.refused(error))?;
        let step = query.step.minutes();
        let mut rows = BTreeMap::new();
        let (mut after, mut read) = (None, 0);
        loop {
            let page = self.series_page(&partition, minutes.clone(), after).await?;
            read += page.len();
            if read > MAX_CELLS {
                let text = "there are too many counters for this much time: ask for a shorter time";
                return Err(self.refused(Error::new(ErrorKind::TooLarge, text)));
            }
            for cell in &page {
                if query.kind.as_ref().is_none_or(|kind| cell.key.kind.as_ref() == Some(kind)) {
                    count(&mut rows, step, cell);
                }
            }
            if rows.len() > MAX_SERIES_ROWS {
                let text = format!(
                    "there are more than {MAX_SERIES_ROWS} rows: ask for a longer step, a shorter time, or one kind"
                );
                return Err(self.refused(Error::new(ErrorKind::TooLarge, text)));
            }
            match page.last() {
                Some(last) if page.len() >= MAX_PAGE => after = Some(last.key.clone()),
                _ => return Ok(rows.into_values().collect()),
            }
        }
    }

    async fn series_page(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        after: Option<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        let partition = partition.clone();
        let mut page = Page::of(MAX_PAGE);
        page.after = after;
        self.ledger(move |ledger| Box::pin(async move { ledger.series(&partition, minutes, page).await }))
            .await
    }

    fn refused(&self, error: Error) -> Error {
        self.0.stamp(error, Operation::Inspect)
    }
}

/// Adds a cell to its row. Rows are ordered by time, kind and state.
fn count(rows: &mut BTreeMap<SeriesKey, SeriesRow>, step: u64, cell: &SeriesCell) {
    let SeriesKey { minute, kind, state, .. } = &cell.key;
    let first = minute - minute % step;
    let key = SeriesKey { minute: first, ran_bucket: 0, waited_bucket: 0, ..cell.key.clone() };
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(first.saturating_mul(60)));
    let row = || SeriesRow::new(at.unwrap_or(SystemTime::UNIX_EPOCH), kind.clone(), *state);
    rows.entry(key).or_insert_with(row).count(cell);
}

/// Returns the minutes that the query asks for, unless they are too many.
fn minutes_of(query: &SeriesQuery, now: SystemTime) -> Result<Range<u64>> {
    let kept = humantime::format_duration(SERIES_KEPT);
    let (first, this) = (minute_of(query.since), minute_of(now));
    if first + SERIES_KEPT.as_secs() / 60 + 1 < this {
        return Err(Error::invalid(format!(
            "the ends of tasks are counted for {kept}: ask from a later time on"
        )));
    }
    // The server's clock may be ahead, and a minute that has begun counts.
    let end = query.before.map_or(u64::MAX, |before| {
        let since_1970 = before.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        minute_of(before) + u64::from(since_1970.as_nanos() % MINUTE_NANOS > 0)
    });
    let until = end.min(this.saturating_add(AHEAD_MINUTES));
    let steps = until.saturating_sub(first) / query.step.minutes();
    if steps > MAX_SERIES_STEPS {
        return Err(Error::invalid(format!(
            "{steps} time steps at once: at most {MAX_SERIES_STEPS} are returned; ask for a longer step or a shorter time"
        )));
    }
    Ok(first..until.max(first))
}

const MINUTE_NANOS: u128 = 60_000_000_000;
/// How far the server's clock may be ahead of this one before an end that has just happened is missed.
const AHEAD_MINUTES: u64 = 5;
