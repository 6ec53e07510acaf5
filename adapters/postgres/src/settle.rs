//! Settling deliveries and extending leases.

use std::collections::HashMap;
use std::time::SystemTime;

use anyqueue::adapter::{Action, Envelope, Extension, Hint, Settlement};
use anyqueue::{Error, ExtendOutcome, Headers, MessageData, MessageId, Operation, Result, SettleOutcome};
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use uuid::Uuid;

use crate::PostgresQueue;
use crate::error::{ERRORS, NAME};
use crate::limits::{LEASE, MAX_DELAY};
use crate::sql::{Statements, get, millis};
use crate::token::{Proof, bind_proofs, bind_proofs_and_tids};

/// The wire size of a proof and its tuple id, lengths included.
const PROOF_BYTES: usize = 64;

/// The kinds of settlements. All of one kind share a statement.
#[derive(Clone, Copy)]
enum Kind {
    Remove,
    Release,
    Move,
}

/// One settlement: the position of its answer, its proof, and its headers, encoded.
struct PendingSettlement<'s> {
    index: usize,
    proof: Proof,
    settlement: &'s Settlement,
    headers: Option<Vec<u8>>,
}

/// Settlements by kind, each list ordered by id, so that no two calls wait for each other.
#[derive(Default)]
pub(crate) struct SettlementBatch<'s> {
    outcomes: Vec<Result<SettleOutcome>>,
    removals: Vec<PendingSettlement<'s>>,
    releases: Vec<PendingSettlement<'s>>,
    moves: Vec<PendingSettlement<'s>>,
}

impl<'s> SettlementBatch<'s> {
    /// Everything is lost until the server says otherwise. If a lease occurs twice, only the first one can hold.
    pub(crate) fn new(settlements: &'s [Settlement]) -> Self {
        let mut batch =
            Self { outcomes: vec![Ok(SettleOutcome::Lost); settlements.len()], ..Self::default() };
        let mut all = Vec::with_capacity(settlements.len());
        for (index, settlement) in settlements.iter().enumerate() {
            let Some(proof) = Proof::of(&settlement.lease) else { continue };
            match encode(&settlement.action, settlement.lease.id) {
                Ok(headers) => all.push(PendingSettlement { index, proof, settlement, headers }),
                Err(error) => batch.set(index, Err(error)),
            }
        }
        all.sort_unstable_by_key(|pending| (pending.proof, pending.index));
        all.dedup_by_key(|pending| pending.proof);
        for pending in all {
            batch.list(&pending.settlement.action).push(pending);
        }
        batch
    }

    fn list(&mut self, action: &Action) -> &mut Vec<PendingSettlement<'s>> {
        match action {
            Action::Remove => &mut self.removals,
            Action::Release | Action::Retry | Action::Postpone { .. } => &mut self.releases,
            Action::Move { .. } => &mut self.moves,
        }
    }

    fn set(&mut self, index: usize, outcome: Result<SettleOutcome>) {
        if let Some(outcome_slot) = self.outcomes.get_mut(index) {
            *outcome_slot = outcome;
        }
    }

    /// Whether all settlements are removals.
    pub(crate) fn only_removes(&self) -> bool {
        self.releases.is_empty() && self.moves.is_empty() && !self.removals.is_empty()
    }

    /// Binds the proofs of the removals.
    pub(crate) fn bind_removals(
        &self,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Query<'static, Postgres, PgArguments> {
        bind_proofs_and_tids(query, self.removals.iter().map(|pending| pending.proof))
    }

    /// The approximate wire size of the removals.
    pub(crate) fn removal_bytes(&self) -> usize {
        self.removals.len() * PROOF_BYTES
    }

    /// Records the answer to the removals, and returns all outcomes.
    pub(crate) fn removed(mut self, done: &Result<Option<Vec<i32>>>) -> Vec<Result<SettleOutcome>> {
        let pending = std::mem::take(&mut self.removals);
        self.record_answer(&pending, done);
        self.outcomes
    }

    fn record_answer(&mut self, pending: &[PendingSettlement<'_>], done: &Result<Option<Vec<i32>>>) {
        match done {
            Ok(numbers) => {
                for number in numbers.iter().flatten() {
                    let index = usize::try_from(*number).unwrap_or(0).checked_sub(1);
                    if let Some(pending) = index.and_then(|index| pending.get(index)) {
                        self.set(pending.index, Ok(SettleOutcome::Settled));
                    }
                }
            }
            Err(error) => pending.iter().for_each(|pending| self.set(pending.index, Err(error.clone()))),
        }
    }
}

/// Checks an action, and encodes its headers.
fn encode(action: &Action, id: MessageId) -> Result<Option<Vec<u8>>> {
    match action {
        Action::Postpone { delay, .. } if *delay > MAX_DELAY => {
            Err(ERRORS.invalid("the delay is longer than the capabilities allow"))
        }
        Action::Postpone { headers: Some(headers), .. } | Action::Move { headers: Some(headers), .. } => {
            let carrier = MessageData::with_id(id, Vec::new()).with_headers(headers.clone());
            Envelope::new(carrier, SystemTime::now()).encode().map(Some)
        }
        _ => Ok(None),
    }
}

