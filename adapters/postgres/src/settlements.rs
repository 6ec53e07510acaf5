//! Settlements, prepared for the server: sorted by kind, with what they bring.

use std::time::SystemTime;

use anyqueue::adapter::{Action, Envelope, Settlement};
use anyqueue::{Headers, MessageData, MessageId, Result, SettleOutcome};

use crate::config::Config;
use crate::ends::{EncodedEnd, runs};
use crate::error::ERRORS;
use crate::limits::MAX_DELAY;
use crate::successors::{self, EncodedSuccessor};
use crate::token::Proof;

/// The wire size of a proof and its tuple id, lengths included.
const PROOF_BYTES: usize = 64;

/// The kinds of settlements. All settlements of a kind share a statement.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Remove,
    Release,
    Move,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Remove, Self::Release, Self::Move];
}

/// One settlement: the index of its result, its proof and, encoded, its headers, its successors and the end
/// of its task.
pub(crate) struct PendingSettlement<'s> {
    pub(crate) index: usize,
    pub(crate) proof: Proof,
    pub(crate) settlement: &'s Settlement,
    pub(crate) headers: Option<Vec<u8>>,
    pub(crate) then: Vec<EncodedSuccessor<'s>>,
    pub(crate) end: Option<EncodedEnd<'s>>,
}

impl PendingSettlement<'_> {
    pub(crate) fn has_successors(&self) -> bool {
        !self.then.is_empty()
    }

    /// Whether it stores something that the server may refuse.
    pub(crate) fn stores(&self) -> bool {
        self.has_successors() || self.end.is_some()
    }

    /// Whether its successors are too large for one statement.
    pub(crate) fn is_large(&self) -> bool {
        successors::parts(&self.then).nth(1).is_some()
    }

    fn end_bytes(&self) -> usize {
        self.end.as_ref().map_or(0, EncodedEnd::bytes)
    }
}

/// Splits settlements into runs whose ends fit into a statement; there is nearly always only one.
pub(crate) fn in_runs(mut pending: Vec<PendingSettlement<'_>>) -> Vec<Vec<PendingSettlement<'_>>> {
    let lengths: Vec<_> = runs(&pending, PendingSettlement::end_bytes).into_iter().map(<[_]>::len).collect();
    lengths.into_iter().map(|length| pending.drain(..length).collect()).collect()
}

/// Settlements by kind. Each list is ordered by id, so that no two calls wait for each other.
#[derive(Default)]
pub(crate) struct SettlementBatch<'s> {
    outcomes: Vec<Result<SettleOutcome>>,
    removals: Vec<PendingSettlement<'s>>,
    releases: Vec<PendingSettlement<'s>>,
    moves: Vec<PendingSettlement<'s>>,
}

impl<'s> SettlementBatch<'s> {
    /// Prepares a batch. Every outcome is `Lost` until the server says otherwise. If a lease occurs twice,
    /// only the first settlement can be valid.
    pub(crate) fn new(settlements: &'s [Settlement], config: &Config) -> Self {
        let mut batch =
            Self { outcomes: vec![Ok(SettleOutcome::Lost); settlements.len()], ..Self::default() };
        let mut all = Vec::with_capacity(settlements.len());
        for (index, settlement) in settlements.iter().enumerate() {
            let Some(proof) = Proof::of(&settlement.lease) else { continue };
            match encode(settlement, config) {
                Ok((headers, then, end)) => {
                    all.push(PendingSettlement { index, proof, settlement, headers, then, end });
                }
                Err(error) => batch.set(index, Err(error)),
            }
        }
        all.sort_unstable_by_key(|pending| (pending.proof, pending.index));
        all.dedup_by_key(|pending| pending.proof);
        for pending in all {
            let kind = match pending.settlement.action {
                Action::Remove => Kind::Remove,
                Action::Release | Action::Retry | Action::Postpone { .. } => Kind::Release,
                Action::Move { .. } => Kind::Move,
            };
            batch.list(kind).push(pending);
        }
        batch
    }

