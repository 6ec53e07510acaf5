//! Messages that get the highest priority at a certain moment, wherever they stand.
//!
//! The earliest moment of all is stored with the counter, which each transaction reads anyway. So these
//! messages cost nothing where there are none.

use anyqueue::Result;

use crate::sql::{all, first, run};
use crate::tx::{FRONT, Tx};

/// How many messages are processed in one step, and how many steps in one transaction. The rest is left to
/// the next one.
const STEP: u32 = 1000;
const MAX_STEPS: usize = 10;

pub(crate) const URGENT: &str = "SELECT part, rank, pos, seq FROM anyqueue_message
    WHERE urgent_ms <= ? ORDER BY urgent_ms LIMIT ? + 0";
pub(crate) const NEXT_URGENT: &str =
    "SELECT min(urgent_ms) FROM anyqueue_message WHERE urgent_ms IS NOT NULL";
/// Changes the message if it is ready. Any other takes its rank from the message's row when it becomes ready.
pub(crate) const LIFT_READY: &str =
    "UPDATE anyqueue_ready SET rank = 0 WHERE part = ?1 AND rank = ?2 AND pos IN (?3, ?4)";
pub(crate) const LIFT: &str = "UPDATE anyqueue_message SET rank = 0, urgent_ms = NULL WHERE seq = ?";

impl Tx<'_> {
    /// Lifts messages whose moment has come. Runs at the beginning of a transaction, so that claims see it.
    pub(crate) fn lift_urgent(&mut self) -> Result<()> {
        if self.urgent_ms.is_none_or(|urgent_ms| urgent_ms > self.now.ms) {
            return Ok(());
        }
        for _ in 0..MAX_STEPS {
            if !self.lift_step()? {
                break;
            }
        }
        self.urgent_ms = first(self.conn, NEXT_URGENT, (), |row| row.get(0))?.flatten();
        Ok(())
    }

    /// Processes one step. Returns whether there may be more.
    fn lift_step(&self) -> Result<bool> {
        let place = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let urgent: Vec<(i64, i64, i64, i64)> = all(self.conn, URGENT, (self.now.ms, STEP), place)?;
        for (part, rank, pos, seq) in &urgent {
            if *rank != 0 {
                run(self.conn, LIFT_READY, (part, rank, pos, pos - FRONT))?;
            }
            run(self.conn, LIFT, [seq])?;
        }
        Ok(urgent.len() == STEP as usize)
    }

    /// Records when a message becomes urgent.
    pub(crate) fn note_urgent(&mut self, urgent_ms: i64) {
        self.urgent_ms = Some(self.urgent_ms.map_or(urgent_ms, |first| first.min(urgent_ms)));
    }
}
