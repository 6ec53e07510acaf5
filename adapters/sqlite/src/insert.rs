//! Messages on their way into the file, and the statements that store them.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Envelope;
use anyqueue::{Clock, ErrorKind, MessageData, MessageId, PushOutcome, Result};

use crate::error::ERRORS;
use crate::limits::{MAX_DELAY, PRIORITY_LEVELS};
use crate::place::Ready;
use crate::sql::{first, run};
use crate::tx::{DELAYED, Tx};

pub(crate) const INSERT: &str = "INSERT INTO anyqueue_message (seq, part, rank, pos, id, grp, dedup, body)
    VALUES (?1, ?2, ?3, ?1, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
/// Whether the partition ever had dead letters.
pub(crate) const HAS_DEAD: &str = "SELECT 1 FROM anyqueue_partition WHERE part = -?";
/// Whether the message is one of them.
pub(crate) const IS_DEAD: &str = "SELECT 1 FROM anyqueue_message WHERE part = -? AND id = ?";
/// Which message of this partition has this id or this key.
pub(crate) const KNOWN: &str = "SELECT id FROM anyqueue_message WHERE part = ?2 AND id = ?1
    UNION ALL SELECT id FROM anyqueue_message WHERE part = ?2 AND dedup = ?3 LIMIT 1";

/// A message ready to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewMessage {
    pub(crate) id: MessageId,
    pub(crate) rank: i64,
    pub(crate) delay: Duration,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) dedup: Option<Arc<str>>,
    pub(crate) body: Vec<u8>,
}

impl NewMessage {
    /// Encodes a message, if it is within the limits.
    pub(crate) fn prepare(message: &MessageData, message_bytes: u64, clock: &Clock) -> Result<Self> {
        let options = message.options();
        if options.priority >= PRIORITY_LEVELS {
            let highest = PRIORITY_LEVELS - 1;
            return Err(
                ERRORS.invalid(format!("priority {} is out of range: 0 to {highest}", options.priority))
            );
        }
        let encoded_bytes = Envelope::max_encoded_len(message);
        if encoded_bytes > message_bytes {
            let text = format!(
                "the message takes {encoded_bytes} bytes in encoded form: at most {message_bytes} are allowed"
            );
            return Err(ERRORS.error(ErrorKind::TooLarge, text));
        }
        let now = clock.wall();
        let delay = message.delay(now);
        if delay > MAX_DELAY {
            return Err(ERRORS.invalid("the delay is longer than the capabilities allow"));
        }
        Ok(Self {
            id: message.id(),
            rank: i64::from(PRIORITY_LEVELS - 1 - options.priority),
            delay,
            group: options.group.clone(),
            dedup: options.dedup_key.clone(),
            body: Envelope::new(message.clone(), now).encode()?,
        })
    }

    pub(crate) fn body_bytes(&self) -> usize {
        self.body.len()
    }
}

/// Stores messages in a partition in which what is due was brought.
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

/// Whether the partition has or had dead letters. Asked once for those that follow each other in a partition without.
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
    let row = (seq, part, rank, id, message.group.as_deref(), key, message.body.as_slice());
    if run(tx.conn, INSERT, row)? == 0 {
        let known = first(tx.conn, KNOWN, (id, part, key), |row| row.get(0))?;
        return Ok(PushOutcome::Duplicate(known.map(MessageId::from_bytes)));
    }
    let ready = Ready { part, rank, pos: seq, seq, deliveries: 0, cancel: false, head: false };
    if message.delay.is_zero() {
        tx.enter(ready, group)?;
    } else {
        tx.make_timed(ready, DELAYED, tx.now.after(message.delay))?;
    }
    Ok(PushOutcome::Stored(message.id))
}
