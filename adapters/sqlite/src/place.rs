//! Where messages stand: ready, behind others of their group, or waiting for a moment.

use anyqueue::Result;

use crate::sql::{first, run};
use crate::tx::{FRONT, NewRun, Tx};

/// Makes ready messages that were stored one after the other. `OR FAIL`, because otherwise SQLite would copy
/// pages so that it could undo a part of the statement.
pub(crate) const READY_RUN: &str =
    "INSERT OR FAIL INTO anyqueue_ready (part, rank, pos, seq, deliveries, cancel, head)
    SELECT part, rank, pos, seq, 0, 0, 0 FROM anyqueue_message WHERE seq BETWEEN ? AND ?";
pub(crate) const TIME: &str = "INSERT INTO anyqueue_timed (seq, part, at_ms, state, deliveries, cancel, head)
    VALUES (?, ?, ?, ?, ?, ?, ?)";
pub(crate) const START_GROUP: &str =
    "INSERT INTO anyqueue_group (part, grp, heads) VALUES (?, ?, 1) ON CONFLICT DO NOTHING";
/// Does nothing if only one member is at the head.
pub(crate) const LEAVE_HEADS: &str =
    "UPDATE anyqueue_group SET heads = heads - 1 WHERE part = ? AND grp = ? AND heads > 1";
pub(crate) const BLOCK: &str = "INSERT INTO anyqueue_blocked (part, grp, joined, seq, deliveries, cancel, returned) VALUES (?, ?, ?, ?, ?, ?, ?)";
pub(crate) const END_GROUP: &str = "DELETE FROM anyqueue_group WHERE part = ? AND grp = ?";
pub(crate) const PROMOTE: &str = "DELETE FROM anyqueue_blocked WHERE part = ? AND grp = ? AND joined = ?";
pub(crate) const NEXT_OF_GROUP: &str =
    "SELECT m.rank, m.pos, b.seq, b.joined, b.deliveries, b.cancel, b.returned
    FROM anyqueue_blocked b CROSS JOIN anyqueue_message m ON m.seq = b.seq
    WHERE b.part = ? AND b.grp = ? ORDER BY b.joined LIMIT 1";
pub(crate) const DISABLE: &str = "INSERT INTO anyqueue_disabled (part, seq, at_ms, deliveries, cancel, returned) VALUES (?, ?, ?, ?, ?, ?)";
/// For a message that also gets a new place in its group; [`SET_POSITION`] is for one that keeps its place.
pub(crate) const SET_POSITIONS: &str = "UPDATE anyqueue_message SET pos = ?1, joined = ?1 WHERE seq = ?2";
pub(crate) const SET_POSITION: &str = "UPDATE anyqueue_message SET pos = ? WHERE seq = ?";

/// A message as it is when it can be pulled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) part: i64,
    pub(crate) rank: i64,
    /// Its own position, less [`FRONT`] if it was returned.
    pub(crate) pos: i64,
    pub(crate) seq: i64,
    /// Its place in its group, if it is in one.
    pub(crate) joined: i64,
    pub(crate) deliveries: i64,
    /// Whether cancellation was requested while it was held.
    pub(crate) cancel: bool,
    /// Whether it is at the head of its group: on offer, held or postponed.
    pub(crate) head: bool,
}

impl Ready {
    /// A message that is being pushed.
    pub(crate) fn new(part: i64, rank: i64, seq: i64) -> Self {
        Self { part, rank, pos: seq, seq, joined: seq, deliveries: 0, cancel: false, head: false }
    }

    fn is_returned(self) -> bool {
        self.pos < 0
    }
}

