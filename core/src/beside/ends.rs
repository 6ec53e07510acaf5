//! The ends of tasks that settlements bring: stored before those are sent, or counted afterwards.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use super::{Beside, LedgerDown};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::inspect::MAX_PAGE;
use crate::ledger::{LedgerQueueStorage, TaskEnd};
use crate::message::MessageId;
use crate::partition::PartitionId;
use crate::storage::{SettleOutcome, Settlement};
use crate::telemetry;

/// How long a settlement waits for its ends to be counted.
const COUNTED_WITHIN: Duration = Duration::from_secs(1);
/// How long nothing is counted after the ledger has not returned within that time: otherwise every settlement
/// would wait for it.
const COUNTED_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Ends of tasks, by partition.
type ByPartition<'s> = BTreeMap<&'s PartitionId, BTreeMap<MessageId, Arc<TaskEnd>>>;

impl Beside {
    /// Stores ends. Returns those that could not be stored, with the reason.
    pub(super) async fn keep(&self, settlements: &[Settlement]) -> HashMap<(PartitionId, MessageId), Error> {
        let mut by_partition = ByPartition::new();
        for settlement in settlements {
            if let Some(end) = settlement.stored_end() {
                let Settlement { lease, then, .. } = settlement;
                let end = with_successors(end, then.len());
                by_partition.entry(&lease.partition).or_default().insert(lease.id, end);
            }
        }
        let mut failed = HashMap::new();
        if by_partition.is_empty() {
            return failed; // so that nothing is known of the ledger either
        }
        for (partition, ends) in by_partition {
            let ends: Vec<_> = ends.into_iter().collect();
            for part in ends.chunks(MAX_PAGE) {
                for ((id, _), answer) in part.iter().zip(self.record_ended(partition, part).await) {
                    if let Err(error) = answer {
                        failed.insert((partition.clone(), *id), error);
                    }
                }
            }
        }
        self.is_down.store(!failed.is_empty(), Ordering::Relaxed);
        if !failed.is_empty() && self.when_down == LedgerDown::Drop {
            let dropped = failed.len() as u64;
            telemetry::count("anyqueue_ledger_dropped_total", self.queue.name(), dropped);
            let error = failed.drain().next().map(|(_, error)| error);
            tracing::warn!(
                dropped,
                error = error.map(tracing::field::display),
                "the ends of tasks were not kept"
            );
            failed.clear();
        }
        failed
    }

    /// Counts the ends that are not stored, after the settlement: only then is the task known to have ended.
    /// They stay uncounted if the process crashes in between or the ledger is down.
    pub(super) async fn count(&self, settlements: &[Settlement], answers: &[Result<SettleOutcome>]) {
        let mut by_partition = ByPartition::new();
        for (settlement, _) in settlements.iter().zip(answers).filter(|(_, answer)| is_settled(answer)) {
            let counted = settlement.counted_end().filter(|_| self.capabilities.series);
            let Some(end) = counted.filter(|_| settlement.stored_end().is_none()) else { continue };
            let unkept = Arc::new(TaskEnd { keep: Some(Duration::ZERO), ..TaskEnd::clone(end) });
            let lease = &settlement.lease;
            by_partition.entry(&lease.partition).or_default().insert(lease.id, unkept);
        }
        let all = by_partition.values().map(BTreeMap::len).sum::<usize>();
        if all == 0 {
            return;
        }
        let uncounted = all.saturating_sub(self.counted(by_partition).await);
        if uncounted > 0 {
            telemetry::count("anyqueue_ledger_dropped_total", self.queue.name(), uncounted as u64);
            tracing::warn!(uncounted, "the ends of tasks were not counted");
        }
    }

    /// Returns how many of these the ledger has counted in time.
    async fn counted(&self, by_partition: ByPartition<'_>) -> usize {
        let clock = Clock::system();
        let rests_until = || self.uncounted_until.lock().unwrap_or_else(PoisonError::into_inner);
        if rests_until().is_some_and(|until| clock.now() < until) {
            return 0;
        }
        let counted = AtomicUsize::new(0);
        let counting = async {
            for (partition, ends) in by_partition {
                for part in ends.into_iter().collect::<Vec<_>>().chunks(MAX_PAGE) {
                    let done =
                        self.record_ended(partition, part).await.iter().filter(|it| it.is_ok()).count();
                    counted.fetch_add(done, Ordering::Relaxed);
                }
            }
        };
        // The tasks are settled: a ledger out of reach must not make that look uncertain.
        if Handle::try_current().is_ok() {
            let has_returned = tokio::select! {
                biased;
                () = counting => true,
                () = clock.sleep(COUNTED_WITHIN) => false,
            };
            if !has_returned {
                self.is_down.store(true, Ordering::Relaxed);
                *rests_until() = clock.now().checked_add(COUNTED_AGAIN_AFTER);
            }
        } else {
            counting.await;
        }
        counted.into_inner()
    }
}

fn is_settled(answer: &Result<SettleOutcome>) -> bool {
    matches!(answer, Ok(SettleOutcome::Settled))
}

/// The end of a task with its number of successors, which tells whoever meets the task again that those may
/// be missing.
fn with_successors(end: &Arc<TaskEnd>, successors: usize) -> Arc<TaskEnd> {
    let successors = u32::try_from(successors).unwrap_or(u32::MAX);
    if end.successors == successors {
        return Arc::clone(end);
    }
    Arc::new(TaskEnd { successors, ..TaskEnd::clone(end) })
}
