//! Ending and extending leases, and storing what settlements bring.

use anyqueue::adapter::{Action, Extension, Lease};
use anyqueue::{ExtendOutcome, Headers, PartitionId, Result, SettleOutcome};

use crate::due::BRING;
use crate::ending::{Brought, Ending, NewSuccessor};
use crate::ends;
use crate::error::ERRORS;
use crate::insert::store_all;
use crate::limits::{LEASE, MAX_DELAY};
use crate::place::Ready;
use crate::record::{REPLACE, STORED, Stored};
use crate::series;
use crate::sql::{first, run};
use crate::tx::{FRONT, POSTPONED, Tx};

/// Finds a valid lease.
pub(crate) const HELD: &str = "SELECT deliveries, cancel, head FROM anyqueue_timed WHERE seq = ? AND part = ? AND token = ? AND state = 1 AND at_ms > ?";
pub(crate) const EXTEND: &str = "UPDATE anyqueue_timed SET at_ms = ?5
    WHERE seq = ?1 AND part = ?2 AND token = ?3 AND state = 1 AND at_ms > ?4 RETURNING cancel";
pub(crate) const PLACE: &str = "SELECT grp, rank, pos, joined FROM anyqueue_message WHERE seq = ?";
pub(crate) const MOVE: &str =
    "UPDATE OR IGNORE anyqueue_message SET part = ?1, pos = ?2, joined = ?2, dedup = NULL WHERE seq = ?3";

/// What identifies a valid lease: the message, its partition, the secret, and the current time.
type Key<'l> = (i64, i64, &'l [u8], i64);

fn key<'l>(tx: &mut Tx<'_>, lease: &'l Lease) -> Result<Option<Key<'l>>> {
    let Some((seq, secret)) = lease.token.as_bytes().split_first_chunk::<8>() else { return Ok(None) };
    let part = tx.find(&lease.partition)?;
    Ok(part.map(|part| (i64::from_be_bytes(*seq), part, secret, tx.now.ms)))
}

/// Settles one delivery.
pub(crate) fn settle(tx: &mut Tx<'_>, ending: &Ending) -> Result<Result<SettleOutcome>> {
    let Ending { lease, action, brings } = ending;
    if let Action::Postpone { delay, .. } = action
        && *delay > MAX_DELAY
    {
        return Ok(Err(ERRORS.invalid("the delay is longer than the capabilities allow")));
    }
    let Some(key @ (_, part, ..)) = key(tx, lease)? else { return Ok(Ok(SettleOutcome::Lost)) };
    let Brought { end, counted, then } = match brings {
        Ok(brought) => brought,
        Err(refused) => {
            let is_held = first(tx.conn, HELD, key, |_| Ok(()))?.is_some();
            return Ok(if is_held { Err(refused.clone()) } else { Ok(SettleOutcome::Lost) });
        }
    };
    let Some(mut ready) = take(tx, key, action)? else { return Ok(Ok(SettleOutcome::Lost)) };
    let group = if ready.head || *action != Action::Remove { place(tx, &mut ready)? } else { None };
    act(tx, ready, group.as_deref(), action)?;
    end.as_ref().map_or(Ok(()), |end| ends::store(tx, part, lease.id, end))?;
    counted.as_ref().map_or(Ok(()), |end| series::count(tx, part, end))?;
    store_successors(tx, then, (&lease.partition, part))?;
    Ok(Ok(SettleOutcome::Settled))
}

/// Ends the lease, if it is valid.
fn take(tx: &mut Tx<'_>, key: Key<'_>, action: &Action) -> Result<Option<Ready>> {
    let (seq, part, ..) = key;
    // Most messages are removed. Of those without a group, nothing needs to be known.
    if *action == Action::Remove && tx.take.run(tx.conn, key)? == 1 {
        return Ok(Some(Ready::new(part, 0, seq)));
    }
    let held = first(tx.conn, HELD, key, |row| {
        let (deliveries, cancel, head) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Ready { deliveries, cancel, head, ..Ready::new(part, 0, seq) })
    })?;
    if held.is_some() {
        run(tx.conn, BRING, [seq])?;
    }
    Ok(held)
}

