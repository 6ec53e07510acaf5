//! Leasing messages, for many pulls in few statements.

use std::collections::BTreeMap;
use std::time::Duration;

use anyqueue::{Bytes, ErrorKind, PartitionId, Result};
use sqlx::sqlite::SqliteRow;

use crate::error::own;
use crate::sql::{Statement, get, statement};
use crate::tx::{LEASED, Tx};

/// Messages leased by one statement; a group of pulls that wants more takes several.
const MAX_CLAIM: usize = 1000;

/// What one pull asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) partition: PartitionId,
    pub(crate) max: usize,
    pub(crate) lease: Duration,
}

/// What it got.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    pub(crate) secret: u128,
    pub(crate) taken: Vec<Taken>,
}

/// One message as it is stored.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) seq: i64,
    pub(crate) deliveries: i64,
    pub(crate) body: Bytes,
}

/// The first messages of a partition (parameters: its number, how many); each statement finds the same ones. A paused
/// partition has none.
macro_rules! first {
    ($columns:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM anyqueue_ready WHERE part = (SELECT part FROM anyqueue_partition WHERE part = ? AND paused = 0)",
            " ORDER BY rank, pos LIMIT ? + 0" // a bare parameter would be planned anew at each use
        )
    };
}

/// Answers sixteen neighbours in one row (what they are, then their bodies end to end), because each row of an answer may
/// wake the writer's thread, which costs more than finding it. Sixteen of the largest still fit in what SQLite can hold.
const CLAIM: &str = concat!(
    "SELECT group_concat(concat_ws(' ', f.rank, f.pos, f.seq, f.deliveries, length(m.body)), ','),",
    " CAST(group_concat(m.body, '') AS BLOB) FROM (",
    first!("rank, pos, seq, deliveries"),
    ") f CROSS JOIN anyqueue_message m ON m.seq = f.seq GROUP BY f.rank, f.pos >> 4",
    "; INSERT INTO anyqueue_timed (part, seq, deliveries, cancel, head, at_ms, state, token) ",
    first!("part, seq, deliveries + 1, cancel, head, ?, ?, ?"),
    "; DELETE FROM anyqueue_ready WHERE (part, rank, pos) IN (",
    first!("part, rank, pos"),
    "); SELECT min(at_ms) FROM anyqueue_timed WHERE part = ?",
);

/// Pulls that share a statement.
struct Together {
    part: i64,
    secret: u128,
    /// Where to answer each, and how many it wants.
    pulls: Vec<(usize, usize)>,
}

/// Leases messages for pulls, in the order of the list; answers each. With `commit`, commits at once.
pub(crate) async fn claim(
    tx: &mut Tx<'_>,
    claims: &[(usize, &Claim)],
    commit: bool,
) -> Result<Vec<(usize, Claimed)>> {
    let (mut shares, mut statements) = (Vec::new(), Vec::new());
    for ((partition, lease), pulls) in by_partition(claims) {
        let Some(part) = tx.find(partition).await? else { continue };
        for pulls in split(pulls) {
            let secret = uuid::Uuid::new_v4().as_u128();
            let total = pulls.iter().map(|(_, max)| max).sum();
            statements.push(bind(part, total, tx.now.after(lease), secret));
            shares.push(Together { part, secret, pulls });
        }
    }
    let mut rows = tx.conclude(statements, commit).await?.into_iter();
    let mut answers = Vec::with_capacity(claims.len());
    for Together { part, secret, pulls } in shares {
        let mut messages = unpack(&rows.next().unwrap_or_default())?.into_iter();
        for (slot, max) in pulls {
            answers.push((slot, Claimed { secret, taken: messages.by_ref().take(max).collect() }));
        }
        let due = rows.nth(2).unwrap_or_default();
        if let Some(at_ms) = due.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?.flatten() {
            tx.hint_due(part, at_ms);
        }
    }
    Ok(answers)
}

/// Pulls of one partition with one lease can share a statement.
fn by_partition<'c>(
    claims: &[(usize, &'c Claim)],
) -> BTreeMap<(&'c PartitionId, Duration), Vec<(usize, usize)>> {
    let mut shared: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (slot, claim) in claims {
        shared.entry((&claim.partition, claim.lease)).or_default().push((*slot, claim.max.min(MAX_CLAIM)));
    }
    shared
}

/// So that none claims too much.
fn split(pulls: Vec<(usize, usize)>) -> Vec<Vec<(usize, usize)>> {
    let (mut parts, mut total) = (Vec::new(), usize::MAX);
    for (slot, max) in pulls {
        total = total.saturating_add(max);
        if total > MAX_CLAIM {
            parts.push(Vec::new());
            total = max;
        }
        if let Some(part) = parts.last_mut() {
            part.push((slot, max));
        }
    }
    parts
}

fn bind(part: i64, count: usize, at_ms: i64, secret: u128) -> Statement {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let first = statement(CLAIM).bind(part).bind(count);
    let lease = first.bind(at_ms).bind(LEASED).bind(secret.to_be_bytes().to_vec()).bind(part).bind(count);
    lease.bind(part).bind(count).bind(part)
}

/// Takes the messages out of the rows, in the order of delivery.
fn unpack(rows: &[SqliteRow]) -> Result<Vec<Taken>> {
    let broken = || own(ErrorKind::Internal, "the claimed messages cannot be told apart");
    let mut all = Vec::with_capacity(rows.len() * 16);
    for row in rows {
        let mut bodies = Bytes::from(get::<Vec<u8>>(row, 1)?);
        for entry in get::<String>(row, 0)?.split(',') {
            let mut numbers = entry.split(' ').map(|word| word.parse::<i64>().ok());
            let mut next = || numbers.next().flatten().ok_or_else(broken);
            let (rank, pos, seq, deliveries, length) = (next()?, next()?, next()?, next()? + 1, next()?);
            let length =
                usize::try_from(length).ok().filter(|length| *length <= bodies.len()).ok_or_else(broken)?;
            all.push((rank, pos, Taken { seq, deliveries, body: bodies.split_to(length) }));
        }
    }
    all.sort_unstable_by_key(|(rank, pos, _)| (*rank, *pos));
    Ok(all.into_iter().map(|(_, _, taken)| taken).collect())
}

/// The text of the statement here, for looking at its plan.
#[cfg(test)]
pub(crate) const STATEMENT: &str = CLAIM;
