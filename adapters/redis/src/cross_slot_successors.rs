//! Successors in partitions of a cluster that may be on other servers than their delivery.

use std::collections::HashMap;

use anyqueue::adapter::Action;
use anyqueue::{Error, Operation, PartitionId, Result};
use futures_util::future::{join, join_all};

use crate::RedisQueue;
use crate::error::unexpected_reply;
use crate::reply::bytes;
use crate::script;
use crate::settle::{CrossSlot, SettlementBatch};
use crate::successors::{Groups, Placed};

/// The action that completes a move once its copy is stored.
static REMOVE: Action = Action::Remove;

impl RedisQueue {
    /// Stores what goes to other slots while the leases are valid: first the copies of moved messages, then
    /// the successors. After that the settlements are processed like all others, with the remaining
    /// successors. If this is interrupted, the deliveries come again. When they are settled again, what still
    /// exists is recognised by its id.
    pub(crate) async fn store_across_slots(&self, batch: &mut SettlementBatch<'_>) {
        let all = std::mem::take(&mut batch.cross_slot_successors);
        if all.is_empty() {
            return;
        }
        let (mut held, mut groups) = (Vec::new(), Groups::default());
        let is_held = self.copy_or_check(&all).await;
        for (mut one, is_held) in all.into_iter().zip(is_held) {
            match is_held {
                Ok(true) => {
                    groups.add(one.ending.index, take_elsewhere(&mut one), batch.at_us());
                    held.push(one);
                }
                Ok(false) => {} // lost, as is recorded already
                Err(error) => batch.set(one.ending.index, Err(error)),
            }
        }
        let mut failed = self.store_groups(&groups).await;
        for mut one in held {
            if let Some(error) = failed.remove(&one.ending.index) {
                batch.set(one.ending.index, Err(error));
                continue;
            }
            if one.target().is_some() {
                one.ending.action = &REMOVE;
            }
            batch.add(one);
        }
    }

    /// Copies the messages that are moved, and checks the other leases. Returns for each settlement whether
    /// its lease was valid.
    async fn copy_or_check(&self, all: &[CrossSlot<'_>]) -> Vec<Result<bool>> {
        let mut checks: HashMap<&PartitionId, Vec<&CrossSlot<'_>>> = HashMap::new();
        for one in all.iter().filter(|one| one.target().is_none()) {
            checks.entry(one.from).or_default().push(one);
        }
        let moved = all.iter().filter(|one| one.target().is_some());
        let copying = moved.map(async |one| (one.ending.index, self.copy_across_slots(one).await));
        let checking = checks.iter().map(|(from, some)| self.check_held(from, some));
        let (copied, checked) = join(join_all(copying), join_all(checking)).await;
        let mut is_held: HashMap<_, _> = copied.into_iter().chain(checked.into_iter().flatten()).collect();
        all.iter().map(|one| is_held.remove(&one.ending.index).unwrap_or(Ok(false))).collect()
    }

    /// Returns for each settlement of a partition, by its index, whether its lease was valid.
    async fn check_held(&self, from: &PartitionId, some: &[&CrossSlot<'_>]) -> Vec<(usize, Result<bool>)> {
        let mut call = self.new_call(&script::HELD, from, some.len(), 64 * some.len());
        for one in some {
            call.arg(&one.ending.proof.to_bytes());
        }
        let answer = self.run(&call, Operation::Settle).await.and_then(bytes);
        let digit = |number: usize| {
            let digits = answer.as_ref().map_err(Error::clone)?;
            digits.get(number).map(|digit| *digit == b'1').ok_or_else(unexpected_reply)
        };
        some.iter().enumerate().map(|(number, one)| (one.ending.index, digit(number))).collect()
    }

    /// Stores each group. Returns the errors, by the indexes of the settlements that fail because of them.
    async fn store_groups(&self, groups: &Groups<'_>) -> HashMap<usize, Error> {
        let at_us = groups.at_us();
        let storing = groups.iter().map(|(partition, group)| self.store(partition, &group.rows, at_us));
        let mut failed = HashMap::new();
        for ((_, group), stored) in groups.iter().zip(join_all(storing).await) {
            if let Err(error) = stored {
                failed.extend(group.owners.iter().map(|owner| (*owner, error.clone())));
            }
        }
        failed
    }
}

/// Takes out the successors that may be on other servers.
fn take_elsewhere<'s>(one: &mut CrossSlot<'s>) -> Vec<Placed<'s>> {
    let (here, elsewhere) = std::mem::take(&mut one.successors)
        .into_iter()
        .partition(|(partition, _)| partition.name() == one.from.name());
    one.successors = here;
    elsewhere
}
