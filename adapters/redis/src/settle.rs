//! Settling deliveries.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use anyqueue::adapter::{Action, Envelope, Settlement};
use anyqueue::{Bytes, Error, MessageData, MessageId, Operation, PartitionId, Result, SettleOutcome};
use futures_util::future::{join, join_all};

use crate::RedisQueue;
use crate::bundle::{Bundle, Ending};
use crate::ends::StoredEnd;
use crate::error::{ERRORS, NAME, unexpected_reply};
use crate::limits::{BATCH, MAX_DELAY, RESULT_BYTES};
use crate::link::Call;
use crate::reply::bytes;
use crate::script::{self, Script};
use crate::successors::{self, Placed};
use crate::token::Proof;

/// The settlements of a call, by partition, and their outcomes.
pub(crate) struct SettlementBatch<'s> {
    outcomes: Vec<Result<SettleOutcome>>,
    bundles: HashMap<&'s PartitionId, Bundle<'s>>,
    /// Moves to another partition of a cluster, which may be on another server.
    cross_slot_moves: Vec<CrossSlot<'s>>,
    /// Settlements with successors in such a partition.
    pub(crate) cross_slot_successors: Vec<CrossSlot<'s>>,
    /// The server time at which successors are stored.
    at_us: u64,
}

/// A settlement that concerns other partitions of a cluster, which may be on other servers.
pub(crate) struct CrossSlot<'s> {
    pub(crate) from: &'s PartitionId,
    pub(crate) ending: Ending<'s>,
    pub(crate) successors: Vec<Placed<'s>>,
}

impl CrossSlot<'_> {
    /// The partition that the message moves to, if it may be on another server.
    pub(crate) fn target(&self) -> Option<&PartitionId> {
        match &self.ending.action {
            Action::Move { to, .. } if to.name() != self.from.name() => Some(to),
            _ => None,
        }
    }
}

impl<'s> SettlementBatch<'s> {
    /// Prepares a batch. Every outcome is `Lost` until the server says otherwise. If a lease occurs twice,
    /// only the first settlement can be valid.
    pub(crate) fn new(settlements: &'s [Settlement], queue: &RedisQueue) -> Self {
        let successors = settlements.iter().map(|settlement| settlement.then.len()).sum();
        let (config, at_us) = (&queue.inner.config, queue.inner.clock.stamps_us(successors));
        let mut next_us = at_us;
        let mut batch = Self {
            outcomes: Vec::with_capacity(settlements.len()),
            bundles: HashMap::new(),
            cross_slot_moves: Vec::new(),
            cross_slot_successors: Vec::new(),
            at_us,
        };
        let mut seen = HashSet::with_capacity(settlements.len());
        for (index, settlement) in settlements.iter().enumerate() {
            batch.outcomes.push(Ok(SettleOutcome::Lost));
            let Some(proof) = Proof::of(&settlement.lease) else { continue };
            let encoded = encode(&settlement.action, proof.id).and_then(|headers| {
                Ok((headers, encode_end(settlement)?, successors::encode(&settlement.then, config, next_us)?))
            });
            next_us += settlement.then.len() as u64;
            match encoded {
                Ok((headers, end, successors)) if seen.insert(proof) => {
                    let ending = Ending { index, proof, action: &settlement.action, headers, end };
                    let from = &settlement.lease.partition;
                    batch.sort_in(CrossSlot { from, ending, successors }, config.is_cluster());
                }
                Ok(_) => {}
                Err(error) => batch.set(index, Err(error)),
            }
        }
        batch
    }

    fn sort_in(&mut self, one: CrossSlot<'s>, is_cluster: bool) {
        let is_elsewhere = |(partition, _): &Placed<'_>| partition.name() != one.from.name();
        let is_moved = is_cluster && one.target().is_some();
        if is_moved && one.successors.is_empty() {
            self.cross_slot_moves.push(one);
        } else if is_moved || is_cluster && one.successors.iter().any(is_elsewhere) {
            self.cross_slot_successors.push(one);
        } else {
            self.add(one);
        }
    }

    /// Adds a settlement to those of its partition.
    pub(crate) fn add(&mut self, one: CrossSlot<'s>) {
        let CrossSlot { from, ending, successors } = one;
        let bundle = self.bundles.entry(from).or_default();
        if !successors.is_empty() {
            bundle.successors.add(ending.index, successors, self.at_us);
        }
        bundle.add(ending);
    }

