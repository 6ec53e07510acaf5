//! Inspecting the store, deleting messages, and pausing partitions.

use std::ops::Bound;
use std::time::Instant;

use anyqueue::adapter::{InspectQueueStorage, PauseQueueStorage, async_trait};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, MessageId, Operation, Page, PartitionId, Result,
};

use crate::partition::Partition;
use crate::record::Message;
use crate::state::{State, enter, enter_or_make};
use crate::storage::MemoryQueue;

#[async_trait]
impl InspectQueueStorage for MemoryQueue {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        self.ensure_open(Operation::Inspect)?;
        Ok(self.store.run(|state, _| state.list(&page)))
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.ensure_open(Operation::Inspect)?;
        Ok(self.store.run(|state, now| state.count(now, partition)))
    }

    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        self.ensure_open(Operation::Inspect)?;
        Ok(self.store.run(|state, now| state.browse(now, partition, page)))
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        self.for_each_id(partition, ids, DeleteOutcome::NotFound, Partition::delete)
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.ensure_open(Operation::Inspect)?;
        let gone = self.store.run(|state, now| state.purge(now, partition, limit));
        Ok(gone.len())
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        self.for_each_id(partition, ids, CancelOutcome::NotFound, Partition::cancel)
    }
}

#[async_trait]
impl PauseQueueStorage for MemoryQueue {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        self.ensure_open(Operation::Pause)?;
        self.store.run(|state, now| state.pause(now, partition, paused));
        Ok(())
    }

    async fn is_paused(&self, partition: &PartitionId) -> Result<bool> {
        self.ensure_open(Operation::Pause)?;
        Ok(self.store.run(|state, _| state.partitions.get(partition).is_some_and(Partition::is_paused)))
    }
}

impl MemoryQueue {
    fn for_each_id<T: Copy>(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        not_found: T,
        command: impl Fn(&mut Partition, MessageId) -> (T, Option<Box<Message>>),
    ) -> Vec<Result<T>> {
        if let Err(closed) = self.ensure_open(Operation::Inspect) {
            return ids.iter().map(|_| Err(closed.clone())).collect();
        }
        let outcomes = self.store.run(|state, now| state.for_each_id(now, partition, ids, command));
        match outcomes {
            Some(outcomes) => outcomes.into_iter().map(Ok).collect(),
            None => ids.iter().map(|_| Ok(not_found)).collect(),
        }
    }
}

impl State {
    /// Lists partitions by name. A live partition and its dead letters are neighbours in the map, and one
    /// line of the list.
    fn list(&self, page: &Page<PartitionId>) -> Vec<PartitionId> {
        let start = page.after.as_ref().map(PartitionId::dead_letters);
        let start = start.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut names: Vec<PartitionId> = Vec::new();
        for id in self.partitions.range((start, Bound::Unbounded)).map(|(id, _)| id.live()) {
            if names.last() == Some(&id) {
                continue;
            }
            if names.len() == page.limit {
                break;
            }
            names.push(id);
        }
        names
    }

    fn count(&mut self, now: Instant, id: &PartitionId) -> Counts {
        let dead = self.partitions.get(&id.dead_letters()).map_or(0, Partition::len);
        let Some(partition) = enter(&mut self.partitions, now, id) else {
            return Counts::known(0, 0, 0, dead as u64);
        };
        let (ready, delayed, leased) = (partition.ready(), partition.delayed(), partition.leased());
        let disabled = partition.disabled();
        self.tidy(id);
        Counts::known(ready as u64, delayed as u64, leased as u64, dead as u64).with_disabled(disabled as u64)
    }

    fn browse(&mut self, now: Instant, id: &PartitionId, page: Page<MessageId>) -> Vec<Browsed> {
        let Some(partition) = enter(&mut self.partitions, now, id) else { return Vec::new() };
        let browsed = partition.browse(now, page);
        self.tidy(id);
        browsed
    }

    /// Applies a command to each message. Returns `None` if there is no such partition.
    fn for_each_id<T>(
        &mut self,
        now: Instant,
        partition_id: &PartitionId,
        ids: &[MessageId],
        command: impl Fn(&mut Partition, MessageId) -> (T, Option<Box<Message>>),
    ) -> Option<Vec<T>> {
        let partition = enter(&mut self.partitions, now, partition_id)?;
        let mut outcomes = Vec::with_capacity(ids.len());
        for id in ids {
            let (outcome, gone) = command(partition, *id);
            outcomes.push(outcome);
            if let Some(gone) = gone {
                self.occupancy.leave(&gone);
            }
        }
        self.tidy(partition_id);
        Some(outcomes)
    }

    /// Removes messages and returns them, so that they are freed after the lock is released.
    fn purge(&mut self, now: Instant, id: &PartitionId, limit: usize) -> Vec<Box<Message>> {
        let Some(partition) = enter(&mut self.partitions, now, id) else { return Vec::new() };
        let gone: Vec<_> = std::iter::from_fn(|| partition.remove_any()).take(limit).collect();
        for message in &gone {
            self.occupancy.leave(message);
        }
        self.tidy(id);
        gone
    }

    fn pause(&mut self, now: Instant, id: &PartitionId, paused: bool) {
        enter_or_make(&mut self.partitions, now, id).set_paused(paused);
        self.tidy(id);
    }
}
