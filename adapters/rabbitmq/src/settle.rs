//! Settling deliveries.

use anyqueue::adapter::{Action, Lease, Settlement};
use anyqueue::{Error, Operation, PartitionId, Result, RetryClass, SettleOutcome};
use tokio::sync::oneshot;

use crate::RabbitMqQueue;
use crate::batch::{by_partition, put};
use crate::command::{Command, Disposition, Settled};
use crate::error::{ERRORS, NAME, timed_out};
use crate::store_first::Kept;
use crate::token::Tag;

impl RabbitMqQueue {
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if self.is_closed() {
            return vec![Err(ERRORS.closed(Operation::Settle)); settlements.len()];
        }
        if !settlements.iter().any(stores) {
            return self.settle_batch(settlements).await;
        }
        // To its end, even if the caller goes away: what is kept for its copy must not stay so.
        let (queue, batch) = (self.clone(), settlements.to_vec());
        let settling = self.inner.calls.spawn(async move { queue.settle_batch(&batch).await });
        settling.await.unwrap_or_else(|_| vec![Err(ERRORS.closed(Operation::Settle)); settlements.len()])
    }

    async fn settle_batch(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let mut answers: Vec<Result<SettleOutcome>> = vec![Ok(SettleOutcome::Lost); settlements.len()];
        let mut all_kept = Vec::new();
        let leases = settlements.iter().map(|settlement| &settlement.lease);
        for (partition, indexes) in by_partition(leases) {
            let answered = self.settle_here(settlements, partition, &indexes).await;
            for (index, answer) in answered {
                match answer {
                    Ok(Settled::Done) => put(&mut answers, index, Ok(SettleOutcome::Settled)),
                    Ok(Settled::Lost) => {}
                    Ok(Settled::Kept(tag, original)) => {
                        all_kept.push(Kept { index, partition: partition.clone(), tag, original });
                    }
                    Err(error) => put(&mut answers, index, Err(error)),
                }
            }
        }
        if !all_kept.is_empty() {
            for (index, answer) in self.store_first(settlements, all_kept).await {
                put(&mut answers, index, answer.map_err(stamp));
            }
        }
        answers
    }

    async fn settle_here(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        indexes: &[usize],
    ) -> Vec<(usize, Result<Settled>)> {
        let ours = indexes.iter().filter_map(|index| {
            let settlement = settlements.get(*index)?;
            let Lease { id, token, .. } = &settlement.lease;
            Some((*index, (*id, Tag::of(token)?, disposition(settlement))))
        });
        let (indexes, items): (Vec<_>, Vec<_>) = ours.unzip();
        let (reply, answer) = oneshot::channel();
        let answers: Vec<Result<Settled>> =
            if self.command_if_running(partition, Command::Settle(items, reply)).await {
                match tokio::time::timeout(self.inner.shared.config.call_timeout, answer).await {
                    Ok(answers) => answers.unwrap_or_default().into_iter().map(Ok).collect(),
                    Err(_) => {
                        indexes.iter().map(|_| Err(stamp(timed_out().with_retry(RetryClass::Safe)))).collect()
                    }
                }
            } else {
                Vec::new() // Nobody has pulled from there, so nothing is held.
            };
        indexes.into_iter().zip(answers).collect()
    }
}

fn stamp(error: Error) -> Error {
    error.with_backend(NAME).with_operation(Operation::Settle)
}

fn disposition(settlement: &Settlement) -> Disposition {
    match &settlement.action {
        Action::Postpone { .. } | Action::Move { .. } => Disposition::Copy,
        _ if !settlement.then.is_empty() => Disposition::Keep,
        Action::Remove => Disposition::Ack,
        Action::Release | Action::Retry => Disposition::Requeue,
    }
}

/// Whether this settlement stores something: a copy, or successors.
pub(crate) fn stores(settlement: &Settlement) -> bool {
    matches!(disposition(settlement), Disposition::Copy | Disposition::Keep)
}
