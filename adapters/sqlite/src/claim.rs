//! Leasing messages.

use anyqueue::Result;
use rusqlite::{Connection, Row};

use crate::error::classify;
use crate::job::{Claim, Claimed, Taken};
use crate::record::Stored;
use crate::sql::{first, limit_of, run};
use crate::tx::{LEASED, Tx};

/// The most messages leased for one pull.
const MAX_CLAIM: usize = 1000;
/// A pull leases no further message once those that it has are so many bytes: nobody else can write while it reads
/// them, and all are in memory at once.
pub(crate) const CLAIM_BYTES: usize = 32 * 1024 * 1024;

/// The first messages of a partition; a paused one has none. `LIMIT ? + 0`, because SQLite would plan the
/// statement anew at each use with a bare parameter.
pub(crate) const FIRST: &str =
    "SELECT r.deliveries, m.seq, m.id, m.body, m.headers, r.rank, r.pos, iif(r.head, m.grp, NULL)
    FROM anyqueue_ready r CROSS JOIN anyqueue_message m ON m.seq = r.seq
    WHERE r.part = (SELECT part FROM anyqueue_partition WHERE part = ? AND paused = 0)
    ORDER BY r.rank, r.pos LIMIT ? + 0";
/// Leases all messages up to the last that was read. No other can come in between, since this transaction has
/// the write lock.
pub(crate) const LEASE: &str =
    "INSERT INTO anyqueue_timed (seq, part, at_ms, state, deliveries, cancel, head, token)
    SELECT seq, part, ?4, ?5, deliveries + 1, cancel, head, ?6 FROM anyqueue_ready
    WHERE part = ?1 AND (rank, pos) <= (?2, ?3)";
pub(crate) const UNREADY: &str = "DELETE FROM anyqueue_ready WHERE part = ?1 AND (rank, pos) <= (?2, ?3)";
pub(crate) const NEXT_DUE: &str = "SELECT min(at_ms) FROM anyqueue_timed WHERE part = ?";

/// The first messages that wait behind the head of a group.
pub(crate) const FOLLOWERS: &str = "SELECT b.deliveries, m.seq, m.id, m.body, m.headers, b.joined
    FROM anyqueue_blocked b CROSS JOIN anyqueue_message m ON m.seq = b.seq
    WHERE b.part = ? AND b.grp = ? ORDER BY b.joined LIMIT ? + 0";
pub(crate) const LEASE_FOLLOWERS: &str =
    "INSERT INTO anyqueue_timed (seq, part, at_ms, state, deliveries, cancel, head, token)
    SELECT seq, part, ?4, ?5, deliveries + 1, cancel, 1, ?6 FROM anyqueue_blocked
    WHERE part = ?1 AND grp = ?2 AND joined <= ?3";
pub(crate) const UNBLOCK_FOLLOWERS: &str =
    "DELETE FROM anyqueue_blocked WHERE part = ?1 AND grp = ?2 AND joined <= ?3";
pub(crate) const JOIN_HEADS: &str =
    "UPDATE anyqueue_group SET heads = heads + ?3 WHERE part = ?1 AND grp = ?2";

/// Where a ready message stands: its rank and its position.
type Spot = (i64, i64);

/// Leases the first messages of a partition.
pub(crate) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Claimed> {
    let Some(part) = tx.find(&claim.partition)? else { return Ok(Claimed::default()) };
    tx.bring(part)?;
    let secret = uuid::Uuid::new_v4().as_u128();
    let leases = Leases { conn: tx.conn, part, at_ms: tx.now.after(claim.lease), secret };
    let taken = leases.take(claim.max.min(MAX_CLAIM), claim.group_members)?;
    if let Some(at_ms) = first(tx.conn, NEXT_DUE, [part], |row| row.get(0))?.flatten() {
        tx.hint_due(part, at_ms);
    }
    Ok(Claimed::new(secret, taken))
}

