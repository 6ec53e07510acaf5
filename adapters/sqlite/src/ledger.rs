//! The ends of tasks: changes are sent to the writer, reads bypass it.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use anyqueue::adapter::{
    Cancelled, EndedCursor, EndedQuery, EndedTask, LedgerQueueStorage, SeriesCell, SeriesKey, TaskEnd,
    async_trait,
};
use anyqueue::{CancelOutcome, EndState, Error, MessageId, Operation, Page, PartitionId, Result};
use rusqlite::{Connection, Row};

use crate::SqliteQueue;
use crate::admin::{Admin, AdminAnswer};
use crate::ends::NewEnd;
use crate::error::NAME;
use crate::now::{Now, moment};
use crate::series;
use crate::sql::{all, first, limit_of};

/// How many transactions of one purge may free no ends but only counts.
const MOST_WITHOUT_ENDS: usize = 250;

/// Selects ends in one state, the newest first, that come after a moment and an id in this order.
macro_rules! in_state {
    ($code:literal, $bit:literal) => {
        concat!(
            "SELECT id, ended_ms, expires_ms, body FROM anyqueue_ended INDEXED BY anyqueue_ended_moment
            WHERE part = (SELECT part FROM anyqueue_partition WHERE dead = ?1 AND name = ?2) AND state = ",
            $code,
            " AND ended_ms >= ?3 AND (ended_ms, id) < (?4, ?5)
            AND (expires_ms IS NULL OR expires_ms > ?6) AND ?7 & ",
            $bit
        )
    };
}

/// Merges the rows of all states, each of which is in order. A state that is not asked for is not read.
pub(crate) const PAGE: &str = concat!(
    in_state!(1, 2),
    " UNION ALL ",
    in_state!(2, 4),
    " UNION ALL ",
    in_state!(3, 8),
    " UNION ALL ",
    in_state!(4, 16),
    " ORDER BY ended_ms DESC, id DESC LIMIT ?8 + 0"
);

pub(crate) const COUNT: &str =
    "SELECT count(*) FROM (SELECT 1 FROM anyqueue_ended INDEXED BY anyqueue_ended_moment
    WHERE part = (SELECT part FROM anyqueue_partition WHERE dead = ?1 AND name = ?2)
    AND state IN (?3, ?4, ?5, ?6) AND ended_ms >= ?7 AND ended_ms < ?8
    AND (expires_ms IS NULL OR expires_ms > ?9) LIMIT ?10 + 0)";

pub(crate) const FIND: &str = "SELECT id, ended_ms, expires_ms, body, result FROM anyqueue_ended
    WHERE part = (SELECT part FROM anyqueue_partition WHERE dead = ?1 AND name = ?2) AND id = ?3
    AND (expires_ms IS NULL OR expires_ms > ?4)";

/// A query, in the terms of the file.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    states: [Option<u8>; EndState::ALL.len()],
    since_ms: i64,
    before_ms: i64,
}

impl Wanted {
    fn of(query: &EndedQuery) -> Self {
        let asks = |state: &EndState| query.states.is_empty() || query.states.contains(state);
        let states = EndState::ALL.map(|state| asks(&state).then_some(state.code()));
        // Stored moments are whole milliseconds, so any bound can be rounded up to the next one.
        let since_ms = query.since.map_or(0, ceil_ms);
        Self { states, since_ms, before_ms: query.before.map_or(i64::MAX, ceil_ms) }
    }

    fn mask(&self) -> i64 {
        self.states.iter().flatten().map(|code| 1_i64 << code).sum()
    }
}

fn ceil_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// One row, as it is stored.
struct Line {
    id: [u8; 16],
    ended_ms: i64,
    expires_ms: Option<i64>,
    body: Vec<u8>,
    result: Option<Vec<u8>>,
}

impl Line {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (id, ended_ms, expires_ms, body) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(Self { id, ended_ms, expires_ms, body, result: None })
    }

    fn read_whole(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { result: row.get(4)?, ..Self::read(row)? })
    }

    fn ended(self) -> Result<EndedTask> {
        let mut end = TaskEnd::decode(&self.body)?;
        end.result = self.result.map(Into::into);
        let ended_at = moment(self.ended_ms);
        let expires_at = self.expires_ms.map(moment);
        Ok(EndedTask::new(MessageId::from_bytes(self.id), ended_at, expires_at, Arc::new(end)))
    }
}

