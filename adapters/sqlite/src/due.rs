//! What becomes due: leases that have expired, and delays that are over.

use anyqueue::Result;

use crate::place::Ready;
use crate::sql::{all, run};
use crate::tx::{FRONT, LEASED, Tx};

/// How many messages are processed in one step, and how many steps in one transaction. The rest is left to
/// the next one.
const STEP: u32 = 1000;
const MAX_STEPS: usize = 10;

pub(crate) const DUE: &str =
    "SELECT t.state, m.grp, m.rank, m.pos, t.seq, m.joined, t.deliveries, t.cancel, t.head
    FROM anyqueue_timed t CROSS JOIN anyqueue_message m ON m.seq = t.seq
    WHERE t.part = ? AND t.at_ms <= ? ORDER BY t.at_ms, t.state, t.seq LIMIT ? + 0";
pub(crate) const BRING: &str = "DELETE FROM anyqueue_timed WHERE seq = ?";

impl Tx<'_> {
    /// Makes ready what is due in a partition. This is done once in a transaction and before anything else
    /// there, so that these messages get positions before those of later pushes.
    pub(crate) fn bring(&mut self, part: i64) -> Result<()> {
        if !self.brought.insert(part) {
            return Ok(());
        }
        for _ in 0..MAX_STEPS {
            if !self.bring_step(part)? {
                break;
            }
        }
        Ok(())
    }

    /// Processes one step. Returns whether there may be more.
    fn bring_step(&mut self, part: i64) -> Result<bool> {
        let due = all(self.conn, DUE, (part, self.now.ms, STEP), |row| {
            let ready = Ready {
                part,
                rank: row.get(2)?,
                pos: row.get(3)?,
                seq: row.get(4)?,
                joined: row.get(5)?,
                deliveries: row.get(6)?,
                cancel: row.get(7)?,
                head: row.get(8)?,
            };
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?, ready))
        })?;
        let more = due.len() == STEP as usize;
        for (state, group, mut ready) in due {
            run(self.conn, BRING, [ready.seq])?;
            if state == LEASED {
                ready.pos -= FRONT;
            } else {
                self.move_to_end(&mut ready)?;
            }
            let group = group.as_deref().filter(|_| self.is_live(part));
            self.stand(ready, group)?;
        }
        Ok(more)
    }
}