    /// Removes and returns the settlements of this partition.
    pub(crate) fn take_bundle(&mut self, partition: &PartitionId) -> Option<Bundle<'s>> {
        self.bundles.remove(partition)
    }

    pub(crate) fn at_us(&self) -> u64 {
        self.at_us
    }

    pub(crate) fn into_outcomes(self) -> Vec<Result<SettleOutcome>> {
        self.outcomes
    }

    /// Records the outcome of a settlement.
    pub(crate) fn set(&mut self, index: usize, outcome: Result<SettleOutcome>) {
        if let Some(slot) = self.outcomes.get_mut(index) {
            *slot = outcome.map_err(stamp);
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
            self.set(index, Err(error.clone()));
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

/// Encodes the end of the task, if it is stored or counted.
fn encode_end(settlement: &Settlement) -> Result<Option<StoredEnd>> {
    let Some(end) = settlement.counted_end() else { return Ok(None) };
    if settlement.stored_end().is_some() {
        return StoredEnd::encode(end).map(Some);
    }
    Ok(Some(StoredEnd::only_counted(end)))
}

/// Returns the first settlements, as many as one call takes.
pub(crate) fn first_batch(settlements: &[Settlement]) -> &[Settlement] {
    let mut bytes = 0;
    let result = |one: &Settlement| one.end.as_ref()?.result.as_ref().map(Bytes::len);
    let has_room = |one: &&Settlement| {
        bytes += result(one).unwrap_or_default();
        bytes <= RESULT_BYTES
    };
    // A single settlement is a batch, whatever its size.
    let count = settlements.iter().take(BATCH).take_while(has_room).count().max(1);
    settlements.get(..count).unwrap_or(settlements)
}

impl RedisQueue {
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        // There is usually only one batch. A script could not process many more at once.
        let mut outcomes = Vec::with_capacity(settlements.len());
        while let Some(left) = settlements.get(outcomes.len()..).filter(|left| !left.is_empty()) {
            outcomes.append(&mut self.settle_batch(first_batch(left)).await);
        }
        outcomes
    }

    /// Runs one script per partition, concurrently.
    async fn settle_batch(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let mut batch = SettlementBatch::new(settlements, self);
        self.store_across_slots(&mut batch).await;
        self.settle_batch_parts(&mut batch).await;
        batch.into_outcomes()
    }

    pub(crate) async fn settle_batch_parts(&self, batch: &mut SettlementBatch<'_>) {
        let bundles = std::mem::take(&mut batch.bundles);
        let calls = bundles.iter().map(|(partition, bundle)| self.settle_bundle(partition, bundle));
        let cross_slot_moves = std::mem::take(&mut batch.cross_slot_moves);
        let moving = cross_slot_moves.iter().map(|one| self.move_across_slots(one));
        let (answers, moved) = join(join_all(calls), join_all(moving)).await;
        for ((partition, bundle), answer) in bundles.iter().zip(answers) {
            let mut rest = answer.as_ref().err().and_then(|error| bundle.rest(error));
            batch.record_answer(bundle, answer);
            while let Some(some) = rest {
                let answer = self.settle_bundle(partition, &some).await;
                rest = answer.as_ref().err().and_then(|error| some.rest(error));
                batch.record_answer(&some, answer);
            }
        }
        for (cross_slot_move, outcome) in cross_slot_moves.iter().zip(moved) {
            batch.set(cross_slot_move.ending.index, outcome);
        }
    }

    async fn settle_bundle(&self, partition: &PartitionId, bundle: &Bundle<'_>) -> Result<Vec<u8>> {
        self.register_urgent(bundle).await?;
        self.enlist_lapsing(partition, bundle).await;
        let mut call = self.new_bundle_call([&script::SETTLE, &script::SETTLE_THEN], partition, bundle);
        bundle.add_successors_to(&mut call, &self.inner.caller);
        let answer = self.run(&call, Operation::Settle).await;
        self.hint_successors(bundle);
        bytes(answer?)
    }

    /// In a cluster, registers that successors can become urgent.
    pub(crate) async fn register_urgent(&self, bundle: &Bundle<'_>) -> Result<()> {
        for (partition, _) in bundle.successors.iter().filter(|(_, group)| group.rows.is_urgent()) {
            self.register_amended(partition).await?;
        }
        Ok(())
    }

    /// In a cluster, registers that ends of this partition expire.
    pub(crate) async fn enlist_lapsing(&self, partition: &PartitionId, bundle: &Bundle<'_>) {
        if bundle.has_lapsing_ends() {
            self.enlist(partition).await;
        }
    }

    /// Creates a call with these settlements. It uses the first script, or the second one if they have
    /// successors, whose arguments must still be added.
    pub(crate) fn new_bundle_call(
        &self,
        [without, with]: [&'static Script; 2],
        partition: &PartitionId,
        bundle: &Bundle<'_>,
    ) -> Call {
        let (args, size) = bundle.size();
        let mut call = if bundle.successors.is_empty() {
            self.new_call(without, partition, args + 5, size + 64)
        } else {
            self.new_call_beyond(with, partition, bundle.successors.partitions(), args + 7, size + 128)
        };
        bundle.add_to(&mut call);
        call
    }

    /// Wakes pulls of this handle that wait for successors, whether or not the server answered. The server
    /// wakes those of other handles.
    pub(crate) fn hint_successors(&self, bundle: &Bundle<'_>) {
        for (partition, group) in bundle.successors.iter() {
            self.inner.waiters.hint(partition, group.rows.hint());
        }
    }
}

/// Returns the outcome for a digit of the reply.
pub(crate) fn settled(digit: u8) -> SettleOutcome {
    if digit == b'1' { SettleOutcome::Settled } else { SettleOutcome::Lost }
}

/// A repetition is safe, since settling twice is harmless.
fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Settle)
}
