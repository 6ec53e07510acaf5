//! The ends of tasks: as columns of the statements that store them, and as they are read.

use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::{EndedTask, SeriesCell, Settlement, TaskEnd};
use anyqueue::{Bytes, MessageId, Result};
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use uuid::Uuid;

use crate::limits::BATCH_BYTES;
use crate::sql::{get, millis};

/// Ends that are kept for longer than this many milliseconds are kept until they are deleted: some thousands
/// of years, which every clock can represent.
const MAX_KEEP_MS: i64 = 1 << 47;
/// The wire size of an end's numbers and lengths.
const END_BYTES: usize = 72;

/// The end of a task, encoded.
pub(crate) struct EncodedEnd<'e> {
    state: i16,
    keep_ms: Option<i64>,
    rank: i64,
    /// `None` if the end is only counted.
    body: Option<Vec<u8>>,
    result: Option<&'e [u8]>,
    kind: Option<Arc<str>>,
    ran_us: i64,
    waited_us: i64,
}

impl<'e> EncodedEnd<'e> {
    /// An end that is counted and, unless its time to be kept is zero, stored.
    pub(crate) fn of(end: &'e TaskEnd) -> Result<Self> {
        let mut encoded = Self::only_counted(end);
        if end.is_kept() {
            encoded.body = Some(end.encode()?);
            encoded.result = end.result.as_deref();
        }
        Ok(encoded)
    }

    /// The end that a settlement stores or counts.
    pub(crate) fn of_settlement(settlement: &'e Settlement) -> Result<Option<Self>> {
        let Some(end) = settlement.counted_end() else { return Ok(None) };
        if settlement.stored_end().is_some() {
            Self::of(end).map(Some)
        } else {
            Ok(Some(Self::only_counted(end)))
        }
    }

    fn only_counted(end: &TaskEnd) -> Self {
        // The server determines the minute.
        let SeriesCell { key, ran, waited, .. } = SeriesCell::of(end, SystemTime::UNIX_EPOCH);
        Self {
            state: i16::from(end.state.code()),
            keep_ms: end.keep.map(millis).filter(|keep_ms| *keep_ms <= MAX_KEEP_MS),
            rank: i64::try_from(end.rank()).unwrap_or(i64::MAX),
            body: None,
            result: None,
            kind: key.kind,
            ran_us: micros(ran),
            waited_us: micros(waited),
        }
    }

    /// The approximate wire size.
    pub(crate) fn bytes(&self) -> usize {
        let kind = self.kind.as_ref().map_or(0, |kind| kind.len());
        END_BYTES + kind + self.body.as_ref().map_or(0, Vec::len) + self.result.map_or(0, <[u8]>::len)
    }
}

/// Ends, as columns. The column of results is empty if there are none.
#[derive(Default)]
pub(crate) struct EndColumns<'a> {
    owners: Vec<i32>,
    states: Vec<i16>,
    keeps_ms: Vec<Option<i64>>,
    ranks: Vec<i64>,
    bodies: Vec<Option<&'a [u8]>>,
    results: Vec<Option<&'a [u8]>>,
    kinds: Vec<&'a [u8]>,
    rans_us: Vec<i64>,
    waits_us: Vec<i64>,
    bytes: usize,
}