/// Stores the successors of a delivery that has ended, in order. Duplicates are left out.
fn store_successors(
    tx: &mut Tx<'_>,
    successors: &[NewSuccessor],
    (home, home_part): (&PartitionId, i64),
) -> Result<()> {
    for NewSuccessor { partition, message } in successors {
        let part = if partition == home { home_part } else { tx.make(partition)? };
        tx.bring(part)?; // what matured before stands ahead of it
        store_all(tx, part, std::slice::from_ref(message))?;
    }
    Ok(())
}

/// Looks up the place of the message. Returns its group.
fn place(tx: &mut Tx<'_>, ready: &mut Ready) -> Result<Option<String>> {
    let found = first(tx.conn, PLACE, [ready.seq], |row| {
        (ready.rank, ready.pos, ready.joined) = (row.get(1)?, row.get(2)?, row.get(3)?);
        row.get(0)
    })?;
    Ok(found.flatten())
}

fn act(tx: &mut Tx<'_>, mut ready: Ready, group: Option<&str>, action: &Action) -> Result<()> {
    if matches!(action, Action::Release | Action::Postpone { .. }) {
        ready.deliveries -= 1; // what was let go is no attempt
    }
    let headed = group.filter(|_| ready.head); // not where groups do not count
    match action {
        Action::Remove => {
            tx.remove.run(tx.conn, [ready.seq])?;
            leave(tx, ready.part, headed)
        }
        Action::Release | Action::Retry => {
            ready.pos -= FRONT;
            tx.stand(ready, headed)
        }
        Action::Postpone { delay, headers } => {
            replace_headers(tx, ready.seq, headers.as_ref())?;
            if delay.is_zero() {
                // Messages that matured before this moment go ahead of it.
                tx.bring(ready.part)?;
                tx.move_to_end(&mut ready)?;
                tx.stand(ready, headed)
            } else {
                tx.make_timed(ready, POSTPONED, tx.now.after(*delay))
            }
        }
        Action::Move { to, headers } => {
            replace_headers(tx, ready.seq, headers.as_ref())?;
            leave(tx, ready.part, headed)?;
            move_to(tx, ready, group, to)
        }
    }
}

/// Lets a group go on, if the message was at its head.
fn leave(tx: &mut Tx<'_>, part: i64, headed: Option<&str>) -> Result<()> {
    headed.map_or(Ok(()), |group| tx.leave(part, group))
}

fn move_to(tx: &mut Tx<'_>, ready: Ready, group: Option<&str>, to: &PartitionId) -> Result<()> {
    let part = tx.make(to)?;
    tx.bring(part)?; // what matured before stands ahead of it
    let pos = tx.position();
    if run(tx.conn, MOVE, (part, pos, ready.seq))? == 0 {
        // It is already there: the same message was moved twice.
        return tx.remove.run(tx.conn, [ready.seq]).map(drop);
    }
    let joins = group.filter(|_| tx.is_live(part)); // whether or not groups counted where it comes from
    tx.stand(Ready { pos, joined: pos, ..Ready::new(part, ready.rank, ready.seq) }, joins)
}

fn replace_headers(tx: &mut Tx<'_>, seq: i64, headers: Option<&Headers>) -> Result<()> {
    let Some(headers) = headers else { return Ok(()) };
    let Some(stored) = first(tx.conn, STORED, [seq], |row| Stored::of(row, 0))? else { return Ok(()) };
    let (body, kept) = stored.with_headers(headers.clone())?;
    run(tx.conn, REPLACE, (&body[..], kept, seq)).map(drop)
}

/// Changes the end of a lease.
pub(crate) fn extend(tx: &mut Tx<'_>, extension: &Extension) -> Result<Result<ExtendOutcome>> {
    if let Err(refused) = LEASE.check(extension.duration) {
        return Ok(Err(refused));
    }
    let Some((seq, part, secret, now_ms)) = key(tx, &extension.lease)? else {
        return Ok(Ok(ExtendOutcome::Lost));
    };
    let at_ms = tx.now.after(extension.duration);
    let cancel = first(tx.conn, EXTEND, (seq, part, secret, now_ms, at_ms), |row| row.get(0))?;
    tx.hint_due(part, at_ms);
    Ok(Ok(match cancel {
        Some(true) => ExtendOutcome::CancelRequested,
        Some(false) => ExtendOutcome::Extended,
        None => ExtendOutcome::Lost,
    }))
}
