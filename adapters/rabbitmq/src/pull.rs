//! Pulling messages.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Extension, PullQueueStorage, PullRequest, RawDelivery, Settlement, async_trait};
use anyqueue::{Error, ExtendOutcome, Operation, PartitionId, Result, RetryClass, SettleOutcome};
use futures_util::future::join;
use tokio::sync::oneshot;

use crate::RabbitMqQueue;
use crate::batch::{by_partition, put};
use crate::command::{Claim, Command, WaitingPull};
use crate::error::{ERRORS, NAME, timed_out};
use crate::settle::stores;
use crate::token::Tag;

/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_hours(24 * 365);

#[async_trait]
impl PullQueueStorage for RabbitMqQueue {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.pull_messages(partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.settle_all(settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.extend_all(extensions).await
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        self.settle_and_pull(settlements, partition, request).await
    }
}

impl RabbitMqQueue {
    async fn pull_messages(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        // Messages that a failed pull may have been sent are requeued when its channel is closed.
        let stamp = |error: Error| error.repeatable().with_backend(NAME).with_operation(Operation::Pull);
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Pull));
        }
        if request.max == 0 {
            return Err(stamp(ERRORS.invalid("a pull must ask for at least one message")));
        }
        if request.stop.is_cancelled() {
            return Ok(Vec::new());
        }
        let (reply, mut answer) = oneshot::channel();
        let until = Instant::now() + request.wait.min(LONGEST_WAIT);
        let stop = request.stop.clone();
        let waiting = WaitingPull {
            max: request.max,
            until,
            fresh: true,
            is_thorough: request.thorough,
            is_retried: false,
            stop,
            reply,
        };
        if !self.command(partition, Command::Pull(waiting)).await {
            return Err(ERRORS.closed(Operation::Pull));
        }
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            () = request.stop.cancelled() => {
                self.command_if_running(partition, Command::Stop).await;
                answer.await
            }
        };
        match answer {
            Ok(claim) => claim.map(Claim::take).map_err(stamp),
            Err(_) => Err(ERRORS.closed(Operation::Pull)),
        }
    }

    async fn settle_and_pull(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        // The settlements reach their task first, and their acknowledgements free the credit that the pull
        // needs.
        let settled = self.settle_all(settlements);
        let pulled = self.pull_messages(partition, request);
        if settlements.iter().any(stores) {
            // If something is stored in this partition, the pull must find it.
            return (settled.await, pulled.await);
        }
        join(settled, pulled).await
    }

    /// Returns which leases are still valid. Each ends with its channel, so the server is not asked.
    async fn extend_all(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        if self.is_closed() {
            return vec![Err(ERRORS.closed(Operation::Extend)); extensions.len()];
        }
        let mut answers: Vec<Result<ExtendOutcome>> = vec![Ok(ExtendOutcome::Lost); extensions.len()];
        let leases = extensions.iter().map(|extension| &extension.lease);
        for (partition, indexes) in by_partition(leases) {
            let asked: Vec<_> = indexes
                .iter()
                .filter_map(|index| {
                    let lease = &extensions.get(*index)?.lease;
                    Some((*index, (lease.id, Tag::of(&lease.token)?)))
                })
                .collect();
            let (indexes, items): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
            let (reply, answer) = oneshot::channel();
            if !self.command_if_running(partition, Command::Holds(items, reply)).await {
                continue;
            }
            let Ok(holds) = tokio::time::timeout(self.inner.shared.config.call_timeout, answer).await else {
                let error = timed_out().with_retry(RetryClass::Safe).with_backend(NAME);
                let error = error.with_operation(Operation::Extend);
                for index in indexes {
                    put(&mut answers, index, Err(error.clone()));
                }
                continue;
            };
            let holds = holds.unwrap_or_default();
            for (index, held) in indexes.into_iter().zip(holds) {
                if held {
                    put(&mut answers, index, Ok(ExtendOutcome::Extended));
                }
            }
        }
        answers
    }
}
