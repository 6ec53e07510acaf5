//! Facts that wait for the ledger: merged, and no more than there is room for.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::said::Said;
use crate::ledger::TaskEnd;
use crate::message::MessageId;
use crate::partition::PartitionId;

/// How many facts may wait for the ledger. Further ones are dropped: the next fact about a task says all that
/// is known of it.
const MAX_WAITING: usize = 10_000;
/// How many facts one call carries. Ends that settlements wait for may have to wait until it is over.
const MAX_AT_ONCE: usize = 200;
/// How many more facts may wait that say that a task is gone: they are small, and no later fact would repeat
/// them.
const MAX_GONE: usize = 50_000;

/// A fact, and where the ledger keeps it.
pub(super) type Fact = (PartitionId, MessageId, Arc<TaskEnd>);

/// A fact of a known partition.
pub(super) type OfTask = (MessageId, Arc<TaskEnd>);

/// The waiting facts: for each task the one with the greatest rank.
#[derive(Default)]
pub(super) struct Waiting {
    facts: BTreeMap<PartitionId, BTreeMap<MessageId, Arc<TaskEnd>>>,
    count: usize,
    pub(super) is_sending: bool,
}

impl Waiting {
    /// Adds a fact. Returns `false` if there is no room for it.
    pub(super) fn join(&mut self, (partition, id, fact): Fact) -> bool {
        let more = if Said::of(&fact) == Said::Gone { MAX_GONE } else { 0 };
        let is_full = self.count >= MAX_WAITING + more;
        if is_full && !self.facts.get(&partition).is_some_and(|facts| facts.contains_key(&id)) {
            return false;
        }
        match self.facts.entry(partition).or_default().entry(id) {
            Entry::Occupied(mut there) if there.get().rank() < fact.rank() => drop(there.insert(fact)),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(fact);
                self.count += 1;
            }
        }
        true
    }

    /// Puts facts back. Returns how many found no room.
    pub(super) fn put_back(&mut self, partition: &PartitionId, facts: Vec<OfTask>) -> usize {
        facts.into_iter().filter(|(id, fact)| !self.join((partition.clone(), *id, Arc::clone(fact)))).count()
    }

    /// Makes the caller the sender, if something waits and nobody is sending.
    pub(super) fn claim(&mut self) -> bool {
        let is_claimed = !self.is_sending && self.count > 0;
        self.is_sending |= is_claimed;
        is_claimed
    }

    /// Takes as many facts of one partition as one call carries. Partitions take turns.
    pub(super) fn take(&mut self, last: Option<&PartitionId>) -> Option<(PartitionId, Vec<OfTask>)> {
        let behind = last.and_then(|last| self.facts.range((Excluded(last.clone()), Unbounded)).next());
        let partition = behind.or_else(|| self.facts.first_key_value())?.0.clone();
        let facts = self.facts.get_mut(&partition)?;
        let taken: Vec<_> = std::iter::from_fn(|| facts.pop_first()).take(MAX_AT_ONCE).collect();
        if facts.is_empty() {
            self.facts.remove(&partition);
        }
        self.count -= taken.len();
        Some((partition, taken))
    }

    pub(super) fn clear(&mut self) -> usize {
        self.facts.clear();
        std::mem::take(&mut self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::EndState;

    fn fact(partition: &str, id: u32, attempt: u32) -> Fact {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&id.to_be_bytes());
        let end = TaskEnd::new(EndState::Failed).with_attempt(attempt);
        (PartitionId::new(partition).unwrap(), MessageId::from_bytes(bytes), Arc::new(end))
    }

    #[test]
    fn of_each_task_the_greatest_fact_waits_in_whatever_order_they_come() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut waiting = Waiting::default();
            assert!(order.iter().chain(&order).all(|attempt| waiting.join(fact("p", 7, *attempt))));
            let (_, taken) = waiting.take(None).unwrap();
            let attempts: Vec<_> = taken.iter().map(|(_, fact)| fact.attempt).collect();
            assert_eq!((attempts, waiting.count), (vec![2], 0), "{order:?}");
        }
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let mut waiting = Waiting::default();
        let most = u32::try_from(MAX_WAITING).unwrap();
        assert!((0..most).all(|id| waiting.join(fact("p", id, 0))));
        assert!(!waiting.join(fact("p", most, 0)) && !waiting.join(fact("q", 0, 0)), "there is no room");
        assert!(waiting.join(fact("p", 0, 1)), "one that waits already takes none");
        assert_eq!((waiting.count, waiting.facts.len()), (MAX_WAITING, 1));
    }

    #[test]
    fn that_a_task_is_gone_has_room_of_its_own() {
        let gone = |id| {
            let (partition, id, _) = fact("p", id, 0);
            (partition, id, Arc::new(TaskEnd::new(Said::Gone.stored())))
        };
        let mut waiting = Waiting::default();
        let [most, more] = [MAX_WAITING, MAX_WAITING + MAX_GONE].map(|most| u32::try_from(most).unwrap());
        assert!((0..most).all(|id| waiting.join(fact("p", id, 0))));
        assert!((most..more).all(|id| waiting.join(gone(id))));
        assert!(!waiting.join(gone(more)) && !waiting.join(fact("p", more, 0)), "there is no room");
        assert!(waiting.join(gone(0)), "one takes the place of what was known before");
        assert_eq!(waiting.count, MAX_WAITING + MAX_GONE);
    }

    #[test]
    fn partitions_take_turns() {
        let mut waiting = Waiting::default();
        for id in 0..u32::try_from(2 * MAX_AT_ONCE).unwrap() {
            assert!(waiting.join(fact("a", id, 0)) && waiting.join(fact("b", id, 0)));
        }
        let (mut last, mut turns) = (None, Vec::new());
        while let Some((partition, taken)) = waiting.take(last.as_ref()) {
            assert_eq!(taken.len(), MAX_AT_ONCE);
            turns.push(partition.name().to_owned());
            last = Some(partition);
        }
        assert_eq!(turns, ["a", "b", "a", "b"]);
    }
}
