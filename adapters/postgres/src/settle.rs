//! Ending and extending leases.

use std::collections::HashMap;
use std::time::SystemTime;

use anyqueue::adapter::{Action, Envelope, Extension, Settlement};
use anyqueue::{Error, ExtendOutcome, Headers, MessageData, MessageId, Operation, Result, SettleOutcome};
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use uuid::Uuid;

use crate::PostgresQueue;
use crate::error::{NAME, invalid, repeatable};
use crate::limits::{MAX_DELAY, check_lease};
use crate::sql::{Statements, get, millis};
use crate::token::{Proof, bind_proofs, bind_proofs_and_places};
use crate::waiters::Hint;

/// What a proof and its place take on the wire, lengths included.
const PROOF_BYTES: usize = 64;

/// Settlements of one kind go out in one statement.
#[derive(Clone, Copy)]
enum Kind {
    Remove,
    GiveBack,
    Move,
}

/// One settlement on its way: where its answer goes, its proof, and the headers that it brings, encoded.
struct Asked<'s> {
    slot: usize,
    proof: Proof,
    settlement: &'s Settlement,
    headers: Option<Vec<u8>>,
}

/// Settlements by kind, each list by id, so that no two calls wait for each other.
#[derive(Default)]
pub(crate) struct Sorted<'s> {
    outcomes: Vec<Result<SettleOutcome>>,
    removals: Vec<Asked<'s>>,
    returns: Vec<Asked<'s>>,
    moves: Vec<Asked<'s>>,
}

impl<'s> Sorted<'s> {
    /// Everything is lost until the server says otherwise. Of a lease that occurs twice, only the first can hold.
    pub(crate) fn new(settlements: &'s [Settlement]) -> Self {
        let mut sorted =
            Self { outcomes: vec![Ok(SettleOutcome::Lost); settlements.len()], ..Self::default() };
        let mut all = Vec::with_capacity(settlements.len());
        for (slot, settlement) in settlements.iter().enumerate() {
            let Some(proof) = Proof::of(&settlement.lease) else { continue };
            match encode(&settlement.action, settlement.lease.id) {
                Ok(headers) => all.push(Asked { slot, proof, settlement, headers }),
                Err(error) => sorted.set(slot, Err(error)),
            }
        }
        all.sort_unstable_by_key(|asked| (asked.proof, asked.slot));
        all.dedup_by_key(|asked| asked.proof);
        for asked in all {
            sorted.list(&asked.settlement.action).push(asked);
        }
        sorted
    }

    fn list(&mut self, action: &Action) -> &mut Vec<Asked<'s>> {
        match action {
            Action::Remove => &mut self.removals,
            Action::Release | Action::Retry | Action::Postpone { .. } => &mut self.returns,
            Action::Move { .. } => &mut self.moves,
        }
    }

    fn set(&mut self, slot: usize, outcome: Result<SettleOutcome>) {
        if let Some(place) = self.outcomes.get_mut(slot) {
            *place = outcome;
        }
    }

    /// Whether there is nothing to do but to remove.
    pub(crate) fn only_removes(&self) -> bool {
        self.returns.is_empty() && self.moves.is_empty() && !self.removals.is_empty()
    }

    /// Binds the proofs of what is to be removed.
    pub(crate) fn bind_removals(
        &self,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Query<'static, Postgres, PgArguments> {
        bind_proofs_and_places(query, self.removals.iter().map(|asked| asked.proof))
    }

    /// About as many bytes as these take on the wire.
    pub(crate) fn removal_bytes(&self) -> usize {
        self.removals.len() * PROOF_BYTES
    }

    /// Takes in the answer about removals, or why there is none, and answers all.
    pub(crate) fn removed(mut self, done: &Result<Option<Vec<i32>>>) -> Vec<Result<SettleOutcome>> {
        let asked = std::mem::take(&mut self.removals);
        self.take_in(&asked, done);
        self.outcomes
    }

    fn take_in(&mut self, asked: &[Asked<'_>], done: &Result<Option<Vec<i32>>>) {
        match done {
            Ok(numbers) => {
                for number in numbers.iter().flatten() {
                    let index = usize::try_from(*number).unwrap_or(0).checked_sub(1);
                    if let Some(asked) = index.and_then(|index| asked.get(index)) {
                        self.set(asked.slot, Ok(SettleOutcome::Settled));
                    }
                }
            }
            Err(error) => asked.iter().for_each(|asked| self.set(asked.slot, Err(error.clone()))),
        }
    }
}

