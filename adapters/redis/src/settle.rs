//! Settling deliveries.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use anyqueue::adapter::{Action, Envelope, Lease, Settlement};
use anyqueue::{Error, MessageData, MessageId, Operation, PartitionId, Result, SettleOutcome};
use futures_util::future::{join, join_all};

use crate::RedisQueue;
use crate::clock::millis;
use crate::error::{ERRORS, NAME, unexpected_reply};
use crate::limits::{BATCH, MAX_DELAY};
use crate::link::Call;
use crate::names::word;
use crate::record::GROUPED;
use crate::reply::bytes;
use crate::script;
use crate::window::{Window, window};

pub(crate) type Secret = [u8; 16];
/// The position of an answer, and its message.
type IndexedId = (usize, MessageId);

/// The proof of a lease: the message, the 128 random bits of the claim, and what kind of message it is. A token of another form
/// proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Proof {
    pub(crate) id: MessageId,
    pub(crate) secret: Secret,
    pub(crate) flag: u8,
}

impl Proof {
    pub(crate) fn of(lease: &Lease) -> Option<Self> {
        let (secret, rest) = lease.token.as_bytes().split_first_chunk()?;
        let [flag] = *rest else { return None };
        Some(Self { id: lease.id, secret: *secret, flag })
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = [&self.id.as_bytes()[..], &self.secret].concat();
        bytes.push(self.flag);
        bytes
    }
}

/// The settlements of one script, all in one partition.
#[derive(Default)]
pub(crate) struct Bundle<'s> {
    /// Removals of messages without group and key, by secret and window, with the positions of their answers.
    removals: Vec<((Secret, Window), Vec<IndexedId>)>,
    others: Vec<Other<'s>>,
}

/// Any other settlement.
struct Other<'s> {
    index: usize,
    proof: Proof,
    action: &'s Action,
    headers: Vec<u8>,
}

/// The settlements of a call, by partition, and their outcomes.
#[derive(Default)]
pub(crate) struct SettlementBatch<'s> {
    outcomes: Vec<Result<SettleOutcome>>,
    bundles: HashMap<&'s PartitionId, Bundle<'s>>,
    cross_slot_moves: Vec<CrossSlotMove<'s>>,
}

/// A move to another partition of a cluster, which may be on another server.
struct CrossSlotMove<'s> {
    index: usize,
    proof: Proof,
    from: &'s PartitionId,
    to: &'s PartitionId,
    headers: Vec<u8>,
}

impl<'s> SettlementBatch<'s> {
    /// Everything is lost until the server says otherwise. If a lease occurs twice, only the first one can hold.
    pub(crate) fn new(settlements: &'s [Settlement], is_cluster: bool) -> Self {
        let mut batch = Self::default();
        let mut seen = HashSet::with_capacity(settlements.len());
        for (index, settlement) in settlements.iter().enumerate() {
            batch.outcomes.push(Ok(SettleOutcome::Lost));
            let Some(proof) = Proof::of(&settlement.lease) else { continue };
            match encode(&settlement.action, proof.id) {
                Ok(headers) if seen.insert(proof) => {
                    let from = &settlement.lease.partition;
                    match &settlement.action {
                        Action::Move { to, .. } if is_cluster && to.name() != from.name() => {
                            batch.cross_slot_moves.push(CrossSlotMove { index, proof, from, to, headers });
                        }
                        action => {
                            let bundle = batch.bundles.entry(from).or_default();
                            bundle.add(Other { index, proof, action, headers });
                        }
                    }
                }
                Ok(_) => {}
                Err(error) => batch.set(index, Err(stamp(error))),
            }
        }
        batch
    }

    /// Removes and returns the settlements of this partition.
    pub(crate) fn take_bundle(&mut self, partition: &PartitionId) -> Option<Bundle<'s>> {
        self.bundles.remove(partition)
    }

    pub(crate) fn into_outcomes(self) -> Vec<Result<SettleOutcome>> {
        self.outcomes
    }

    fn set(&mut self, index: usize, outcome: Result<SettleOutcome>) {
        if let Some(slot) = self.outcomes.get_mut(index) {
            *slot = outcome;
        }
    }

    /// Records the server's answer to a bundle.
    pub(crate) fn record_answer(&mut self, bundle: &Bundle<'_>, answered: Result<Vec<u8>>) {
        let indexes = bundle.indexes();
        match answered.and_then(|digits| {
            if digits.len() == indexes.len() { Ok(digits) } else { Err(unexpected_reply()) }
        }) {
            Ok(digits) => {
                for (index, digit) in indexes.into_iter().zip(digits) {
                    self.set(index, Ok(settled(digit)));
                }
            }
            Err(error) => self.fail(bundle, &error),
        }
    }

    /// Records that a bundle failed.
    pub(crate) fn fail(&mut self, bundle: &Bundle<'_>, error: &Error) {
        for index in bundle.indexes() {
            self.set(index, Err(stamp(error.clone())));
        }
    }
}