impl<'a> EndColumns<'a> {
    /// Columns of these ends, each with the number of its owner, from 1.
    pub(crate) fn of(ends: impl Iterator<Item = (i32, &'a EncodedEnd<'a>)>) -> Self {
        let mut columns = Self::default();
        for (owner, end) in ends {
            columns.owners.push(owner);
            columns.states.push(end.state);
            columns.keeps_ms.push(end.keep_ms);
            columns.ranks.push(end.rank);
            columns.bodies.push(end.body.as_deref());
            columns.results.push(end.result);
            columns.kinds.push(end.kind.as_deref().unwrap_or_default().as_bytes());
            columns.rans_us.push(end.ran_us);
            columns.waits_us.push(end.waited_us);
            columns.bytes += end.bytes();
        }
        if columns.results.iter().all(Option::is_none) {
            columns.results.clear();
        }
        columns
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The approximate wire size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Binds the owners and the columns. If there are none, the statement has no parameters for them, and
    /// nothing is bound.
    pub(crate) fn bind(self, query: Query<'a, Postgres, PgArguments>) -> Query<'a, Postgres, PgArguments> {
        if self.is_empty() {
            return query;
        }
        let owners = self.owners.clone();
        self.bind_all(query.bind(owners))
    }

    /// Binds the columns without the owners, for statements in which each owner has an end.
    pub(crate) fn bind_all(
        mut self,
        query: Query<'a, Postgres, PgArguments>,
    ) -> Query<'a, Postgres, PgArguments> {
        let (kinds, rans_us, waits_us) =
            (take(&mut self.kinds), take(&mut self.rans_us), take(&mut self.waits_us));
        self.bind_stored(query).bind(kinds).bind(rans_us).bind(waits_us)
    }

    /// Binds the columns that are stored, without those that are only counted.
    pub(crate) fn bind_stored(
        self,
        query: Query<'a, Postgres, PgArguments>,
    ) -> Query<'a, Postgres, PgArguments> {
        let query = query.bind(self.states).bind(self.keeps_ms).bind(self.ranks);
        query.bind(self.bodies).bind(self.results)
    }
}

/// Splits items into runs of about as many bytes as a statement can carry.
pub(crate) fn runs<T>(items: &[T], bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let (mut runs, mut begin, mut sum) = (Vec::new(), 0, 0);
    for (index, item) in items.iter().enumerate() {
        sum += bytes(item);
        if sum > BATCH_BYTES && index > begin {
            runs.extend(items.get(begin..index));
            (begin, sum) = (index, bytes(item));
        }
    }
    runs.extend(items.get(begin..).filter(|last| !last.is_empty()));
    runs
}

/// Reads an end from its columns: id, moment, expiry, stored end and, if `has_result`, the result.
pub(crate) fn read_end(row: &PgRow, has_result: bool) -> Result<EndedTask> {
    let id = MessageId::from_bytes(*get::<Uuid>(row, 0)?.as_bytes());
    let mut end = TaskEnd::decode(get(row, 3)?)?;
    if has_result {
        end.result = get::<Option<&[u8]>>(row, 4)?.map(Bytes::copy_from_slice);
    }
    let expires_at = get::<Option<i64>>(row, 2)?.map(moment);
    Ok(EndedTask::new(id, moment(get(row, 1)?), expires_at, Arc::new(end)))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn moment(since_1970_ms: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(since_1970_ms).unwrap_or(0))
}

/// Returns the first whole millisecond since 1970 that is not before this time.
pub(crate) fn since_1970_ms(time: SystemTime) -> i64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, millis)
}

#[cfg(test)]
mod tests {
    use anyqueue::EndState;
    use anyqueue::adapter::TaskEnd;

    use super::*;

    #[test]
    fn what_is_kept_for_longer_than_clocks_can_tell_is_kept_until_it_is_deleted() {
        let keep_ms = |keep| {
            let end = TaskEnd::new(EndState::Failed).with_keep(keep);
            EncodedEnd::of(&end).unwrap().keep_ms
        };
        assert_eq!(keep_ms(Some(Duration::from_micros(1_500))), Some(2), "never too short");
        assert_eq!(keep_ms(Some(Duration::MAX)), None);
        assert_eq!(keep_ms(None), None);
    }

    #[test]
    fn runs_have_all_items_in_order_and_none_has_too_many_bytes_unless_one_item_has() {
        let (half, whole) = (BATCH_BYTES / 2, BATCH_BYTES + 1);
        for (sizes, expected) in [
            (vec![], vec![]),
            (vec![1, 2, 3], vec![vec![1, 2, 3]]),
            (vec![half, half, half, 1], vec![vec![half, half], vec![half, 1]]),
            (vec![whole, whole, 5], vec![vec![whole], vec![whole], vec![5]]),
        ] {
            assert_eq!(runs(&sizes, |size| *size), expected);
        }
    }

    #[test]
    fn bounds_in_time_are_rounded_up_to_where_they_let_in_the_same_moments() {
        let at = |micros| SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
        assert_eq!([0, 1, 1_000, 1_001].map(|micros| since_1970_ms(at(micros))), [0, 1, 1, 2]);
        assert_eq!(since_1970_ms(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), 0);
    }
}
