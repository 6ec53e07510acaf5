//! Leasing messages.

use std::time::Duration;

use anyqueue::{Action, Bytes, Lease, MessageId, PartitionId, Result, Settlement};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::settle::token;
use crate::sql::{all, first, run};
use crate::tx::{LEASED, Tx};
use crate::writer::{Job, Work};

/// Messages leased for one pull.
const MAX_CLAIM: u32 = 1000;

/// The first messages of a partition; a paused one has none. `LIMIT ? + 0`: a bare parameter would be planned anew at each
/// use.
pub(crate) const FIRST: &str = "SELECT r.rank, r.pos, r.seq, r.deliveries, m.body
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

/// What one pull asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) partition: PartitionId,
    pub(crate) max: usize,
    pub(crate) lease: Duration,
    /// Fires when nobody wants it any more.
    pub(crate) stop: CancellationToken,
}

/// What it got. Once [bound](Self::return_to), what nobody takes is given back, for a pull may be dropped at any moment.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    secret: u128,
    taken: Vec<Taken>,
    origin: Option<(PartitionId, mpsc::WeakSender<Job>)>,
}

impl Claimed {
    /// From now on, after the commit, gives back to the writer what is not taken.
    pub(crate) fn return_to(&mut self, jobs: mpsc::WeakSender<Job>, partition: PartitionId) {
        self.origin = Some((partition, jobs));
    }

    /// The messages and the secret of their tokens.
    pub(crate) fn take(mut self) -> (Vec<Taken>, u128) {
        (std::mem::take(&mut self.taken), self.secret)
    }

    fn release(&self, partition: &PartitionId) -> Work {
        let release = |taken: &Taken| Settlement {
            lease: Lease {
                partition: partition.clone(),
                id: MessageId::from_bytes([0; 16]), // the token says where the message is
                token: token(taken.seq, self.secret),
            },
            action: Action::Release,
        };
        Work::Settle { settlements: self.taken.iter().map(release).collect(), claim: None }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let Some((partition, jobs)) = self.origin.take().filter(|_| !self.taken.is_empty()) else { return };
        if let Some(jobs) = jobs.upgrade() {
            // Where there is no room, or the handle is closed, it comes back at its lease's end.
            let _ = jobs.try_send(Job { work: self.release(&partition), reply: oneshot::channel().0 });
        }
    }
}

/// One message as it is stored.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) seq: i64,
    pub(crate) deliveries: i64,
    pub(crate) body: Bytes,
}

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
            let body = Bytes::copy_from_slice(row.get_ref(4)?.as_bytes()?);
            Ok(Taken { seq: row.get(2)?, deliveries: row.get::<_, i64>(3)? + 1, body })
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
    Ok(Claimed { secret, taken, origin: None })
}