impl<'s> Bundle<'s> {
    fn add(&mut self, other: Other<'s>) {
        if *other.action != Action::Remove || other.proof.flag >= GROUPED {
            self.others.push(other);
            return;
        }
        let Proof { id, secret, .. } = other.proof;
        // Usually the last one: messages claimed together are settled together.
        let kind = (secret, window(id));
        match self.removals.iter_mut().rev().find(|(known, _)| *known == kind) {
            Some((_, ids)) => ids.push((other.index, id)),
            None => self.removals.push((kind, vec![(other.index, id)])),
        }
    }

    /// The positions of the answers, in their order.
    fn indexes(&self) -> Vec<usize> {
        let removals = self.removals.iter().flat_map(|(_, ids)| ids.iter().map(|(index, _)| *index));
        removals.chain(self.others.iter().map(|other| other.index)).collect()
    }

    /// The approximate number and size of its arguments.
    pub(crate) fn size(&self) -> (usize, usize) {
        let removals: usize = self.removals.iter().map(|(_, ids)| 18 + 16 * ids.len()).sum();
        let others: usize = self.others.iter().map(|other| 160 + other.headers.len()).sum();
        (2 + 4 * self.others.len(), removals + others)
    }

    /// Adds the arguments.
    pub(crate) fn add_to(&self, call: &mut Call) {
        let mut proofs = Vec::with_capacity(self.size().1);
        for ((secret, _), ids) in &self.removals {
            proofs.extend_from_slice(secret);
            let count = u16::try_from(ids.len()).unwrap_or(u16::MAX); // a batch is much smaller
            proofs.extend_from_slice(&count.to_be_bytes());
            for (_, id) in ids {
                proofs.extend_from_slice(id.as_bytes());
            }
        }
        call.arg(&proofs).int(self.others.len() as u64);
        for Other { proof, action, headers, .. } in &self.others {
            let (code, value) = match action {
                Action::Remove => ("D", String::new()),
                Action::Release => ("R", String::new()),
                Action::Retry => ("F", String::new()),
                Action::Postpone { delay, .. } => ("P", (1000 * millis(*delay)).to_string()),
                Action::Move { to, .. } => ("M", word(to)),
            };
            call.arg(code.as_bytes()).arg(&proof.to_bytes()).arg(value.as_bytes()).arg(headers);
        }
    }
}

/// Checks an action, and encodes its headers, if it has any.
fn encode(action: &Action, id: MessageId) -> Result<Vec<u8>> {
    match action {
        Action::Postpone { delay, .. } if *delay > MAX_DELAY => {
            Err(ERRORS.invalid("the delay is longer than the capabilities allow"))
        }
        Action::Postpone { headers: Some(headers), .. } | Action::Move { headers: Some(headers), .. } => {
            let carrier = MessageData::with_id(id, Vec::new()).with_headers(headers.clone());
            Envelope::new(carrier, SystemTime::now()).encode()
        }
        _ => Ok(Vec::new()),
    }
}

impl RedisQueue {
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        // Usually one batch. A script could not take many more at once.
        let mut batches = settlements.chunks(BATCH);
        let mut outcomes = self.settle_batch(batches.next().unwrap_or_default()).await;
        for batch in batches {
            outcomes.append(&mut self.settle_batch(batch).await);
        }
        outcomes
    }

    /// Runs one script per partition, concurrently.
    async fn settle_batch(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let mut batch = SettlementBatch::new(settlements, self.inner.config.is_cluster());
        self.settle_batch_parts(&mut batch).await;
        batch.into_outcomes()
    }

    pub(crate) async fn settle_batch_parts(&self, batch: &mut SettlementBatch<'_>) {
        let bundles = std::mem::take(&mut batch.bundles);
        let calls = bundles.iter().map(|(partition, bundle)| self.settle_bundle(partition, bundle));
        let cross_slot_moves = std::mem::take(&mut batch.cross_slot_moves);
        let moving = cross_slot_moves
            .iter()
            .map(|one| self.move_across_slots(one.from, &one.proof, one.to, &one.headers));
        let (answers, moved) = join(join_all(calls), join_all(moving)).await;
        for (bundle, answer) in bundles.values().zip(answers) {
            batch.record_answer(bundle, answer);
        }
        for (cross_slot_move, outcome) in cross_slot_moves.iter().zip(moved) {
            batch.set(cross_slot_move.index, outcome.map_err(stamp));
        }
    }

    async fn settle_bundle(&self, partition: &PartitionId, bundle: &Bundle<'_>) -> Result<Vec<u8>> {
        let (args, size) = bundle.size();
        let mut call = self.new_call(&script::SETTLE, partition, args, size);
        bundle.add_to(&mut call);
        bytes(self.run(&call, Operation::Settle).await?)
    }
}

/// The outcome that a digit of the reply stands for.
pub(crate) fn settled(digit: u8) -> SettleOutcome {
    if digit == b'1' { SettleOutcome::Settled } else { SettleOutcome::Lost }
}

/// Settling twice is harmless.
fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Settle)
}