impl Tx<'_> {
    pub(crate) fn make_ready(&mut self, ready: Ready) -> Result<()> {
        let Ready { part, rank, pos, seq, deliveries, cancel, head, .. } = ready;
        self.ready.run(self.conn, (part, rank, pos, seq, deliveries, cancel, head))?;
        self.hint_ready(part);
        Ok(())
    }

    /// Makes a message ready that was just stored and is in no group, but only together with those that are
    /// stored next, because SQLite would search for the position of each one separately.
    /// [`ready_new`](Self::ready_new) completes it.
    pub(crate) fn make_ready_soon(&mut self, part: i64, rank: i64, seq: i64) {
        self.new.get_or_insert(NewRun { part, rank, first: seq, last: seq }).last = seq;
        self.hint_ready(part);
    }

    /// Completes [`make_ready_soon`](Self::make_ready_soon). Must run before ready messages are read, and
    /// before a message is stored that does not become ready in this way.
    pub(crate) fn ready_new(&mut self) -> Result<()> {
        match self.new.take() {
            None => Ok(()),
            Some(NewRun { part, rank, first, last }) if first == last => {
                self.ready.run(self.conn, (part, rank, first, first, 0, false, false)).map(drop)
            }
            Some(NewRun { first, last, .. }) => run(self.conn, READY_RUN, (first, last)).map(drop),
        }
    }

    /// Makes a message ready: in its turn, if it is in a group.
    pub(crate) fn stand(&mut self, ready: Ready, group: Option<&str>) -> Result<()> {
        match group {
            Some(group) if ready.head => self.step_back(ready, group),
            Some(group) => self.enter(ready, group),
            None => self.make_ready(ready),
        }
    }

    fn enter(&mut self, ready: Ready, group: &str) -> Result<()> {
        if run(self.conn, START_GROUP, (ready.part, group))? == 1 {
            return self.make_ready(Ready { head: true, ..ready });
        }
        self.block(ready, group)
    }

    /// Moves a message from the head of its group to its place in it. If no other is at the head, offers the
    /// first member.
    fn step_back(&mut self, ready: Ready, group: &str) -> Result<()> {
        if self.leaves_others(ready.part, group)? {
            return self.block(ready, group);
        }
        match self.next_of_group(ready.part, group)? {
            Some(next) if next.joined < ready.joined => {
                self.block(ready, group)?;
                self.promote(next, group)
            }
            _ => self.make_ready(ready),
        }
    }

    /// Continues a group without one of its heads: if that was the only one, the next member becomes ready,
    /// or the group ends.
    pub(crate) fn leave(&mut self, part: i64, group: &str) -> Result<()> {
        if self.leaves_others(part, group)? {
            return Ok(());
        }
        match self.next_of_group(part, group)? {
            Some(next) => self.promote(next, group),
            None => run(self.conn, END_GROUP, (part, group)).map(drop),
        }
    }

    /// Removes one of several heads from a group. Returns `false`, and changes nothing, if there is only one.
    fn leaves_others(&self, part: i64, group: &str) -> Result<bool> {
        Ok(run(self.conn, LEAVE_HEADS, (part, group))? == 1)
    }

    /// Returns the first message that waits behind the head of a group.
    fn next_of_group(&self, part: i64, group: &str) -> Result<Option<Ready>> {
        first(self.conn, NEXT_OF_GROUP, (part, group), |row| {
            let (rank, pos, seq, joined) = (row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?);
            let (deliveries, cancel) = (row.get(4)?, row.get(5)?);
            let pos = if row.get(6)? { pos - FRONT } else { pos };
            Ok(Ready { part, rank, pos, seq, joined, deliveries, cancel, head: true })
        })
    }

    fn promote(&mut self, next: Ready, group: &str) -> Result<()> {
        run(self.conn, PROMOTE, (next.part, group, next.joined))?;
        self.make_ready(next)
    }

    fn block(&self, ready: Ready, group: &str) -> Result<()> {
        let Ready { part, seq, joined, deliveries, cancel, .. } = ready;
        let row = (part, group, joined, seq, deliveries, cancel, ready.is_returned());
        run(self.conn, BLOCK, row).map(drop)
    }

    /// Makes a message wait for a moment.
    pub(crate) fn make_timed(&mut self, ready: Ready, state: i64, at_ms: i64) -> Result<()> {
        let Ready { part, seq, deliveries, cancel, head, .. } = ready;
        run(self.conn, TIME, (seq, part, at_ms, state, deliveries, cancel, head))?;
        self.hint_due(part, at_ms);
        Ok(())
    }

    /// Disables a message. Its group must have gone on without it.
    pub(crate) fn set_aside(&self, ready: Ready, at_ms: Option<i64>) -> Result<()> {
        let Ready { part, seq, deliveries, cancel, .. } = ready;
        run(self.conn, DISABLE, (part, seq, at_ms, deliveries, cancel, ready.is_returned())).map(drop)
    }

    /// Gives a message the last position in push order and, unless it is at the head of its group, the last
    /// place in the group.
    pub(crate) fn move_to_end(&mut self, ready: &mut Ready) -> Result<()> {
        ready.pos = self.position();
        if ready.head {
            return run(self.conn, SET_POSITION, (ready.pos, ready.seq)).map(drop);
        }
        ready.joined = ready.pos;
        run(self.conn, SET_POSITIONS, (ready.pos, ready.seq)).map(drop)
    }
}
