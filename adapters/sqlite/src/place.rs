//! Where messages stand: ready, behind the head of their group, or waiting for a time.

use anyqueue::Result;

use crate::sql::{first, run};
use crate::tx::{FRONT, Tx};

pub(crate) const READY: &str = "INSERT INTO anyqueue_ready (part, rank, pos, seq, deliveries, cancel, head) VALUES (?, ?, ?, ?, ?, ?, ?)";
pub(crate) const TIME: &str = "INSERT INTO anyqueue_timed (seq, part, at_ms, state, deliveries, cancel, head)
    VALUES (?, ?, ?, ?, ?, ?, ?)";
pub(crate) const START_GROUP: &str =
    "INSERT INTO anyqueue_group (part, grp) VALUES (?, ?) ON CONFLICT DO NOTHING";
pub(crate) const BLOCK: &str = "INSERT INTO anyqueue_blocked (part, grp, pos, seq, deliveries, cancel, returned) VALUES (?, ?, ?, ?, ?, ?, ?)";
pub(crate) const END_GROUP: &str = "DELETE FROM anyqueue_group WHERE part = ? AND grp = ?";
pub(crate) const PROMOTE: &str = "DELETE FROM anyqueue_blocked WHERE part = ? AND grp = ? AND pos = ?";
pub(crate) const NEXT_OF_GROUP: &str = "SELECT m.rank, b.pos, b.seq, b.deliveries, b.cancel, b.returned
    FROM anyqueue_blocked b CROSS JOIN anyqueue_message m ON m.seq = b.seq
    WHERE b.part = ? AND b.grp = ? ORDER BY b.pos LIMIT 1";
pub(crate) const DISABLE: &str = "INSERT INTO anyqueue_disabled (part, seq, at_ms, deliveries, cancel, returned) VALUES (?, ?, ?, ?, ?, ?)";
pub(crate) const SET_POSITION: &str = "UPDATE anyqueue_message SET pos = ? WHERE seq = ?";

/// A message that can be pulled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) part: i64,
    pub(crate) rank: i64,
    /// Its own, less [`FRONT`] if it was given back.
    pub(crate) pos: i64,
    pub(crate) seq: i64,
    pub(crate) deliveries: i64,
    /// Cancellation was requested while it was held.
    pub(crate) cancel: bool,
    /// It is the head of a group.
    pub(crate) head: bool,
}

impl Ready {
    /// One that was never delivered.
    pub(crate) fn new(part: i64, rank: i64, pos: i64, seq: i64) -> Self {
        Self { part, rank, pos, seq, deliveries: 0, cancel: false, head: false }
    }

    fn is_returned(self) -> bool {
        self.pos < 0
    }
}

impl Tx<'_> {
    pub(crate) fn make_ready(&mut self, ready: Ready) -> Result<()> {
        let Ready { part, rank, pos, seq, deliveries, cancel, head } = ready;
        run(self.conn, READY, (part, rank, pos, seq, deliveries, cancel, head))?;
        self.hint_ready(part);
        Ok(())
    }

    /// Makes a message ready, through its group if it has one that counts.
    pub(crate) fn enter(&mut self, ready: Ready, group: Option<&str>) -> Result<()> {
        let Some(group) = group else { return self.make_ready(ready) };
        if run(self.conn, START_GROUP, (ready.part, group))? == 1 {
            return self.make_ready(Ready { head: true, ..ready });
        }
        let Ready { part, seq, deliveries, cancel, .. } = ready;
        let returned = ready.is_returned();
        let pos = if returned { ready.pos + FRONT } else { ready.pos };
        run(self.conn, BLOCK, (part, group, pos, seq, deliveries, cancel, returned)).map(drop)
    }

    /// The head of a group is gone: the next member becomes ready, or the group ends.
    pub(crate) fn leave(&mut self, part: i64, group: &str) -> Result<()> {
        let next = first(self.conn, NEXT_OF_GROUP, (part, group), |row| {
            let (rank, pos, seq) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (deliveries, cancel, returned) = (row.get(3)?, row.get(4)?, row.get(5)?);
            Ok((Ready { part, rank, pos, seq, deliveries, cancel, head: true }, returned))
        })?;
        let Some((next, returned)) = next else {
            return run(self.conn, END_GROUP, (part, group)).map(drop);
        };
        run(self.conn, PROMOTE, (part, group, next.pos))?;
        self.make_ready(Ready { pos: if returned { next.pos - FRONT } else { next.pos }, ..next })
    }

    /// Makes a message wait for its time.
    pub(crate) fn make_timed(&mut self, ready: Ready, state: i64, at_ms: i64) -> Result<()> {
        let Ready { part, seq, deliveries, cancel, head, .. } = ready;
        run(self.conn, TIME, (seq, part, at_ms, state, deliveries, cancel, head))?;
        self.hint_due(part, at_ms);
        Ok(())
    }

    /// Sets a message aside. Its group must have gone on.
    pub(crate) fn set_aside(&self, ready: Ready, at_ms: Option<i64>) -> Result<()> {
        let Ready { part, seq, deliveries, cancel, .. } = ready;
        run(self.conn, DISABLE, (part, seq, at_ms, deliveries, cancel, ready.is_returned())).map(drop)
    }

    /// Gives a message the last position in push order.
    pub(crate) fn move_to_end(&mut self, ready: &mut Ready) -> Result<()> {
        ready.pos = self.position();
        run(self.conn, SET_POSITION, (ready.pos, ready.seq)).map(drop)
    }
}
