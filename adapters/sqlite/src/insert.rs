//! Storing messages, and the statements that do it.

use anyqueue::{PushOutcome, Result};

use crate::new_message::NewMessage;
use crate::place::Ready;
use crate::sql::first;
use crate::taken;
use crate::tx::{DELAYED, Tx};

/// Whether the partition ever had dead letters.
pub(crate) const HAS_DEAD: &str = "SELECT 1 FROM anyqueue_partition WHERE part = -?";
/// Whether the message is one of the dead letters.
pub(crate) const IS_DEAD: &str = "SELECT 1 FROM anyqueue_message WHERE part = -? AND id = ?";

/// Stores messages in a partition, after [`Tx::bring`]. They are ready after [`Tx::ready_new`].
pub(crate) fn store_all(tx: &mut Tx<'_>, part: i64, messages: &[NewMessage]) -> Result<Vec<PushOutcome>> {
    let has_dead = has_dead(tx, part)?;
    let outcomes = messages.iter().map(|message| {
        if has_dead && first(tx.conn, IS_DEAD, (part, message.id.as_bytes()), |_| Ok(()))?.is_some() {
            return Ok(PushOutcome::Duplicate(Some(message.id)));
        }
        store(tx, part, message)
    });
    outcomes.collect()
}

/// Whether the partition has or had dead letters. A negative answer is remembered for the next messages of
/// the same partition.
fn has_dead(tx: &mut Tx<'_>, part: i64) -> Result<bool> {
    if tx.without_dead == Some(part) {
        return Ok(false);
    }
    let has_dead = first(tx.conn, HAS_DEAD, [part], |_| Ok(()))?.is_some();
    tx.without_dead = Some(part).filter(|_| !has_dead);
    Ok(has_dead)
}

fn store(tx: &mut Tx<'_>, part: i64, message: &NewMessage) -> Result<PushOutcome> {
    let live = tx.is_live(part);
    let (group, key) = (message.group.as_deref().filter(|_| live), message.dedup.as_deref().filter(|_| live));
    let (seq, rank, id) = (tx.position(), message.rank, message.id.as_bytes());
    let urgent_ms = message.urgent_ms(tx.now);
    let row = (seq, part, rank, id, message.group.as_deref(), key, message.body.as_slice(), urgent_ms);
    if tx.insert.run(tx.conn, row)? == 0 {
        if let Some(outcome) = taken::meet(tx, part, message, key)? {
            return Ok(outcome);
        }
        tx.insert.run(tx.conn, row)?;
    }
    if let Some(urgent_ms) = urgent_ms {
        tx.note_urgent(urgent_ms);
    }
    if message.delay.is_zero() && group.is_none() {
        tx.make_ready_soon(part, rank, seq);
        return Ok(PushOutcome::Stored(message.id));
    }
    tx.ready_new()?;
    let ready = Ready::new(part, rank, seq);
    if message.delay.is_zero() {
        tx.stand(ready, group)?;
    } else {
        tx.make_timed(ready, DELAYED, tx.now.after(message.delay))?;
    }
    Ok(PushOutcome::Stored(message.id))
}
