//! Writes of an operator: deleting, purging, requesting cancellation, pausing, amending.

use anyqueue::{Amend, AmendOutcome, CancelOutcome, DeleteOutcome, MessageId, PartitionId, Result};

use crate::alter;
use crate::found::{Found, PURGE};
use crate::settle::REMOVE;
use crate::sql::{all, run};
use crate::tx::Tx;

/// What an operator asks.
#[derive(Debug)]
pub(crate) enum Admin {
    Delete { partition: PartitionId, ids: Vec<MessageId> },
    Cancel { partition: PartitionId, ids: Vec<MessageId> },
    Purge { partition: PartitionId, limit: usize },
    Pause { partition: PartitionId, paused: bool },
    Amend { partition: PartitionId, ids: Vec<MessageId>, change: Box<Amend> },
}

/// The answer to it.
#[derive(Debug)]
pub(crate) enum AdminAnswer {
    Deleted(Vec<DeleteOutcome>),
    Cancelled(Vec<CancelOutcome>),
    Purged(usize),
    Paused,
    Amended(Vec<Result<AmendOutcome>>),
}

pub(crate) const REQUEST: &str = "UPDATE anyqueue_timed SET cancel = 1 WHERE seq = ?";
pub(crate) const PAUSE: &str = "UPDATE anyqueue_partition SET paused = ? WHERE part = ?";

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
        Admin::Amend { partition, ids, change } => {
            alter::amend(tx, partition, ids, change).map(AdminAnswer::Amended)
        }
    }
}

enum Fate {
    Gone,
    /// Leased.
    Held(i64),
}

/// Deletes those that are not leased. Answers the fate of each id.
fn take_out(tx: &mut Tx<'_>, partition: &PartitionId, ids: &[MessageId]) -> Result<Vec<Option<Fate>>> {
    let Some(part) = tx.find(partition)? else { return Ok(ids.iter().map(|_| None).collect()) };
    tx.bring(part)?;
    let mut fates = Vec::with_capacity(ids.len());
    for id in ids {
        fates.push(match tx.look_up(part, *id)? {
            Some(message) if message.is_leased(tx.now.ms) => Some(Fate::Held(message.seq)),
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
    let (ready, _) = tx.withdraw(part, message)?;
    run(tx.conn, REMOVE, [ready.seq])?;
    message.group.as_deref().filter(|_| ready.head).map_or(Ok(()), |group| tx.leave(part, group))
}
