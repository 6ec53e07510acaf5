//! Pushes whose id or deduplication key is taken.

use anyqueue::{MessageId, OnDuplicate, PushOutcome, Result};

use crate::new_message::NewMessage;
use crate::now::Now;
use crate::record::{REPLACE, STORED, Stored};
use crate::sql::{first, run};
use crate::tx::{LEASED, Tx};

/// The message of this partition that has this id or this key.
pub(crate) const KNOWN: &str = "SELECT id FROM anyqueue_message WHERE part = ?2 AND id = ?1
    UNION ALL SELECT id FROM anyqueue_message WHERE part = ?2 AND dedup = ?3 LIMIT 1";
/// The message that has the key, and the moment that it waits for, if any.
pub(crate) const HOLDER: &str = "SELECT m.seq, t.state, coalesce(t.at_ms, d.at_ms), d.seq IS NOT NULL
    FROM anyqueue_message m LEFT JOIN anyqueue_timed t ON t.seq = m.seq
    LEFT JOIN anyqueue_disabled d ON d.part = m.part AND d.seq = m.seq WHERE m.part = ? AND m.dedup = ?";
pub(crate) const FREE_KEY: &str = "UPDATE anyqueue_message SET dedup = NULL WHERE seq = ?";
/// Also clears the token, so that an expired lease does not become valid again, whatever the clock does.
pub(crate) const HASTEN: &str = "UPDATE anyqueue_timed SET at_ms = ?, token = NULL WHERE seq = ?";
/// For disabled messages, which stay where they are.
pub(crate) const HASTEN_DISABLED: &str = "UPDATE anyqueue_disabled SET at_ms = ? WHERE part = ? AND seq = ?";

/// The message that has the key. Its lease may have expired, since what is due may not have been processed
/// yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) seq: i64,
    pub(crate) state: Option<i64>,
    pub(crate) at_ms: Option<i64>,
    pub(crate) is_disabled: bool,
}

/// What a push does to the holder of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// The holder gets the content of the new message, and another due time. For an expired lease the time is
    /// the same, and setting it ends the lease for good.
    Content {
        at_ms: Option<i64>,
    },
    /// The new message takes the key from the holder.
    Key,
}

impl Holder {
    pub(crate) fn change(self, newer: &NewMessage, now: Now) -> Change {
        let is_held = self.state == Some(LEASED) && self.is_after(now.ms);
        let due_ms = newer.due_ms(now);
        match newer.message.options().on_duplicate {
            OnDuplicate::Behind if is_held => Change::Key,
            OnDuplicate::Replace if !is_held => {
                Change::Content { at_ms: self.at_ms.filter(|_| self.state == Some(LEASED)) }
            }
            OnDuplicate::Earlier if !is_held && self.is_after(due_ms) => {
                Change::Content { at_ms: Some(due_ms) }
            }
            _ => Change::Nothing,
        }
    }

    /// Whether it waits for a later moment.
    fn is_after(self, ms: i64) -> bool {
        self.at_ms.is_some_and(|at_ms| at_ms > ms)
    }
}

/// Handles a message whose id or key is taken. Returns `None` if the key is free for it now.
pub(crate) fn meet(
    tx: &mut Tx<'_>,
    part: i64,
    newer: &NewMessage,
    key: Option<&str>,
) -> Result<Option<PushOutcome>> {
    let known = first(tx.conn, KNOWN, (newer.id.as_bytes(), part, key), |row| row.get(0))?;
    let known = known.map(MessageId::from_bytes);
    match known {
        Some(holder) if newer.may_change(holder) => change(tx, part, newer, key, holder),
        _ => Ok(Some(PushOutcome::Duplicate(known))),
    }
}

fn change(
    tx: &mut Tx<'_>,
    part: i64,
    newer: &NewMessage,
    key: Option<&str>,
    id: MessageId,
) -> Result<Option<PushOutcome>> {
    let kept = Ok(Some(PushOutcome::Duplicate(Some(id))));
    let holder = first(tx.conn, HOLDER, (part, key), |row| {
        Ok(Holder { seq: row.get(0)?, state: row.get(1)?, at_ms: row.get(2)?, is_disabled: row.get(3)? })
    })?;
    let Some(holder) = holder else { return kept };
    let at_ms = match holder.change(newer, tx.now) {
        Change::Nothing => return kept,
        Change::Key => return run(tx.conn, FREE_KEY, [holder.seq]).map(|_| None),
        Change::Content { at_ms } => at_ms,
    };
    let stored = first(tx.conn, STORED, [holder.seq], |row| Stored::of(row, 0))?;
    let Some(body) = stored.and_then(|stored| stored.with_content(&newer.message).transpose()) else {
        return kept;
    };
    run(tx.conn, REPLACE, (body?, None::<&[u8]>, holder.seq))?;
    if let Some(at_ms) = at_ms {
        hasten(tx, part, holder, at_ms)?;
    }
    Ok(Some(PushOutcome::Replaced(id)))
}

/// Makes the holder due at another time. If that is now, it matures before anything else is pushed.
fn hasten(tx: &mut Tx<'_>, part: i64, holder: Holder, at_ms: i64) -> Result<()> {
    if holder.is_disabled {
        let to_come = Some(at_ms).filter(|at_ms| *at_ms > tx.now.ms);
        return run(tx.conn, HASTEN_DISABLED, (to_come, part, holder.seq)).map(drop);
    }
    run(tx.conn, HASTEN, (at_ms, holder.seq))?;
    tx.hint_due(part, at_ms);
    tx.brought.remove(&part);
    tx.bring(part)
}
