//! Amending messages that wait.

use std::time::{Duration, SystemTime};

use anyqueue::{Amend, AmendOutcome, MessageId, PartitionId, Regroup, Result};

use crate::found::Found;
use crate::insert::IS_DEAD;
use crate::new_message::rank;
use crate::record::{STORED, Stored};
use crate::sql::{first, run};
use crate::tx::{DELAYED, POSTPONED, Tx};

pub(crate) const REWRITE: &str =
    "UPDATE anyqueue_message SET rank = ?, grp = ?, joined = ?, body = ? WHERE seq = ?";

/// Amends messages by id, unless they are leased. For one that cannot be read, only its own result is an
/// error.
pub(crate) fn amend(
    tx: &mut Tx<'_>,
    partition: &PartitionId,
    ids: &[MessageId],
    change: &Amend,
) -> Result<Vec<Result<AmendOutcome>>> {
    let Some(part) = tx.find(partition)? else {
        return Ok(ids.iter().map(|_| Ok(AmendOutcome::NotFound)).collect());
    };
    tx.bring(part)?;
    ids.iter().map(|id| amend_one(tx, part, *id, change)).collect()
}

fn amend_one(tx: &mut Tx<'_>, part: i64, id: MessageId, change: &Amend) -> Result<Result<AmendOutcome>> {
    let Some(found) = tx.look_up(part, id)? else {
        let is_dead = first(tx.conn, IS_DEAD, (part, id.as_bytes()), |_| Ok(()))?.is_some();
        return Ok(Ok(if is_dead { AmendOutcome::Dead } else { AmendOutcome::NotFound }));
    };
    if found.is_leased(tx.now.ms) {
        return Ok(Ok(AmendOutcome::Leased));
    }
    match amended(tx, found.seq, change)? {
        Ok(body) => alter(tx, part, &found, body, change).map(|()| Ok(AmendOutcome::Amended)),
        Err(unreadable) => Ok(Err(unreadable)),
    }
}

/// Returns the new body, if the change affects it.
fn amended(tx: &Tx<'_>, seq: i64, change: &Amend) -> Result<Result<Option<Vec<u8>>>> {
    if change.priority.is_none() && change.group.is_none() {
        return Ok(Ok(None));
    }
    let stored = first(tx.conn, STORED, [seq], |row| Stored::of(row, 0))?;
    Ok(stored.map(|stored| stored.amended(change)).transpose())
}

fn alter(tx: &mut Tx<'_>, part: i64, found: &Found, body: Option<Vec<u8>>, change: &Amend) -> Result<()> {
    let (mut ready, stood_until) = tx.withdraw(part, found)?;
    let is_disabled = change.disabled.unwrap_or(found.is_disabled);
    let group = match &change.group {
        Some(Regroup::Join(group)) => Some(&**group),
        Some(Regroup::Leave) => None,
        None => found.group.as_deref(),
    };
    let regrouped = group != found.group.as_deref();
    if ready.head && (regrouped || is_disabled) {
        ready.head = false;
        found.group.as_deref().map_or(Ok(()), |left| tx.leave(part, left))?;
    }
    if regrouped {
        ready.joined = tx.position();
    }
    ready.rank = change.priority.map_or(ready.rank, rank);
    if let Some(body) = body {
        run(tx.conn, REWRITE, (ready.rank, group, ready.joined, body, found.seq))?;
    }
    let until = match change.delay(SystemTime::UNIX_EPOCH) {
        Some(Duration::ZERO) => None,
        Some(delay) => Some(tx.now.after(delay)),
        None => stood_until,
    };
    if is_disabled {
        return tx.set_aside(ready, until);
    }
    if let Some(at_ms) = until.filter(|at_ms| *at_ms > tx.now.ms) {
        return tx.make_timed(ready, if ready.head { POSTPONED } else { DELAYED }, at_ms);
    }
    if regrouped || stood_until.is_some() {
        tx.move_to_end(&mut ready)?;
    }
    tx.stand(ready, group)
}
