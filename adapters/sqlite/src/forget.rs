//! Deletes the rows of partitions that have nothing, a few at a time, whenever some others were looked up or
//! created.

use anyqueue::Result;

use crate::sql::{all, run};
use crate::tx::Tx;

/// After how many partitions that were looked up or created some are examined, and how many. The second
/// number is larger, so there are never many more rows than partitions in use.
const LOOKED_UP: usize = 16;
const LOOKED_AT: u32 = 64;

/// The next partitions, and whether each can be forgotten: neither it nor its dead letters have messages or
/// are paused, and no ends or counts of it are kept. Dead letters have negative numbers.
pub(crate) const LOOK: &str = "SELECT p.part, p.paused = 0
        AND NOT EXISTS (SELECT 1 FROM anyqueue_message WHERE part = p.part)
        AND NOT EXISTS (SELECT 1 FROM anyqueue_message WHERE part = -p.part)
        AND NOT EXISTS (SELECT 1 FROM anyqueue_partition WHERE part = -p.part AND paused = 1)
        AND NOT EXISTS (SELECT 1 FROM anyqueue_ended WHERE part = p.part)
        AND NOT EXISTS (SELECT 1 FROM anyqueue_series WHERE part = p.part)
    FROM anyqueue_partition p WHERE p.part > ? ORDER BY p.part LIMIT ? + 0";
pub(crate) const FORGET: &str = "DELETE FROM anyqueue_partition WHERE part = ?1 OR part = -?1";
/// Tells other connections, which remember partitions by number.
const TELL: &str = "UPDATE anyqueue_counter SET forgotten = forgotten + 1";

impl Tx<'_> {
    /// Deletes some partitions that have nothing, if it is time for that. Runs at the beginning of a
    /// transaction, when no number of a partition is in use.
    pub(crate) fn forget_some(&mut self) -> Result<()> {
        if self.parts.looked_up < LOOKED_UP {
            return Ok(());
        }
        self.parts.looked_up = 0;
        let look = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?));
        let seen: Vec<(i64, bool)> = all(self.conn, LOOK, (self.parts.looked_at.max(0), LOOKED_AT), look)?;
        // After the last partition, the next look begins with the first again.
        let last = seen.last().filter(|_| seen.len() == LOOKED_AT as usize);
        self.parts.looked_at = last.map_or(0, |(part, _)| *part);
        let mut any = false;
        for (part, _) in seen.into_iter().filter(|(_, empty)| *empty) {
            run(self.conn, FORGET, [part])?;
            self.parts.forget(part);
            any = true;
        }
        if any {
            run(self.conn, TELL, ())?;
            self.parts.forgotten = self.parts.forgotten.map(|forgotten| forgotten + 1);
        }
        Ok(())
    }
}