/// Checks an action, and encodes the headers that it brings.
fn encode(action: &Action, id: MessageId) -> Result<Option<Vec<u8>>> {
    match action {
        Action::Postpone { delay, .. } if *delay > MAX_DELAY => {
            Err(invalid("the delay is longer than the capabilities allow"))
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
    asked: &mut [Asked<'_>],
) -> Query<'static, Postgres, PgArguments> {
    let headers: Vec<_> = asked.iter_mut().map(|asked| asked.headers.take()).collect();
    let proofs = asked.iter().map(|asked| asked.proof);
    let actions = || asked.iter().map(|asked| &asked.settlement.action);
    match kind {
        Kind::Remove => bind_proofs_and_places(statements.remove.query(), proofs),
        Kind::GiveBack => {
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
    /// One statement per kind, each a transaction of its own: settlements have nothing to do with each other.
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let mut sorted = Sorted::new(settlements);
        for kind in [Kind::Remove, Kind::GiveBack, Kind::Move] {
            let mut asked = std::mem::take(match kind {
                Kind::Remove => &mut sorted.removals,
                Kind::GiveBack => &mut sorted.returns,
                Kind::Move => &mut sorted.moves,
            });
            if !asked.is_empty() {
                let query = bind(&self.inner.statements, kind, &mut asked);
                let done = self.settle_by(query, &asked).await;
                sorted.take_in(&asked, &done.map_err(stamp));
            }
        }
        sorted.outcomes
    }

    async fn settle_by(
        &self,
        query: Query<'static, Postgres, PgArguments>,
        asked: &[Asked<'_>],
    ) -> Result<Option<Vec<i32>>> {
        let rows = self.fetch(query, Operation::Settle).await?;
        let (done, advanced) = rows.first().map_or(Ok((None, 0)), |row| read_settled(row, 0))?;
        self.tell_settled(asked.iter().map(|asked| asked.settlement), advanced);
        Ok(done)
    }

    /// Tells waiting pulls what settlements made available.
    pub(crate) fn tell_settled<'s>(&self, settlements: impl Iterator<Item = &'s Settlement>, advanced: i32) {
        let advanced = usize::try_from(advanced).unwrap_or(0);
        let mut settlements = settlements.filter(|s| advanced > 0 || s.action != Action::Remove).peekable();
        if settlements.peek().is_none() {
            return; // removals let nothing go on but groups
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
            hint.add(Hint::ready(advanced)); // in which of them is not known; a hint too many does no harm
            if advanced > 0 {
                self.inner.marks.forget(partition);
            }
            self.tell(partition, hint);
        }
    }

    pub(crate) async fn extend_all(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let valid = |extension: &&Extension| check_lease(extension.duration).is_ok();
        let proved = extensions
            .iter()
            .filter(valid)
            .filter_map(|extension| Some((Proof::of(&extension.lease)?, millis(extension.duration))));
        let mut asked: Vec<_> = proved.collect();
        asked.sort_unstable();
        let held = self.extend_by(asked).await.map_err(repeatable);
        let outcome = |extension: &Extension| {
            check_lease(extension.duration)?;
            let held = held.as_ref().map_err(Clone::clone)?;
            Ok(match Proof::of(&extension.lease).and_then(|proof| held.get(&(proof.id, proof.secret))) {
                Some(true) => ExtendOutcome::CancelRequested,
                Some(false) => ExtendOutcome::Extended,
                None => ExtendOutcome::Lost,
            })
        };
        extensions.iter().map(outcome).collect()
    }

    /// The leases that hold, and whether their cancellation was requested.
    async fn extend_by(&self, asked: Vec<(Proof, i64)>) -> Result<HashMap<(Uuid, Uuid), bool>> {
        if asked.is_empty() && !self.is_closed() {
            return Ok(HashMap::new());
        }
        let leases_ms: Vec<_> = asked.iter().map(|(_, lease_ms)| *lease_ms).collect();
        let query = self.inner.statements.extend.query();
        let query = bind_proofs(query, asked.iter().map(|(proof, _)| *proof)).bind(leases_ms);
        let rows = self.fetch(query, Operation::Extend).await?;
        rows.iter().map(|row| Ok(((get(row, 0)?, get(row, 1)?), get(row, 2)?))).collect()
    }
}

/// The numbers of those that were settled, and how many groups went on, from this column on.
pub(crate) fn read_settled(row: &PgRow, column: usize) -> Result<(Option<Vec<i32>>, i32)> {
    Ok((get(row, column)?, get::<Option<i32>>(row, column + 1)?.unwrap_or(0)))
}

/// Settling twice is harmless.
pub(crate) fn stamp(error: Error) -> Error {
    repeatable(error).with_backend(NAME).with_operation(Operation::Settle)
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
        let settlement = |action| Settlement { lease: lease.clone(), action };
        let twice = [settlement(Action::Release), settlement(Action::Remove), settlement(Action::Remove)];
        let sorted = Sorted::new(&twice);
        assert!(sorted.removals.is_empty() && sorted.moves.is_empty());
        assert_eq!(sorted.returns.iter().map(|asked| asked.slot).collect::<Vec<_>>(), [0]);
    }
}
