//! Reading counts of task ends by minute.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{SeriesCell, SeriesKey};
use anyqueue::{EndState, Operation, Page, PartitionId, Result};
use redis::Value;

use crate::RedisQueue;
use crate::error::unexpected_reply;
use crate::reply::{bytes, list, text};
use crate::script;

/// How many fields a counter has: the number of tasks, and how long they ran and waited.
const FIELDS: u64 = 3;

impl RedisQueue {
    /// Returns a page. Whole minutes are read until it is full.
    pub(crate) async fn series_page(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        let mut first = page.after.as_ref().map_or(minutes.start, |after| after.minute.max(minutes.start));
        let is_later = |key: &SeriesKey| page.after.as_ref().is_none_or(|after| key > after);
        let mut cells = Vec::new();
        while cells.len() < page.limit && first < minutes.end {
            // The minute of the cursor is read as a whole, so it may contribute nothing.
            let most = FIELDS.saturating_mul(page.limit as u64);
            let mut call = self.new_call(&script::SERIES, partition, 3, 64);
            call.int(first).int(minutes.end).int(most);
            let mut answer = list(self.run(&call, Operation::Inspect).await?)?.into_iter();
            let last = text(answer.next().ok_or_else(unexpected_reply)?)?;
            while let (Some(minute), Some(fields)) = (answer.next(), answer.next()) {
                let minute = number(bytes(minute)?)?;
                cells.extend(read(minute, list(fields)?)?.into_values().filter(|cell| is_later(&cell.key)));
            }
            if last.is_empty() {
                break;
            }
            first = number(last.into_bytes())?.saturating_add(1);
        }
        cells.truncate(page.limit);
        Ok(cells)
    }
}

/// Reads the counters of a minute, in order.
fn read(minute: u64, fields: Vec<Value>) -> Result<BTreeMap<SeriesKey, SeriesCell>> {
    let (mut cells, mut fields) = (BTreeMap::new(), fields.into_iter());
    while let (Some(field), Some(count)) = (fields.next(), fields.next()) {
        let (field, count) = (bytes(field)?, number(bytes(count)?)?);
        let [what, state, ran_bucket, waited_bucket, kind @ ..] = field.as_slice() else {
            return Err(unexpected_reply());
        };
        let kind = std::str::from_utf8(kind).map_err(|_| unexpected_reply())?;
        let key = SeriesKey {
            minute,
            kind: Some(kind).filter(|kind| !kind.is_empty()).map(Arc::from),
            state: EndState::from_code(*state)?,
            ran_bucket: *ran_bucket,
            waited_bucket: *waited_bucket,
        };
        let empty = || SeriesCell::new(key.clone(), 0, Duration::ZERO, Duration::ZERO);
        let cell = cells.entry(key.clone()).or_insert_with(empty);
        match what {
            b'n' => cell.tasks = count,
            b'r' => cell.ran = Duration::from_micros(count),
            b'w' => cell.waited = Duration::from_micros(count),
            _ => return Err(unexpected_reply()),
        }
    }
    Ok(cells)
}

fn number(digits: Vec<u8>) -> Result<u64> {
    let text = String::from_utf8(digits).map_err(|_| unexpected_reply())?;
    text.parse().map_err(|_| unexpected_reply())
}
