//! Extending leases.

use std::collections::HashMap;
use std::time::Duration;

use anyqueue::adapter::Extension;
use anyqueue::{Error, ExtendOutcome, Operation, PartitionId, Result};
use futures_util::future::join_all;

use crate::RedisQueue;
use crate::clock::millis;
use crate::error::NAME;
use crate::limits::{BATCH, LEASE};
use crate::reply::bytes;
use crate::script;
use crate::token::{Proof, Secret};

impl RedisQueue {
    pub(crate) async fn extend_all(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        // There is usually only one batch. A script could not process many more at once.
        let mut batches = extensions.chunks(BATCH);
        let mut outcomes = self.extend_batch(batches.next().unwrap_or_default()).await;
        for batch in batches {
            outcomes.append(&mut self.extend_batch(batch).await);
        }
        outcomes
    }

    async fn extend_batch(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let mut asked: HashMap<&PartitionId, LeaseExtensions> = HashMap::new();
        let mut outcomes = Vec::with_capacity(extensions.len());
        for (index, extension) in extensions.iter().enumerate() {
            outcomes
                .push(LEASE.check(extension.duration).map(|()| ExtendOutcome::Lost).map_err(stamp_extend));
            if let Some(proof) = Proof::of(&extension.lease)
                && outcomes.last().is_some_and(Result::is_ok)
            {
                asked.entry(&extension.lease.partition).or_default().add(index, proof, extension.duration);
            }
        }
        let calls = asked.iter().map(|(partition, extensions)| self.extend_by(partition, extensions));
        for (extensions, answer) in asked.values().zip(join_all(calls).await) {
            for (number, index) in extensions.indexes().enumerate() {
                let outcome = answer.as_ref().map_err(|error| stamp_extend(error.clone()));
                if let Some(slot) = outcomes.get_mut(index) {
                    *slot = outcome.map(|digits| outcome_of(digits.get(number)));
                }
            }
        }
        outcomes
    }

    async fn extend_by(&self, partition: &PartitionId, extensions: &LeaseExtensions) -> Result<Vec<u8>> {
        let entries: usize = extensions.0.values().map(Vec::len).sum();
        let mut call = self.new_call(&script::EXTEND, partition, 4 * extensions.0.len(), 64 + 32 * entries);
        for ((secret, lease_ms), messages) in &extensions.0 {
            let mut entries = Vec::with_capacity(17 * messages.len());
            for (_, proof) in messages {
                entries.extend_from_slice(proof.id.as_bytes());
                entries.push(proof.flag);
            }
            call.arg(secret).int(1000 * lease_ms).arg(&fastrand::u64(..).to_be_bytes()).arg(&entries);
        }
        bytes(self.run(&call, Operation::Extend).await?)
    }
}

/// The extensions of one partition, by secret and duration in milliseconds, with the indexes of their
/// results.
#[derive(Default)]
struct LeaseExtensions(HashMap<(Secret, u64), Vec<Extended>>);

type Extended = (usize, Proof);

impl LeaseExtensions {
    fn add(&mut self, index: usize, proof: Proof, lease: Duration) {
        self.0.entry((proof.secret, millis(lease))).or_default().push((index, proof));
    }

    fn indexes(&self) -> impl Iterator<Item = usize> {
        self.0.values().flatten().map(|(index, _)| *index)
    }
}

fn outcome_of(digit: Option<&u8>) -> ExtendOutcome {
    match digit {
        Some(b'1') => ExtendOutcome::Extended,
        Some(b'2') => ExtendOutcome::CancelRequested,
        _ => ExtendOutcome::Lost,
    }
}

/// A repetition is safe, since extending twice is harmless.
fn stamp_extend(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Extend)
}