/// The leases of one claim, which begin and end together.
struct Leases<'c> {
    conn: &'c Connection,
    part: i64,
    at_ms: i64,
    secret: u128,
}

impl Leases<'_> {
    /// Takes the first messages and, after each that is the head of a group, those behind it, up to
    /// `group_members` in all.
    fn take(&self, max: usize, group_members: usize) -> Result<Vec<Taken>> {
        let (taken, last) = self.read(max, group_members)?;
        if let Some((rank, pos)) = last {
            let Self { conn, part, at_ms, secret } = *self;
            run(conn, LEASE, (part, rank, pos, at_ms, LEASED, secret.to_be_bytes()))?;
            run(conn, UNREADY, (part, rank, pos))?;
        }
        Ok(taken)
    }

    /// Reads the first messages, and returns the position of the last one. Those behind the head of a group
    /// are leased already.
    fn read(&self, max: usize, group_members: usize) -> Result<(Vec<Taken>, Option<Spot>)> {
        let mut statement = self.conn.prepare_cached(FIRST).map_err(classify)?;
        let mut rows = statement.query((self.part, limit_of(max))).map_err(classify)?;
        let (mut read, mut last) = (ReadMessages::default(), None);
        // Row by row, because members of groups may leave no room for all the first messages.
        while read.has_room(max)
            && let Some(row) = rows.next().map_err(classify)?
        {
            let (first, at, group) = read_first(row).map_err(classify)?;
            read.push(first);
            last = Some(at);
            let members = read.taken.len() + group_members.saturating_sub(1);
            if let Some(group) = group.filter(|_| read.has_room(members.min(max))) {
                self.take_followers(&group, members.min(max), &mut read)?;
            }
        }
        Ok((read.taken, last))
    }

    /// Takes the first members behind the head of a group, to be held together with it, until there are so many
    /// messages in all.
    fn take_followers(&self, group: &str, max: usize, read: &mut ReadMessages) -> Result<()> {
        let Self { conn, part, at_ms, secret } = *self;
        let before = read.taken.len();
        let last = {
            let mut statement = conn.prepare_cached(FOLLOWERS).map_err(classify)?;
            let params = (part, group, limit_of(max - before));
            let (mut rows, mut last) = (statement.query(params).map_err(classify)?, None);
            while read.has_room(max)
                && let Some(row) = rows.next().map_err(classify)?
            {
                read.push(read_taken(row).map_err(classify)?);
                last = Some(row.get::<_, i64>(5).map_err(classify)?);
            }
            last
        };
        if let Some(last) = last {
            run(conn, LEASE_FOLLOWERS, (part, group, last, at_ms, LEASED, secret.to_be_bytes()))?;
            run(conn, UNBLOCK_FOLLOWERS, (part, group, last))?;
            run(conn, JOIN_HEADS, (part, group, limit_of(read.taken.len() - before)))?;
        }
        Ok(())
    }
}

/// What a claim has read so far.
#[derive(Default)]
struct ReadMessages {
    taken: Vec<Taken>,
    bytes: usize,
}

impl ReadMessages {
    fn push(&mut self, taken: Taken) {
        self.bytes += taken.stored.bytes();
        self.taken.push(taken);
    }

    fn has_room(&self, max: usize) -> bool {
        self.taken.len() < max && self.bytes < CLAIM_BYTES
    }
}

/// Reads a message, its position, and the group that it is the head of.
fn read_first(row: &Row<'_>) -> rusqlite::Result<(Taken, Spot, Option<String>)> {
    Ok((read_taken(row)?, (row.get(5)?, row.get(6)?), row.get(7)?))
}

/// Reads the delivery count, and the message.
fn read_taken(row: &Row<'_>) -> rusqlite::Result<Taken> {
    Ok(Taken { stored: Stored::of(row, 1)?, deliveries: row.get::<_, i64>(0)? + 1 })
}