/// The headers that [`encode`] stored.
pub(crate) fn decode_headers(stored: &[u8]) -> Result<Headers> {
    let decoded = Envelope::decode(&anyqueue::Bytes::copy_from_slice(stored))?;
    Ok(decoded.into_message("").headers().clone())
}

fn bind(
    statements: &Statements,
    kind: Kind,
    pending: &mut [PendingSettlement<'_>],
) -> Query<'static, Postgres, PgArguments> {
    let headers: Vec<_> = pending.iter_mut().map(|pending| pending.headers.take()).collect();
    let proofs = pending.iter().map(|pending| pending.proof);
    let actions = || pending.iter().map(|pending| &pending.settlement.action);
    match kind {
        Kind::Remove => bind_proofs_and_tids(statements.remove.query(), proofs),
        Kind::Release => {
            let (codes, delays_ms): (Vec<i16>, Vec<i64>) = actions()
                .map(|action| match action {
                    Action::Retry => (2, 0),
                    Action::Postpone { delay, .. } => (3, millis(*delay)),
                    _ => (1, 0),
                })
                .unzip();
            bind_proofs(statements.give_back.query(), proofs).bind(codes).bind(delays_ms).bind(headers)
        }
        Kind::Move => {
            let targets = actions().filter_map(|action| match action {
                Action::Move { to, .. } => Some((to.name().to_owned(), to.is_dead_letters())),
                _ => None,
            });
            let (names, deads): (Vec<String>, Vec<bool>) = targets.unzip();
            bind_proofs(statements.move_to.query(), proofs).bind(names).bind(deads).bind(headers)
        }
    }
}

impl PostgresQueue {
    /// One statement per kind, each in a transaction of its own: settlements are independent of each other.
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let mut batch = SettlementBatch::new(settlements);
        for kind in [Kind::Remove, Kind::Release, Kind::Move] {
            let mut pending = std::mem::take(match kind {
                Kind::Remove => &mut batch.removals,
                Kind::Release => &mut batch.releases,
                Kind::Move => &mut batch.moves,
            });
            if !pending.is_empty() {
                let query = bind(&self.inner.statements, kind, &mut pending);
                let done = self.settle_by(query, &pending).await;
                batch.record_answer(&pending, &done.map_err(stamp));
            }
        }
        batch.outcomes
    }

    async fn settle_by(
        &self,
        query: Query<'static, Postgres, PgArguments>,
        pending: &[PendingSettlement<'_>],
    ) -> Result<Option<Vec<i32>>> {
        let rows = self.fetch(query, Operation::Settle).await?;
        let (done, advanced) = rows.first().map_or(Ok((None, 0)), |row| read_settled(row, 0))?;
        self.hint_settled(pending.iter().map(|pending| pending.settlement), advanced);
        Ok(done)
    }

    /// Wakes pulls that wait for what settlements have made available.
    pub(crate) fn hint_settled<'s>(&self, settlements: impl Iterator<Item = &'s Settlement>, advanced: i32) {
        let advanced = usize::try_from(advanced).unwrap_or(0);
        let mut settlements = settlements.filter(|s| advanced > 0 || s.action != Action::Remove).peekable();
        if settlements.peek().is_none() {
            return; // removals only advance groups
        }
        let mut hints = HashMap::new();
        for settlement in settlements {
            let from = &settlement.lease.partition;
            let (partition, hint) = match &settlement.action {
                Action::Remove => (from, Hint::default()),
                Action::Release | Action::Retry => (from, Hint::ready(1)),
                Action::Postpone { delay, .. } if delay.is_zero() => (from, Hint::ready(1)),
                Action::Postpone { delay, .. } => (from, Hint::due(*delay)),
                Action::Move { to, .. } => (to, Hint::ready(1)),
            };
            hints.entry(partition).or_insert_with(Hint::default).add(hint);
            hints.entry(from).or_default();
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

    /// The leases that still hold, and whether their cancellation was requested.
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

/// The numbers of the settled ones, and how many groups advanced, from this column on.
pub(crate) fn read_settled(row: &PgRow, column: usize) -> Result<(Option<Vec<i32>>, i32)> {
    Ok((get(row, column)?, get::<Option<i32>>(row, column + 1)?.unwrap_or(0)))
}

/// Settling twice is harmless.
pub(crate) fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Settle)
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;
    use anyqueue::adapter::{Lease, Token};

    use super::*;

    #[test]
    fn of_a_lease_that_occurs_twice_only_the_first_is_asked_for_whatever_it_is_about() {
        let token = Token::from_bytes(vec![7; 26]);
        let lease = Lease { partition: PartitionId::new("p").unwrap(), id: MessageId::new(), token };
        let settlement = |action| Settlement::new(lease.clone(), action);
        let twice = [settlement(Action::Release), settlement(Action::Remove), settlement(Action::Remove)];
        let batch = SettlementBatch::new(&twice);
        assert!(batch.removals.is_empty() && batch.moves.is_empty());
        assert_eq!(batch.releases.iter().map(|pending| pending.index).collect::<Vec<_>>(), [0]);
    }
}