    fn list(&mut self, kind: Kind) -> &mut Vec<PendingSettlement<'s>> {
        match kind {
            Kind::Remove => &mut self.removals,
            Kind::Release => &mut self.releases,
            Kind::Move => &mut self.moves,
        }
    }

    /// Takes the settlements of a kind out of the batch.
    pub(crate) fn take(&mut self, kind: Kind) -> Vec<PendingSettlement<'s>> {
        std::mem::take(self.list(kind))
    }

    fn set(&mut self, index: usize, outcome: Result<SettleOutcome>) {
        if let Some(outcome_slot) = self.outcomes.get_mut(index) {
            *outcome_slot = outcome;
        }
    }

    /// Whether all settlements are removals that fit into one statement.
    pub(crate) fn only_removes(&self) -> bool {
        self.releases.is_empty()
            && self.moves.is_empty()
            && !self.removals.iter().any(PendingSettlement::is_large)
            && runs(&self.removals, PendingSettlement::end_bytes).len() == 1
    }

    pub(crate) fn removals(&self) -> &[PendingSettlement<'s>] {
        &self.removals
    }

    /// The approximate wire size of the removals.
    pub(crate) fn removal_bytes(&self) -> usize {
        self.removals.iter().map(|pending| PROOF_BYTES + pending.end_bytes()).sum()
    }

    /// Records the answer to the removals, and returns all outcomes.
    pub(crate) fn removed(mut self, done: &Result<Option<Vec<i32>>>) -> Vec<Result<SettleOutcome>> {
        let pending = self.take(Kind::Remove);
        self.record_answer(&pending, done);
        self.outcomes
    }

    /// Returns the outcomes that were recorded.
    pub(crate) fn outcomes(self) -> Vec<Result<SettleOutcome>> {
        self.outcomes
    }

    /// Records which of these settlements are done. The server numbers them from 1.
    pub(crate) fn record_answer(
        &mut self,
        pending: &[PendingSettlement<'_>],
        done: &Result<Option<Vec<i32>>>,
    ) {
        match done {
            Ok(numbers) => {
                for number in numbers.iter().flatten() {
                    let index = usize::try_from(*number).unwrap_or(0).checked_sub(1);
                    if let Some(pending) = index.and_then(|index| pending.get(index)) {
                        self.set(pending.index, Ok(SettleOutcome::Settled));
                    }
                }
            }
            Err(error) => {
                for pending in pending {
                    self.set(pending.index, Err(error.clone()));
                }
            }
        }
    }
}

type Encoded<'s> = (Option<Vec<u8>>, Vec<EncodedSuccessor<'s>>, Option<EncodedEnd<'s>>);

/// Checks a settlement, and encodes its headers, its successors and its end.
fn encode<'s>(settlement: &'s Settlement, config: &Config) -> Result<Encoded<'s>> {
    let headers = encode_headers(&settlement.action, settlement.lease.id)?;
    Ok((headers, successors::encode(settlement, config)?, EncodedEnd::of_settlement(settlement)?))
}

/// Checks an action, and encodes its headers.
fn encode_headers(action: &Action, id: MessageId) -> Result<Option<Vec<u8>>> {
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

/// Decodes the headers that [`encode_headers`] encoded.
pub(crate) fn decode_headers(stored: &[u8]) -> Result<Headers> {
    let decoded = Envelope::decode(&anyqueue::Bytes::copy_from_slice(stored))?;
    Ok(decoded.into_message("").headers().clone())
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;
    use anyqueue::adapter::{Lease, Token};

    use super::*;
    use crate::PostgresQueue;

    #[test]
    fn of_a_lease_that_occurs_twice_only_the_first_is_asked_for_whatever_it_is_about() {
        let config = PostgresQueue::builder("postgres://localhost").unwrap().checked().unwrap();
        let token = Token::from_bytes(vec![7; 26]);
        let lease = Lease { partition: PartitionId::new("p").unwrap(), id: MessageId::new(), token };
        let settlement = |action| Settlement::new(lease.clone(), action);
        let twice = [settlement(Action::Release), settlement(Action::Remove), settlement(Action::Remove)];
        let batch = SettlementBatch::new(&twice, &config);
        assert!(batch.removals.is_empty() && batch.moves.is_empty());
        assert_eq!(batch.releases.iter().map(|pending| pending.index).collect::<Vec<_>>(), [0]);
    }
}
