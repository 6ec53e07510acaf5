//! Counts of task ends by minute.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{SeriesCell, SeriesKey, TaskEnd, first_minute_kept};
use anyqueue::{EndState, Error, ErrorKind, Page, PartitionId, Result};
use rusqlite::{Connection, Row};

use crate::error::ERRORS;
use crate::now::moment;
use crate::sql::{all, limit_of, run};
use crate::tx::Tx;

pub(crate) const COUNT: &str = "INSERT INTO anyqueue_series
    (part, minute, kind, state, ran_bucket, waited_bucket, tasks, ran_us, waited_us)
    VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET tasks = tasks + 1,
        ran_us = ran_us + excluded.ran_us, waited_us = waited_us + excluded.waited_us";
pub(crate) const PAGE: &str =
    "SELECT minute, kind, state, ran_bucket, waited_bucket, tasks, ran_us, waited_us FROM anyqueue_series
    WHERE part = (SELECT part FROM anyqueue_partition WHERE dead = ?1 AND name = ?2)
    AND (minute, kind, state, ran_bucket, waited_bucket) > (?3, ?4, ?5, ?6, ?7) AND minute < ?8
    ORDER BY minute, kind, state, ran_bucket, waited_bucket LIMIT ?9 + 0";
pub(crate) const FREE: &str = "DELETE FROM anyqueue_series
    WHERE (part, minute, kind, state, ran_bucket, waited_bucket) IN (SELECT part, minute, kind, state,
        ran_bucket, waited_bucket FROM anyqueue_series INDEXED BY anyqueue_series_minute WHERE minute < ?
        ORDER BY minute LIMIT ? + 0)";

/// The most counters that one transaction frees. It is independent of the number of ends that are freed,
/// because a minute with few ends to keep may have many counters.
const STEP_CELLS: usize = 1000;

/// Counts an end.
pub(crate) fn count(tx: &Tx<'_>, part: i64, end: &TaskEnd) -> Result<()> {
    let SeriesCell { key, ran, waited, .. } = SeriesCell::of(end, moment(tx.now.ms));
    let row = (
        part,
        number(key.minute),
        kind(key.kind.as_deref()),
        key.state.code(),
        key.ran_bucket,
        key.waited_bucket,
        micros(ran),
        micros(waited),
    );
    run(tx.conn, COUNT, row).map(drop)
}

/// Frees some counts of minutes that are no longer kept. Returns whether none are left.
pub(crate) fn free(tx: &Tx<'_>) -> Result<bool> {
    let first = number(first_minute_kept(moment(tx.now.ms)));
    Ok(run(tx.conn, FREE, (first, limit_of(STEP_CELLS)))? < STEP_CELLS)
}

/// Returns a page of the counts of these minutes.
pub(crate) fn page(
    conn: &Connection,
    partition: &PartitionId,
    minutes: &Range<u64>,
    page: &Page<SeriesKey>,
) -> Result<Vec<SeriesCell>> {
    let (dead, name, end) = (partition.is_dead_letters(), partition.name(), number(minutes.end));
    // This sorts before the first key of its minute, since there is no state 0.
    let mut after = (number(minutes.start), &[][..], 0, 0, 0);
    if let Some(key) = page.after.as_ref().filter(|key| key.minute >= minutes.start) {
        let SeriesKey { state, ran_bucket, waited_bucket, .. } = *key;
        after = (number(key.minute), kind(key.kind.as_deref()), state.code(), ran_bucket, waited_bucket);
    }
    let (minute, kind, state, ran, waited) = after;
    let key = (dead, name, minute, kind, state, ran, waited, end, limit_of(page.limit));
    all(conn, PAGE, key, Line::read)?.into_iter().map(Line::cell).collect()
}

fn kind(kind: Option<&str>) -> &[u8] {
    kind.unwrap_or_default().as_bytes()
}

fn number(minute: u64) -> i64 {
    i64::try_from(minute).unwrap_or(i64::MAX)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// A counter, as it is stored.
struct Line {
    minute: i64,
    kind: Vec<u8>,
    state: u8,
    buckets: (u8, u8),
    tasks: i64,
    ran_us: i64,
    waited_us: i64,
}

impl Line {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            minute: row.get(0)?,
            kind: row.get(1)?,
            state: row.get(2)?,
            buckets: (row.get(3)?, row.get(4)?),
            tasks: row.get(5)?,
            ran_us: row.get(6)?,
            waited_us: row.get(7)?,
        })
    }

    fn cell(self) -> Result<SeriesCell> {
        let kind = String::from_utf8(self.kind).map_err(damaged)?;
        let (ran_bucket, waited_bucket) = self.buckets;
        let key = SeriesKey {
            minute: self.minute.unsigned_abs(),
            kind: Some(kind).filter(|kind| !kind.is_empty()).map(Arc::from),
            state: EndState::from_code(self.state)?,
            ran_bucket,
            waited_bucket,
        };
        let micros = |micros: i64| Duration::from_micros(micros.unsigned_abs());
        let tasks = self.tasks.unsigned_abs();
        Ok(SeriesCell::new(key, tasks, micros(self.ran_us), micros(self.waited_us)))
    }
}

fn damaged(error: std::string::FromUtf8Error) -> Error {
    ERRORS.error(ErrorKind::Corrupt, "the kind of a counter of ends is no text").with_source(error)
}
