//! Writes of an operator: deleting, purging, requesting cancellation, pausing.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use anyqueue::{CancelOutcome, DeleteOutcome, MessageId, PartitionId, Result};
use sqlx::sqlite::SqliteRow;

use crate::changes::unblock;
use crate::sql::{Listed, MAX_ROWS, Statement, get, repeated, statement, values};
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

impl Admin {
    pub(crate) fn partition(&self) -> &PartitionId {
        match self {
            Self::Delete { partition, .. }
            | Self::Cancel { partition, .. }
            | Self::Purge { partition, .. }
            | Self::Pause { partition, .. } => partition,
        }
    }
}

static FIND: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| {
        format!(
            "SELECT m.id, m.seq, m.rank, m.pos, m.grp, t.state, b.seq FROM anyqueue_message m
             LEFT JOIN anyqueue_timed t ON t.seq = m.seq
             LEFT JOIN anyqueue_blocked b ON b.part = m.part AND b.grp = m.grp AND b.pos = m.pos
             WHERE m.part = ? AND m.id IN ({})",
            values(n)
        )
    })
});
static UNREADY: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| repeated(n, "DELETE FROM anyqueue_ready WHERE part = ? AND rank = ? AND pos IN (?, ?)"))
});
static REQUEST: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| format!("UPDATE anyqueue_timed SET cancel = 1 WHERE seq IN ({})", values(n)))
});

/// What a purge takes, in this order: followers before heads, so that no follower is promoted only to be purged.
const PURGE: [&str; 3] = [
    "SELECT m.id, m.seq, m.rank, m.pos, m.grp, NULL, b.seq
     FROM anyqueue_blocked b CROSS JOIN anyqueue_message m ON m.seq = b.seq WHERE b.part = ? LIMIT ? + 0",
    "SELECT m.id, m.seq, m.rank, m.pos, m.grp, t.state, NULL
     FROM anyqueue_timed t CROSS JOIN anyqueue_message m ON m.seq = t.seq WHERE t.part = ? AND t.state <> 1 LIMIT ? + 0",
    "SELECT m.id, m.seq, m.rank, m.pos, m.grp, NULL, NULL
     FROM anyqueue_ready r CROSS JOIN anyqueue_message m ON m.seq = r.seq WHERE r.part = ? LIMIT ? + 0",
];

/// A message and where it stands.
struct Found {
    seq: i64,
    rank: i64,
    pos: i64,
    group: Option<Arc<str>>,
    state: Option<i64>,
    blocked: bool,
}

impl Found {
    fn read(row: &SqliteRow) -> Result<Self> {
        Ok(Self {
            seq: get(row, 1)?,
            rank: get(row, 2)?,
            pos: get(row, 3)?,
            group: get::<Option<String>>(row, 4)?.map(Arc::from),
            state: get(row, 5)?,
            blocked: get::<Option<i64>>(row, 6)?.is_some(),
        })
    }

    /// Leases that ran out were taken back before, so this one holds.
    fn is_leased(&self) -> bool {
        self.state == Some(LEASED)
    }
}

/// Does it.
pub(crate) async fn act(tx: &mut Tx<'_>, request: &Admin) -> Result<AdminAnswer> {
    match request {
        Admin::Delete { partition, ids } => {
            let (gone, held) = take_out(tx, partition, ids).await?;
            let outcome = |found| match found {
                Some(Fate::Gone) => DeleteOutcome::Deleted,
                Some(Fate::Held) => DeleteOutcome::Leased,
                None => DeleteOutcome::NotFound,
            };
            drop(held);
            Ok(AdminAnswer::Deleted(gone.into_iter().map(outcome).collect()))
        }
        Admin::Cancel { partition, ids } => {
            let (gone, held) = take_out(tx, partition, ids).await?;
            for chunk in held.chunks(MAX_ROWS) {
                tx.write(REQUEST.of(chunk.len()).bind_each(chunk, |query, seq| query.bind(*seq))).await?;
            }
            let outcome = |found| match found {
                Some(Fate::Gone) => CancelOutcome::Removed,
                Some(Fate::Held) => CancelOutcome::Requested,
                None => CancelOutcome::NotFound,
            };
            Ok(AdminAnswer::Cancelled(gone.into_iter().map(outcome).collect()))
        }
        Admin::Purge { partition, limit } => purge(tx, partition, *limit).await.map(AdminAnswer::Purged),
        Admin::Pause { partition, paused } => {
            let part = tx.make(partition).await?;
            let sql = "UPDATE anyqueue_partition SET paused = ? WHERE part = ?";
            tx.write(statement(sql).bind(i64::from(*paused)).bind(part)).await?;
            if !paused {
                tx.hint_all(part);
            }
            Ok(AdminAnswer::Paused)
        }
    }
}

