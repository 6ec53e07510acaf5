//! Settling deliveries and extending leases.

use std::collections::HashMap;

use anyqueue::adapter::{Action, Extension, Hint, Settlement};
use anyqueue::{Error, ErrorKind, ExtendOutcome, Operation, Result, SettleOutcome};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::PostgresQueue;
use crate::error::{ERRORS, NAME};
use crate::limits::LEASE;
use crate::settle_query;
use crate::settlements::{Kind, PendingSettlement, SettlementBatch, in_runs};
use crate::sql::{get, millis};
use crate::storage::Inner;
use crate::successors::EncodedSuccessor;
use crate::token::{Proof, bind_proofs};

impl PostgresQueue {
    /// Settles with one statement per kind, each in a transaction of its own, since settlements are
    /// independent of each other.
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let mut batch = SettlementBatch::new(settlements, &self.inner.config);
        for kind in Kind::ALL {
            for pending in in_runs(batch.take(kind)) {
                self.settle_run(kind, pending, &mut batch).await;
            }
        }
        batch.outcomes()
    }

    async fn settle_run<'s>(
        &self,
        kind: Kind,
        pending: Vec<PendingSettlement<'s>>,
        batch: &mut SettlementBatch<'s>,
    ) {
        if pending.iter().any(PendingSettlement::is_large) {
            return self.settle_apart(kind, pending, batch).await;
        }
        let done = self.settle_together(kind, &pending).await;
        if done.as_ref().is_err_and(|error| can_spoil(error, &pending)) && pending.len() > 1 {
            self.settle_apart(kind, pending, batch).await;
        } else {
            batch.record_answer(&pending, &done);
        }
    }

    async fn settle_together(
        &self,
        kind: Kind,
        pending: &[PendingSettlement<'_>],
    ) -> Result<Option<Vec<i32>>> {
        let query = settle_query::together(&self.inner.statements, kind, pending);
        let rows = self.fetch(query, Operation::Settle).await.map_err(stamp)?;
        let (done, advanced) =
            rows.first().map_or(Ok((None, 0)), |row| read_settled(row, 0)).map_err(stamp)?;
        self.hint_settled(pending, advanced);
        Ok(done)
    }

    /// Settles each one that stores something alone, and the others together, so that what cannot be stored
    /// affects nothing else.
    async fn settle_apart<'s>(
        &self,
        kind: Kind,
        pending: Vec<PendingSettlement<'s>>,
        batch: &mut SettlementBatch<'s>,
    ) {
        let (ones, others): (Vec<_>, Vec<_>) = pending.into_iter().partition(PendingSettlement::stores);
        let ones = ones.into_iter().map(|one| vec![one]);
        let mut broken = None;
        for part in std::iter::once(others).chain(ones).filter(|part| !part.is_empty()) {
            let done = match (&broken, part.as_slice()) {
                (Some(error), _) => Err(Error::clone(error)),
                (None, [one]) if one.is_large() => self.settle_in_parts(kind, one).await,
                (None, part) => self.settle_together(kind, part).await,
            };
            batch.record_answer(&part, &done);
            broken = done.err().filter(|error| !is_refusal(error)); // the others would wait as long, and fail too
        }
    }

    /// Settles a delivery whose successors are too large for one statement: with several, in one transaction.
    async fn settle_in_parts(&self, kind: Kind, pending: &PendingSettlement<'_>) -> Result<Option<Vec<i32>>> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Settle));
        }
        let Inner { statements, pool, config, .. } = &*self.inner;
        let (first, parts) = settle_query::in_parts(statements, kind, pending);
        let settle = async |conn: &mut PgConnection| {
            let rows = first.persistent(config.prepared).fetch_all(&mut *conn).await?;
            let is_done = |row: &PgRow| row.try_get::<Option<Vec<i32>>, _>(0).map(|done| done.is_some());
            let (mut all, parts) = (rows, parts);
            if all.first().map_or(Ok(false), is_done)? {
                for part in parts {
                    let query = part.bind(statements.store_successors.query());
                    all.extend(query.persistent(config.prepared).fetch_all(&mut *conn).await?);
                }
            }
            Ok(all)
        };
        let rows = pool.transact(settle).await.map_err(stamp)?;
        let mut rows = rows.iter();
        let (done, mut advanced) =
            rows.next().map_or(Ok((None, 0)), |row| read_settled(row, 0)).map_err(stamp)?;
        for row in rows {
            advanced += get::<i32>(row, 0).map_err(stamp)?;
        }
        self.hint_settled(std::slice::from_ref(pending), advanced);
        Ok(done)
    }

    /// Wakes pulls for what settlements have made available.
    pub(crate) fn hint_settled(&self, settled: &[PendingSettlement<'_>], advanced: i32) {
        let advanced = usize::try_from(advanced).unwrap_or(0);
        let is_felt = |pending: &&PendingSettlement<'_>| {
            advanced > 0 || pending.has_successors() || pending.settlement.action != Action::Remove
        };
        let mut settled = settled.iter().filter(is_felt).peekable();
        if settled.peek().is_none() {
            return; // removals only advance groups
        }
        let mut hints = HashMap::new();
        for pending in settled {
            let from = &pending.settlement.lease.partition;
            let (partition, hint) = match &pending.settlement.action {
                Action::Remove => (from, Hint::default()),
                Action::Release | Action::Retry => (from, Hint::ready(1)),
                Action::Postpone { delay, .. } if delay.is_zero() => (from, Hint::ready(1)),
                Action::Postpone { delay, .. } => (from, Hint::due(*delay)),
                Action::Move { to, .. } => (to, Hint::ready(1)),
            };
            hints.entry(partition).or_insert_with(Hint::default).add(hint);
            hints.entry(from).or_default();
            for (partition, hint) in pending.then.iter().map(EncodedSuccessor::hint) {
                hints.entry(partition).or_default().add(hint);
            }
        }
        for (partition, mut hint) in hints {
            hint.add(Hint::ready(advanced)); // it is not known in which of them; a surplus hint is harmless
            if advanced > 0 {
                self.inner.scan_starts.forget(partition);
            }
            self.send_hint(partition, hint);
        }
    }

    pub(crate) async fn extend_all(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let valid = |extension: &&Extension| LEASE.check(extension.duration).is_ok();
        let proved = extensions
            .iter()
            .filter(valid)
            .filter_map(|extension| Some((Proof::of(&extension.lease)?, millis(extension.duration))));
        let mut pending: Vec<_> = proved.collect();
        pending.sort_unstable();
        let held = self.extend_by(pending).await.map_err(Error::repeatable);
        let outcome = |extension: &Extension| {
            LEASE.check(extension.duration)?;
            let held = held.as_ref().map_err(Clone::clone)?;
            Ok(match Proof::of(&extension.lease).and_then(|proof| held.get(&(proof.id, proof.secret))) {
                Some(true) => ExtendOutcome::CancelRequested,
                Some(false) => ExtendOutcome::Extended,
                None => ExtendOutcome::Lost,
            })
        };
        extensions.iter().map(outcome).collect()
    }

    /// Returns the leases that are still valid, and whether their cancellation was requested.
    async fn extend_by(&self, pending: Vec<(Proof, i64)>) -> Result<HashMap<(Uuid, Uuid), bool>> {
        if pending.is_empty() && !self.is_closed() {
            return Ok(HashMap::new());
        }
        let leases_ms: Vec<_> = pending.iter().map(|(_, lease_ms)| *lease_ms).collect();
        let query = self.inner.statements.extend.query();
        let query = bind_proofs(query, pending.iter().map(|(proof, _)| *proof)).bind(leases_ms);
        let rows = self.fetch(query, Operation::Extend).await?;
        rows.iter().map(|row| Ok(((get(row, 0)?, get(row, 1)?), get(row, 2)?))).collect()
    }
}

/// Reads the numbers of the settled ones, and how many groups advanced, starting at this column.
pub(crate) fn read_settled(row: &PgRow, column: usize) -> Result<(Option<Vec<i32>>, i32)> {
    Ok((get(row, column)?, get::<Option<i32>>(row, column + 1)?.unwrap_or(0)))
}

/// Whether something that one of these settlements stores may be the reason why the server refused all of
/// them.
pub(crate) fn can_spoil(error: &Error, pending: &[PendingSettlement<'_>]) -> bool {
    is_refusal(error) && pending.iter().any(PendingSettlement::stores)
}

/// Whether the server refused this request, but may accept another. That is not so if it could not be
/// reached, was busy, or is incompatible.
fn is_refusal(error: &Error) -> bool {
    use ErrorKind::{Corrupt, Full, Internal, InvalidInput, TooLarge};
    matches!(error.kind(), Full | TooLarge | InvalidInput | Corrupt | Internal)
}

/// A repetition is safe, since settling twice is harmless.
pub(crate) fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Settle)
}