fn page_of(
    conn: &Connection,
    partition: &PartitionId,
    wanted: Wanted,
    page: &Page<EndedCursor>,
    now: Now,
) -> Result<Vec<EndedTask>> {
    let mut before = (wanted.before_ms, &[][..]);
    if let Some(after) = &page.after {
        let at_ms = ceil_ms(after.ended_at);
        // Of the ends at the moment of the cursor, those with lesser ids are left. If the cursor is between
        // two milliseconds, all earlier ones are.
        let is_whole = moment(at_ms) == after.ended_at;
        before = before.min((at_ms, if is_whole { after.id.as_bytes() } else { &[] }));
    }
    let (dead, name) = (partition.is_dead_letters(), partition.name());
    let key = (dead, name, wanted.since_ms, before.0, before.1, now.ms, wanted.mask(), limit_of(page.limit));
    all(conn, PAGE, key, Line::read)?.into_iter().map(Line::ended).collect()
}

fn count(conn: &Connection, partition: &PartitionId, wanted: Wanted, cap: u64, now: Now) -> Result<u64> {
    let [a, b, c, d] = wanted.states;
    let (dead, name) = (partition.is_dead_letters(), partition.name());
    let cap = i64::try_from(cap).unwrap_or(i64::MAX);
    let key = (dead, name, a, b, c, d, wanted.since_ms, wanted.before_ms, now.ms, cap);
    Ok(first(conn, COUNT, key, |row| row.get::<_, i64>(0))?.unwrap_or(0).unsigned_abs())
}

fn stamp(error: Error) -> Error {
    error.with_backend(NAME).with_operation(Operation::Inspect)
}

impl SqliteQueue {
    /// Sends a request to the writer. Returns `count` results, in order.
    async fn write<T>(
        &self,
        request: Result<Admin>,
        count: usize,
        read: impl FnOnce(AdminAnswer) -> Vec<T>,
    ) -> Vec<Result<T>> {
        let answer = match request {
            Ok(request) => self.admin(request, Operation::Inspect).await,
            Err(error) => Err(stamp(error)),
        };
        match answer {
            Ok(answer) => read(answer).into_iter().map(Ok).collect(),
            Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
        }
    }
}

#[async_trait]
impl LedgerQueueStorage for SqliteQueue {
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        let prepared =
            ends.iter().map(|(id, end)| Ok((*id, NewEnd::prepare(end)?))).collect::<Result<Vec<_>>>();
        let partition = partition.clone();
        let request = prepared.map(|ends| Admin::Record { partition, ends });
        self.write(request, ends.len(), |_| vec![(); ends.len()]).await
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        let (partition, wanted) = (partition.clone(), Wanted::of(query));
        let now = Now::of(&self.inner.config.clock);
        self.read(Operation::Inspect, move |conn| page_of(conn, &partition, wanted, &page, now)).await
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        let (partition, wanted) = (partition.clone(), Wanted::of(query));
        let now = Now::of(&self.inner.config.clock);
        self.read(Operation::Inspect, move |conn| count(conn, &partition, wanted, cap, now)).await
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        let (partition, wanted) = (partition.clone(), ids.to_vec());
        let now = Now::of(&self.inner.config.clock);
        let read = move |conn: &Connection| {
            let find = |id: &MessageId| {
                let key = (partition.is_dead_letters(), partition.name(), id.as_bytes(), now.ms);
                first(conn, FIND, key, Line::read_whole)
            };
            wanted.iter().map(find).collect::<Result<Vec<_>>>()
        };
        match self.read(Operation::Inspect, read).await {
            Ok(lines) => {
                lines.into_iter().map(|line| line.map(Line::ended).transpose().map_err(stamp)).collect()
            }
            Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        let request = Admin::DeleteEnds { partition: partition.clone(), ids: ids.to_vec() };
        let deleted = |answer| match answer {
            AdminAnswer::EndsDeleted(deleted) => deleted,
            _ => vec![false; ids.len()],
        };
        self.write(Ok(request), ids.len(), deleted).await
    }

    /// Works in transactions of about 10 ms, so that other requests have their turn in between.
    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        let (mut purged, mut without_ends) = (0, 0);
        while purged < limit && without_ends < MOST_WITHOUT_ENDS {
            let request = Admin::FreeEnds { limit: limit - purged };
            let AdminAnswer::EndsFreed(freed) = self.admin(request, Operation::Inspect).await? else { break };
            purged += freed.count;
            without_ends += usize::from(freed.count == 0);
            if freed.is_all {
                break;
            }
        }
        Ok(purged)
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        let partition = partition.clone();
        self.read(Operation::Inspect, move |conn| series::page(conn, &partition, &minutes, &page)).await
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        let prepare = |task: &Cancelled| Ok((task.id, task.end.as_ref().map(NewEnd::prepare).transpose()?));
        let prepared = tasks.iter().map(prepare).collect::<Result<Vec<_>>>();
        let partition = partition.clone();
        let request = prepared.map(|tasks| Admin::Cancel { partition, tasks });
        let outcomes = |answer| match answer {
            AdminAnswer::Cancelled(outcomes) => outcomes,
            _ => vec![CancelOutcome::NotFound; tasks.len()],
        };
        self.write(request, tasks.len(), outcomes).await
    }
}
