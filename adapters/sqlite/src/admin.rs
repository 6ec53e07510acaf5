//! Writes of an operator: deleting, purging, requesting cancellation, pausing.

use anyqueue::{CancelOutcome, DeleteOutcome, MessageId, PartitionId, Result};

use crate::due::UNTIME;
use crate::place::UNBLOCK;
use crate::settle::REMOVE;
use crate::sql::{all, first, run};
use crate::tx::{DELAYED, FRONT, LEASED, Tx};

/// What an operator asks.
#[derive(Debug)]
pub(crate) enum Admin {
    Delete { partition: PartitionId, ids: Vec<MessageId> },
    Cancel { partition: PartitionId, ids: Vec<MessageId> },
    Purge { partition: PartitionId, limit: usize },
    Pause { partition: PartitionId, paused: bool },
}

/// The answer to it.
#[derive(Debug)]
pub(crate) enum AdminAnswer {
    Deleted(Vec<DeleteOutcome>),
    Cancelled(Vec<CancelOutcome>),
    Purged(usize),
    Paused,
}

pub(crate) const FIND: &str = "SELECT m.seq, m.rank, m.pos, m.grp, t.state, b.seq FROM anyqueue_message m
    LEFT JOIN anyqueue_timed t ON t.seq = m.seq
    LEFT JOIN anyqueue_blocked b ON b.part = m.part AND b.grp = m.grp AND b.pos = m.pos
    WHERE m.part = ? AND m.id = ?";
pub(crate) const UNREADY: &str =
    "DELETE FROM anyqueue_ready WHERE part = ?1 AND rank = ?2 AND pos IN (?3, ?4)";
pub(crate) const REQUEST: &str = "UPDATE anyqueue_timed SET cancel = 1 WHERE seq = ?";
pub(crate) const PAUSE: &str = "UPDATE anyqueue_partition SET paused = ? WHERE part = ?";

/// What a purge takes, in this order: followers before heads, so that no follower is promoted only to be purged.
pub(crate) const PURGE: [&str; 3] = [
    "SELECT m.seq, m.rank, m.pos, m.grp, NULL, b.seq
     FROM anyqueue_blocked b CROSS JOIN anyqueue_message m ON m.seq = b.seq WHERE b.part = ? LIMIT ? + 0",
    "SELECT m.seq, m.rank, m.pos, m.grp, t.state, NULL
     FROM anyqueue_timed t CROSS JOIN anyqueue_message m ON m.seq = t.seq WHERE t.part = ? AND t.state <> 1 LIMIT ? + 0",
    "SELECT m.seq, m.rank, m.pos, m.grp, NULL, NULL
     FROM anyqueue_ready r CROSS JOIN anyqueue_message m ON m.seq = r.seq WHERE r.part = ? LIMIT ? + 0",
];

/// A message and where it stands.
struct Found {
    seq: i64,
    rank: i64,
    pos: i64,
    group: Option<String>,
    state: Option<i64>,
    blocked: bool,
}

impl Found {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            rank: row.get(1)?,
            pos: row.get(2)?,
            group: row.get(3)?,
            state: row.get(4)?,
            blocked: row.get::<_, Option<i64>>(5)?.is_some(),
        })
    }
}

/// Does it.
pub(crate) fn act(tx: &mut Tx<'_>, request: &Admin) -> Result<AdminAnswer> {
    match request {
        Admin::Delete { partition, ids } => {
            let outcome = |found| match found {
                Some(Fate::Gone) => DeleteOutcome::Deleted,
                Some(Fate::Held(_)) => DeleteOutcome::Leased,
                None => DeleteOutcome::NotFound,
            };
            let fates = take_out(tx, partition, ids)?;
            Ok(AdminAnswer::Deleted(fates.into_iter().map(outcome).collect()))
        }
        Admin::Cancel { partition, ids } => {
            let mut outcomes = Vec::with_capacity(ids.len());
            for fate in take_out(tx, partition, ids)? {
                outcomes.push(match fate {
                    Some(Fate::Gone) => CancelOutcome::Removed,
                    Some(Fate::Held(seq)) => {
                        run(tx.conn, REQUEST, [seq])?;
                        CancelOutcome::Requested
                    }
                    None => CancelOutcome::NotFound,
                });
            }
            Ok(AdminAnswer::Cancelled(outcomes))
        }
        Admin::Purge { partition, limit } => purge(tx, partition, *limit).map(AdminAnswer::Purged),
        Admin::Pause { partition, paused } => {
            let part = tx.make(partition)?;
            run(tx.conn, PAUSE, (paused, part))?;
            if !paused {
                tx.hint_all(part);
            }
            Ok(AdminAnswer::Paused)
        }
    }
}

enum Fate {
    Gone,
    /// Leased: leases that ran out were taken back before, so this one holds.
    Held(i64),
}

/// Deletes those that are not leased. Answers the fate of each id.
fn take_out(tx: &mut Tx<'_>, partition: &PartitionId, ids: &[MessageId]) -> Result<Vec<Option<Fate>>> {
    let Some(part) = tx.find(partition)? else { return Ok(ids.iter().map(|_| None).collect()) };
    tx.bring(part)?;
    let mut fates = Vec::with_capacity(ids.len());
    for id in ids {
        fates.push(match first(tx.conn, FIND, (part, id.as_bytes()), Found::read)? {
            Some(message) if message.state == Some(LEASED) => Some(Fate::Held(message.seq)),
            Some(message) => {
                discard(tx, part, &message)?;
                Some(Fate::Gone)
            }
            None => None,
        });
    }
    Ok(fates)
}

fn purge(tx: &mut Tx<'_>, partition: &PartitionId, limit: usize) -> Result<usize> {
    let Some(part) = tx.find(partition)? else { return Ok(0) };
    tx.bring(part)?;
    let mut found = Vec::new();
    for text in PURGE {
        let left = i64::try_from(limit.saturating_sub(found.len())).unwrap_or(i64::MAX);
        found.extend(all(tx.conn, text, (part, left), Found::read)?);
    }
    for message in &found {
        discard(tx, part, message)?;
    }
    Ok(found.len())
}

/// Deletes a message from wherever it stands, and lets its group go on.
fn discard(tx: &mut Tx<'_>, part: i64, message: &Found) -> Result<()> {
    let Found { seq, rank, pos, .. } = *message;
    run(tx.conn, REMOVE, [seq])?;
    let group = message.group.as_deref();
    if message.blocked {
        return run(tx.conn, UNBLOCK, (part, group, pos)).map(drop);
    }
    match message.state {
        Some(_) => run(tx.conn, UNTIME, [seq])?,
        None => run(tx.conn, UNREADY, (part, rank, pos, pos - FRONT))?,
    };
    // Its head is gone, unless it had not joined yet.
    let heads = message.state != Some(DELAYED) && tx.is_live(part);
    group.filter(|_| heads).map_or(Ok(()), |group| tx.leave(part, group))
}
