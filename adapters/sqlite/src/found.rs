//! Finding a message by id, and taking it out of its place.

use anyqueue::{MessageId, Result};
use rusqlite::Row;

use crate::place::Ready;
use crate::sql::first;
use crate::tx::{FRONT, LEASED, Tx};

pub(crate) const FIND: &str =
    "SELECT m.seq, m.rank, m.pos, m.grp, m.joined, t.state, t.at_ms, b.seq IS NOT NULL, d.seq IS NOT NULL
    FROM anyqueue_message m LEFT JOIN anyqueue_timed t ON t.seq = m.seq
    LEFT JOIN anyqueue_blocked b ON b.part = m.part AND b.grp = m.grp AND b.joined = m.joined
    LEFT JOIN anyqueue_disabled d ON d.part = m.part AND d.seq = m.seq
    WHERE m.part = ? AND m.id = ?";

/// What a purge takes, in this order. Followers come before heads, so that none is promoted only to be
/// purged.
pub(crate) const PURGE: [&str; 4] = [
    "SELECT m.seq, m.rank, m.pos, m.grp, m.joined, NULL, NULL, 1, 0
     FROM anyqueue_blocked b CROSS JOIN anyqueue_message m ON m.seq = b.seq WHERE b.part = ? LIMIT ? + 0",
    "SELECT m.seq, m.rank, m.pos, m.grp, m.joined, t.state, t.at_ms, 0, 0
     FROM anyqueue_timed t CROSS JOIN anyqueue_message m ON m.seq = t.seq WHERE t.part = ? AND t.state <> 1 LIMIT ? + 0",
    "SELECT m.seq, m.rank, m.pos, m.grp, m.joined, NULL, NULL, 0, 0
     FROM anyqueue_ready r CROSS JOIN anyqueue_message m ON m.seq = r.seq WHERE r.part = ? LIMIT ? + 0",
    "SELECT m.seq, m.rank, m.pos, m.grp, m.joined, NULL, NULL, 0, 1
     FROM anyqueue_disabled d CROSS JOIN anyqueue_message m ON m.seq = d.seq WHERE d.part = ? LIMIT ? + 0",
];

/// This statement and the next three take a message out of the ready, timed, blocked or disabled ones. They
/// return what is stored there, and the moment that the message waits for.
pub(crate) const UNREADY: &str =
    "DELETE FROM anyqueue_ready WHERE part = ?1 AND rank = ?2 AND pos IN (?3, ?4)
    RETURNING deliveries, cancel, pos < 0, head, NULL";
pub(crate) const UNTIME: &str =
    "DELETE FROM anyqueue_timed WHERE seq = ? RETURNING deliveries, cancel, state = 1, head, at_ms";
pub(crate) const UNBLOCK: &str = "DELETE FROM anyqueue_blocked WHERE part = ? AND grp = ? AND joined = ?
    RETURNING deliveries, cancel, returned, 0, NULL";
pub(crate) const ENABLE: &str = "DELETE FROM anyqueue_disabled WHERE part = ? AND seq = ?
    RETURNING deliveries, cancel, returned, 0, at_ms";

/// A message and where it stands. It is ready if none of the other states is set.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) seq: i64,
    rank: i64,
    pos: i64,
    pub(crate) group: Option<String>,
    pub(crate) joined: i64,
    state: Option<i64>,
    at_ms: Option<i64>,
    is_blocked: bool,
    pub(crate) is_disabled: bool,
}

impl Found {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            rank: row.get(1)?,
            pos: row.get(2)?,
            group: row.get(3)?,
            joined: row.get(4)?,
            state: row.get(5)?,
            at_ms: row.get(6)?,
            is_blocked: row.get(7)?,
            is_disabled: row.get(8)?,
        })
    }

    /// Whether it is held under a lease that has not expired.
    pub(crate) fn is_leased(&self, now_ms: i64) -> bool {
        self.state == Some(LEASED) && self.at_ms > Some(now_ms)
    }
}

impl Tx<'_> {
    /// Finds the message with this id.
    pub(crate) fn look_up(&self, part: i64, id: MessageId) -> Result<Option<Found>> {
        first(self.conn, FIND, (part, id.as_bytes()), Found::read)
    }

    /// Takes a message that is not leased out of its place. It keeps its role in its group. Returns the place
    /// that it has when it is ready, and the moment that it waited for.
    pub(crate) fn withdraw(&self, part: i64, found: &Found) -> Result<(Ready, Option<i64>)> {
        let Found { seq, rank, pos, joined, .. } = *found;
        let read = |row: &Row<'_>| {
            let pos = if row.get(2)? { pos - FRONT } else { pos };
            let (deliveries, cancel, head) = (row.get(0)?, row.get(1)?, row.get(3)?);
            Ok((Ready { part, rank, pos, seq, joined, deliveries, cancel, head }, row.get(4)?))
        };
        let stood = if found.is_disabled {
            first(self.conn, ENABLE, (part, seq), read)?
        } else if found.is_blocked {
            first(self.conn, UNBLOCK, (part, &found.group, joined), read)?
        } else if found.state.is_some() {
            first(self.conn, UNTIME, [seq], read)?
        } else {
            first(self.conn, UNREADY, (part, rank, pos, pos - FRONT), read)?
        };
        let nowhere = || (Ready { pos, joined, ..Ready::new(part, rank, seq) }, None);
        let (ready, until) = stood.unwrap_or_else(nowhere);
        // The end of an expired lease is not a moment that the message waits for.
        Ok((ready, until.filter(|_| found.state != Some(LEASED))))
    }
}
