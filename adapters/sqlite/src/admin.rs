//! Writes of an operator: deleting, purging, requesting cancellation, pausing and amending. Also the ends of
//! tasks, and control entries.

use anyqueue::control::{Applied, Change, Stamped};
use anyqueue::{Amend, AmendOutcome, CancelOutcome, DeleteOutcome, MessageId, PartitionId, Result};

use crate::alter;
use crate::ends::{self, Freed, NewEnd};
use crate::entries;
use crate::found::{Found, PURGE};
use crate::sql::{all, run};
use crate::tx::Tx;

/// A request of an operator.
#[derive(Debug)]
pub(crate) enum Admin {
    Delete {
        partition: PartitionId,
        ids: Vec<MessageId>,
    },
    /// Each id comes with the end that is stored if the message waits.
    Cancel {
        partition: PartitionId,
        tasks: Vec<(MessageId, Option<NewEnd>)>,
    },
    Purge {
        partition: PartitionId,
        limit: usize,
    },
    Pause {
        partition: PartitionId,
        paused: bool,
    },
    Amend {
        partition: PartitionId,
        ids: Vec<MessageId>,
        change: Box<Amend>,
    },
    Record {
        partition: PartitionId,
        ends: Vec<(MessageId, NewEnd)>,
    },
    DeleteEnds {
        partition: PartitionId,
        ids: Vec<MessageId>,
    },
    FreeEnds {
        limit: usize,
    },
    Control(Vec<Change>),
}

/// The answer to an [`Admin`] request.
#[derive(Debug)]
pub(crate) enum AdminAnswer {
    Deleted(Vec<DeleteOutcome>),
    Cancelled(Vec<CancelOutcome>),
    Purged(usize),
    Paused,
    Amended(Vec<Result<AmendOutcome>>),
    Recorded,
    EndsDeleted(Vec<bool>),
    EndsFreed(Freed),
    Applied(Stamped<Vec<Applied>>),
}

pub(crate) const REQUEST: &str = "UPDATE anyqueue_timed SET cancel = 1 WHERE seq = ?";
pub(crate) const PAUSE: &str = "UPDATE anyqueue_partition SET paused = ? WHERE part = ?";

/// Carries out a request.
pub(crate) fn act(tx: &mut Tx<'_>, request: &Admin) -> Result<AdminAnswer> {
    match request {
        Admin::Delete { partition, ids } => delete(tx, partition, ids).map(AdminAnswer::Deleted),
        Admin::Cancel { partition, tasks } => cancel(tx, partition, tasks).map(AdminAnswer::Cancelled),
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
        Admin::Record { partition, ends } => {
            ends::record(tx, partition, ends).map(|()| AdminAnswer::Recorded)
        }
        Admin::DeleteEnds { partition, ids } => {
            ends::delete(tx, partition, ids).map(AdminAnswer::EndsDeleted)
        }
        Admin::FreeEnds { limit } => ends::free(tx, *limit).map(AdminAnswer::EndsFreed),
        Admin::Control(changes) => entries::apply(tx, changes).map(AdminAnswer::Applied),
    }
}

enum Fate {
    Gone,
    /// Leased.
    Held(i64),
    Unknown,
}

fn delete(tx: &mut Tx<'_>, partition: &PartitionId, ids: &[MessageId]) -> Result<Vec<DeleteOutcome>> {
    let Some(part) = tx.find(partition)? else { return Ok(vec![DeleteOutcome::NotFound; ids.len()]) };
    tx.bring(part)?;
    let delete = |id: &MessageId| {
        Ok(match take_out(tx, part, *id)? {
            Fate::Gone => DeleteOutcome::Deleted,
            Fate::Held(_) => DeleteOutcome::Leased,
            Fate::Unknown => DeleteOutcome::NotFound,
        })
    };
    ids.iter().map(delete).collect()
}

fn cancel(
    tx: &mut Tx<'_>,
    partition: &PartitionId,
    tasks: &[(MessageId, Option<NewEnd>)],
) -> Result<Vec<CancelOutcome>> {
    let Some(part) = tx.find(partition)? else { return Ok(vec![CancelOutcome::NotFound; tasks.len()]) };
    tx.bring(part)?;
    let mut outcomes = Vec::with_capacity(tasks.len());
    for (id, end) in tasks {
        outcomes.push(match take_out(tx, part, *id)? {
            Fate::Gone => {
                end.as_ref().map_or(Ok(()), |end| ends::cancelled(tx, part, *id, end))?;
                CancelOutcome::Removed
            }
            Fate::Held(seq) => {
                run(tx.conn, REQUEST, [seq])?;
                CancelOutcome::Requested
            }
            Fate::Unknown => CancelOutcome::NotFound,
        });
    }
    Ok(outcomes)
}

/// Deletes a message that is not leased.
fn take_out(tx: &mut Tx<'_>, part: i64, id: MessageId) -> Result<Fate> {
    let Some(message) = tx.look_up(part, id)? else { return Ok(Fate::Unknown) };
    if message.is_leased(tx.now.ms) {
        return Ok(Fate::Held(message.seq));
    }
    discard(tx, part, &message).map(|()| Fate::Gone)
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

/// Deletes a message, wherever it stands, and lets its group go on.
fn discard(tx: &mut Tx<'_>, part: i64, message: &Found) -> Result<()> {
    let (ready, _) = tx.withdraw(part, message)?;
    tx.remove.run(tx.conn, [ready.seq])?;
    message.group.as_deref().filter(|_| ready.head).map_or(Ok(()), |group| tx.leave(part, group))
}
