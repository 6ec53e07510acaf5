//! Storing and freeing the ends of tasks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{TaskEnd, is_of_facts};
use anyqueue::{MessageId, PartitionId, Result};

use crate::series;
use crate::sql::{all, first, limit_of, run};
use crate::tx::Tx;

/// Replaces an earlier end of the same task.
pub(crate) const STORE: &str =
    "INSERT OR REPLACE INTO anyqueue_ended (part, id, state, ended_ms, expires_ms, rank, body, result)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
/// Does nothing if an end of the same or a greater rank exists, unless that one has expired.
pub(crate) const RECORD: &str =
    "INSERT INTO anyqueue_ended (part, id, state, ended_ms, expires_ms, rank, body, result)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (part, id) DO UPDATE SET state = excluded.state,
        ended_ms = excluded.ended_ms, expires_ms = excluded.expires_ms, rank = excluded.rank,
        body = excluded.body, result = excluded.result
    WHERE excluded.rank > anyqueue_ended.rank OR anyqueue_ended.expires_ms <= excluded.ended_ms";
/// Finds an end that has not expired.
pub(crate) const RANK: &str = "SELECT rank FROM anyqueue_ended WHERE part = ?1 AND id = ?2
    AND (expires_ms IS NULL OR expires_ms > ?3)";
/// The lowest bit of the generation in a rank.
const GENERATION_BIT: u32 = 48;
/// Returns whether the end had not expired yet.
pub(crate) const DELETE: &str = "DELETE FROM anyqueue_ended WHERE part = ? AND id = ?
    RETURNING expires_ms IS NULL OR expires_ms > ?";
pub(crate) const LAPSED: &str =
    "SELECT part, id FROM anyqueue_ended WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ? + 0";
pub(crate) const FREE: &str = "DELETE FROM anyqueue_ended WHERE part = ? AND id = ?";

/// How long one transaction frees expired ends: about as long as a batch of settlements takes.
const STEP: Duration = Duration::from_millis(10);
/// The most ends that one transaction frees.
const STEP_ENDS: usize = 1000;

/// An end, prepared to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewEnd {
    end: Arc<TaskEnd>,
    body: Vec<u8>,
}

/// What one transaction freed.
#[derive(Debug)]
pub(crate) struct Freed {
    pub(crate) count: usize,
    /// Whether nothing is left to be freed: no expired end, and no count that is too old to be kept.
    pub(crate) is_all: bool,
}

impl NewEnd {
    pub(crate) fn prepare(end: &Arc<TaskEnd>) -> Result<Self> {
        Ok(Self { body: end.encode()?, end: Arc::clone(end) })
    }

    pub(crate) fn has_result(&self) -> bool {
        self.end.result.is_some()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.body.len() + self.end.result.as_ref().map_or(0, anyqueue::Bytes::len)
    }
}

/// Stores an end, in place of an earlier one.
pub(crate) fn store(tx: &Tx<'_>, part: i64, id: MessageId, new: &NewEnd) -> Result<()> {
    put(tx, STORE, part, id, new)
}

/// Counts the end of a cancelled task, and stores it if it is to be kept.
pub(crate) fn cancelled(tx: &Tx<'_>, part: i64, id: MessageId, new: &NewEnd) -> Result<()> {
    series::count(tx, part, &new.end)?;
    if new.end.is_kept() { store(tx, part, id, new) } else { Ok(()) }
}

/// Stores ends, except where a greater one of the same task exists. Each is counted if none of its generation
/// was stored; ends in a partition of facts are not counted.
pub(crate) fn record(tx: &mut Tx<'_>, partition: &PartitionId, ends: &[(MessageId, NewEnd)]) -> Result<()> {
    let (part, counts) = (tx.make(partition)?, !is_of_facts(partition));
    for (id, new) in ends {
        if counts && is_new(tx, part, *id, &new.end)? {
            series::count(tx, part, &new.end)?;
        }
        if new.end.is_kept() {
            put(tx, RECORD, part, *id, new)?;
        }
    }
    Ok(())
}

/// Whether no end of this task is stored that is of its generation or a later one.
fn is_new(tx: &Tx<'_>, part: i64, id: MessageId, end: &TaskEnd) -> Result<bool> {
    let former = first(tx.conn, RANK, (part, id.as_bytes(), tx.now.ms), |row| row.get::<_, i64>(0))?;
    let generation = |rank: u64| rank >> GENERATION_BIT;
    Ok(former.is_none_or(|rank| generation(rank.unsigned_abs()) < generation(end.rank())))
}

fn put(tx: &Tx<'_>, statement: &str, part: i64, id: MessageId, NewEnd { end, body }: &NewEnd) -> Result<()> {
    let ended_ms = tx.now.ms;
    // If the expiry cannot be represented, the end is kept until it is deleted.
    let expires_ms = end.keep.and_then(|keep| tx.now.floor_after(keep));
    let rank = i64::try_from(end.rank()).unwrap_or(i64::MAX);
    let row =
        (part, id.as_bytes(), end.state.code(), ended_ms, expires_ms, rank, &body[..], end.result.as_deref());
    run(tx.conn, statement, row).map(drop)
}

/// Deletes ends by id. Returns for each whether there was one that had not expired.
pub(crate) fn delete(tx: &mut Tx<'_>, partition: &PartitionId, ids: &[MessageId]) -> Result<Vec<bool>> {
    let Some(part) = tx.find(partition)? else { return Ok(vec![false; ids.len()]) };
    let delete = |id: &MessageId| {
        let was_told = first(tx.conn, DELETE, (part, id.as_bytes(), tx.now.ms), |row| row.get(0))?;
        Ok(was_told.unwrap_or(false))
    };
    ids.iter().map(delete).collect()
}

/// Frees expired ends, for as long as one step may take, and some counts that are too old to be kept.
pub(crate) fn free(tx: &Tx<'_>, limit: usize) -> Result<Freed> {
    let began = Instant::now();
    let no_counts_left = series::free(tx)?;
    let limit = limit.min(STEP_ENDS);
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?));
    let lapsed = all(tx.conn, LAPSED, (tx.now.ms, limit_of(limit)), read)?;
    let is_last_page = lapsed.len() < limit;
    let mut left = lapsed.iter();
    let mut count = 0;
    while count == 0 || began.elapsed() < STEP {
        let Some((part, id)) = left.next() else { break };
        run(tx.conn, FREE, (part, id))?;
        count += 1;
    }
    Ok(Freed { count, is_all: no_counts_left && is_last_page && left.len() == 0 })
}