#[derive(Clone, Copy)]
enum Fate {
    Gone,
    Held,
}

/// Deletes those that are not leased. Answers the fate of each id, and which are leased.
async fn take_out(
    tx: &mut Tx<'_>,
    partition: &PartitionId,
    ids: &[MessageId],
) -> Result<(Vec<Option<Fate>>, Vec<i64>)> {
    let Some(part) = tx.find(partition).await? else { return Ok((vec![None; ids.len()], Vec::new())) };
    let (mut found, mut held) = (HashMap::new(), Vec::new());
    for chunk in ids.chunks(MAX_ROWS) {
        let query = FIND.of(chunk.len()).bind(part);
        let query = query.bind_each(chunk, |query, id| query.bind(id.as_bytes().to_vec()));
        for row in tx.rows(query).await? {
            found.insert(get::<Vec<u8>>(&row, 0)?, Found::read(&row)?);
        }
    }
    let mut out = Vec::new();
    let mut fates = Vec::with_capacity(ids.len());
    for id in ids {
        fates.push(match found.remove(&id.as_bytes()[..]) {
            Some(message) if message.is_leased() => {
                held.push(message.seq);
                Some(Fate::Held)
            }
            Some(message) => {
                out.push(message);
                Some(Fate::Gone)
            }
            None => None,
        });
    }
    discard(tx, part, &out).await?;
    Ok((fates, held))
}

async fn purge(tx: &mut Tx<'_>, partition: &PartitionId, limit: usize) -> Result<usize> {
    let Some(part) = tx.find(partition).await? else { return Ok(0) };
    let mut found = Vec::new();
    for text in PURGE {
        let left = i64::try_from(limit.saturating_sub(found.len())).unwrap_or(i64::MAX);
        for row in tx.rows(statement(text).bind(part).bind(left)).await? {
            found.push(Found::read(&row)?);
        }
    }
    discard(tx, part, &found).await?;
    Ok(found.len())
}

/// Deletes messages from wherever they stand, and lets groups go on.
async fn discard(tx: &mut Tx<'_>, part: i64, messages: &[Found]) -> Result<()> {
    let (mut ready, mut blocked) = (Vec::new(), Vec::new());
    for message in messages {
        tx.changes.removed.push(message.seq);
        let group = message.group.clone().map(|group| (part, group));
        match (group, message.blocked) {
            (Some(group), true) => blocked.push((group, message.pos)),
            (group, _) => {
                if message.state.is_none() {
                    ready.push((message.rank, message.pos));
                }
                // Its head is gone, unless it had not joined yet.
                let heads = message.state != Some(DELAYED) && tx.is_live(part);
                tx.changes.freed.extend(group.filter(|_| heads));
            }
        }
    }
    unblock(tx, &blocked).await?;
    for chunk in ready.chunks(MAX_ROWS) {
        let bind = |query: Statement, (rank, pos): &(i64, i64)| {
            query.bind(part).bind(*rank).bind(*pos).bind(*pos - FRONT)
        };
        tx.write(UNREADY.of(chunk.len()).bind_each(chunk, bind)).await?;
    }
    tx.flush().await
}

/// The texts of all statements here, for looking at their plans.
#[cfg(test)]
pub(crate) fn statements() -> Vec<&'static Listed> {
    vec![&FIND, &UNREADY, &REQUEST]
}

/// As above, those without a list.
#[cfg(test)]
pub(crate) fn single_statements() -> &'static [&'static str] {
    &PURGE
}
