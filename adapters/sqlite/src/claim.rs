//! Leasing messages.

use anyqueue::Result;

use crate::job::{Claim, Claimed, Taken};
use crate::sql::{all, first, run};
use crate::stored::Stored;
use crate::tx::{LEASED, Tx};

/// Messages leased for one pull.
const MAX_CLAIM: u32 = 1000;

/// The first messages of a partition; a paused one has none. `LIMIT ? + 0`: a bare parameter would be planned anew at each
/// use.
pub(crate) const FIRST: &str = "SELECT r.rank, r.pos, r.deliveries, m.seq, m.id, m.body, m.headers
    FROM anyqueue_ready r CROSS JOIN anyqueue_message m ON m.seq = r.seq
    WHERE r.part = (SELECT part FROM anyqueue_partition WHERE part = ? AND paused = 0)
    ORDER BY r.rank, r.pos LIMIT ? + 0";
/// Those up to the last of them. Nobody comes in between: this transaction has the write lock.
pub(crate) const LEASE: &str =
    "INSERT INTO anyqueue_timed (seq, part, at_ms, state, deliveries, cancel, head, token)
    SELECT seq, part, ?4, ?5, deliveries + 1, cancel, head, ?6 FROM anyqueue_ready
    WHERE part = ?1 AND (rank, pos) <= (?2, ?3)";
pub(crate) const UNREADY: &str = "DELETE FROM anyqueue_ready WHERE part = ?1 AND (rank, pos) <= (?2, ?3)";
pub(crate) const NEXT_DUE: &str = "SELECT min(at_ms) FROM anyqueue_timed WHERE part = ?";

/// Leases the first messages of a partition.
pub(crate) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Claimed> {
    let Some(part) = tx.find(&claim.partition)? else { return Ok(Claimed::default()) };
    tx.bring(part)?;
    let mut last = None;
    let taken = all(
        tx.conn,
        FIRST,
        (part, u32::try_from(claim.max).map_or(MAX_CLAIM, |max| max.min(MAX_CLAIM))),
        |row| {
            last = Some((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
            Ok(Taken { stored: Stored::of(row, 3)?, deliveries: row.get::<_, i64>(2)? + 1 })
        },
    )?;
    let secret = uuid::Uuid::new_v4().as_u128();
    if let Some((rank, pos)) = last {
        let at_ms = tx.now.after(claim.lease);
        run(tx.conn, LEASE, (part, rank, pos, at_ms, LEASED, secret.to_be_bytes()))?;
        run(tx.conn, UNREADY, (part, rank, pos))?;
    }
    if let Some(at_ms) = first(tx.conn, NEXT_DUE, [part], |row| row.get(0))?.flatten() {
        tx.hint_due(part, at_ms);
    }
    Ok(Claimed::new(secret, taken))
}
