//! The ledger of task ends.

use std::ops::Range;
use std::sync::Arc;

use anyqueue::adapter::{
    Cancelled, EndWatch, EndedCursor, EndedQuery, EndedTask, LedgerQueueStorage, SeriesCell, SeriesKey,
    TaskEnd, async_trait, is_of_facts,
};
use anyqueue::{CancelOutcome, MessageId, Operation, Page, PartitionId, Result};

use crate::partition::Partition;
use crate::state::enter;
use crate::storage::MemoryQueue;

/// How many counters are freed at a time, before other calls get the lock.
const STEP_CELLS: usize = 1000;

#[async_trait]
impl LedgerQueueStorage for MemoryQueue {
    fn watch_ended(&self, id: MessageId) -> EndWatch {
        self.store.end_watches.watch(id)
    }

    fn note_ended(&self, ids: &[MessageId]) {
        self.store.end_watches.ended(ids);
    }

    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        if let Err(closed) = self.ensure_open(Operation::Inspect) {
            return vec![Err(closed); ends.len()];
        }
        let (now, counts) = (self.store.clock.wall(), !is_of_facts(partition));
        self.store.run(|state, _| {
            for (id, end) in ends {
                let former = state.ends.find(partition, *id, now);
                let is_new = former.is_none_or(|former| former.end.generation < end.generation);
                let is_greater = former.is_none_or(|former| former.end.rank() < end.rank());
                if is_new && counts {
                    state.series.count(partition, end, now);
                }
                if is_greater && end.is_kept() {
                    state.ends.store(partition, *id, end, now);
                }
            }
        });
        vec![Ok(()); ends.len()]
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        self.ensure_open(Operation::Inspect)?;
        let now = self.store.clock.wall();
        Ok(self.store.run(|state, _| {
            let matching = state.ends.newest_first(partition, query, page.after, now);
            matching.take(page.limit).map(without_result).collect()
        }))
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.ensure_open(Operation::Inspect)?;
        let now = self.store.clock.wall();
        let most = usize::try_from(cap).unwrap_or(usize::MAX);
        Ok(self
            .store
            .run(|state, _| state.ends.newest_first(partition, query, None, now).take(most).count() as u64))
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        if let Err(closed) = self.ensure_open(Operation::Inspect) {
            return vec![Err(closed); ids.len()];
        }
        let now = self.store.clock.wall();
        self.store
            .run(|state, _| ids.iter().map(|id| Ok(state.ends.find(partition, *id, now).cloned())).collect())
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        if let Err(closed) = self.ensure_open(Operation::Inspect) {
            return vec![Err(closed); ids.len()];
        }
        let now = self.store.clock.wall();
        self.store.run(|state, _| {
            let delete = |id: &MessageId| {
                let was_there = state.ends.find(partition, *id, now).is_some();
                state.ends.remove(partition, *id);
                Ok(was_there)
            };
            ids.iter().map(delete).collect()
        })
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.ensure_open(Operation::Inspect)?;
        let now = self.store.clock.wall();
        // This ends: nothing is counted in a past minute any more, and the number of counters is limited.
        while self.store.run(|state, _| state.series.purge(now, STEP_CELLS)) == STEP_CELLS {}
        Ok(self.store.run(|state, _| state.ends.purge(now, limit)))
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        self.ensure_open(Operation::Inspect)?;
        Ok(self.store.run(|state, _| state.series.page(partition, minutes, &page)))
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        if let Err(closed) = self.ensure_open(Operation::Inspect) {
            return vec![Err(closed); tasks.len()];
        }
        let wall = self.store.clock.wall();
        self.store.run(|state, now| {
            let mut outcomes = Vec::with_capacity(tasks.len());
            for task in tasks {
                let entered = enter(&mut state.partitions, now, partition);
                let (outcome, gone) = entered
                    .map_or((CancelOutcome::NotFound, None), |entered| Partition::cancel(entered, task.id));
                if let Some(gone) = gone {
                    state.occupancy.leave(&gone);
                    if let Some(end) = &task.end {
                        state.series.count(partition, end, wall);
                        if end.is_kept() {
                            state.ends.store(partition, task.id, end, wall);
                        }
                    }
                }
                outcomes.push(Ok(outcome));
            }
            state.tidy(partition);
            outcomes
        })
    }
}

fn without_result(ended: &EndedTask) -> EndedTask {
    if ended.end.result.is_none() {
        return ended.clone();
    }
    let mut end = TaskEnd::clone(&ended.end);
    end.result = None;
    EndedTask::new(ended.id, ended.ended_at, ended.expires_at, Arc::new(end))
}
