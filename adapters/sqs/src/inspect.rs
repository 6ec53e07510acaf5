//! Counting messages. The server shows no messages without receiving them.

use anyqueue::adapter::{InspectQueueStorage, async_trait};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, Error, MessageId, Operation, Page, PartitionId, Result,
};
use aws_sdk_sqs::types::QueueAttributeName as Name;
use futures_util::future::try_join_all;

use crate::SqsQueue;
use crate::error::{ERRORS, NAME, Refused, unexpected_reply};
use crate::names::LevelQueue;
use crate::shared::Inner;

/// The server's approximate counts of a queue.
#[derive(Clone, Copy, Default)]
struct QueueCounts {
    visible: u64,
    not_visible_or_delayed: u64,
}

impl SqsQueue {
    async fn count(&self, partition: &PartitionId) -> Result<Counts> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Inspect));
        }
        let (live, dead) = (partition.live(), partition.dead_letters());
        let (live, dead) =
            futures_util::try_join!(self.inner.counts_of_levels(&live), self.inner.counts_of_levels(&dead))?;
        let mut counts = Counts::default();
        counts.ready = Some(live.visible);
        counts.dead = Some(dead.visible + dead.not_visible_or_delayed);
        Ok(counts)
    }
}

impl Inner {
    /// Returns the counts of all levels together.
    async fn counts_of_levels(&self, partition: &PartitionId) -> Result<QueueCounts> {
        let levels = (0..self.config.levels)
            .map(async |level| self.counts_of_queue(&LevelQueue::new(partition, level)).await);
        let counts = try_join_all(levels).await?;
        let sum = |a: QueueCounts, b: QueueCounts| QueueCounts {
            visible: a.visible + b.visible,
            not_visible_or_delayed: a.not_visible_or_delayed + b.not_visible_or_delayed,
        };
        Ok(counts.into_iter().fold(QueueCounts::default(), sum))
    }

    async fn counts_of_queue(&self, level_queue: &LevelQueue) -> Result<QueueCounts> {
        const NAMES: [Name; 3] = [
            Name::ApproximateNumberOfMessages,
            Name::ApproximateNumberOfMessagesNotVisible,
            Name::ApproximateNumberOfMessagesDelayed,
        ];
        let Some(url) = self.queues.find(&self.server, level_queue).await? else {
            return Ok(QueueCounts::default());
        };
        let answer = match self.server.attributes(&url, &NAMES).await {
            Err(Refused::NoQueue) => {
                self.queues.forget(level_queue, &url);
                return Ok(QueueCounts::default());
            }
            answer => answer.map_err(Refused::into_error)?,
        };
        let counts: Option<Vec<u64>> = answer.iter().map(|count| count.as_deref()?.parse().ok()).collect();
        match counts.as_deref() {
            Some([visible, not_visible, delayed]) => {
                Ok(QueueCounts { visible: *visible, not_visible_or_delayed: not_visible + delayed })
            }
            _ => Err(unexpected_reply("counts")),
        }
    }
}

fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Inspect)
}

fn unsupported(what: &str) -> Error {
    stamp(Error::unsupported(format!("SQS offers no {what}")))
}

#[async_trait]
impl InspectQueueStorage for SqsQueue {
    async fn partitions(&self, _: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        Err(unsupported("list of partitions: a queue's name may contain only a hash of it"))
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.count(partition).await.map_err(stamp)
    }

    async fn browse(&self, _: &PartitionId, _: Page<MessageId>) -> Result<Vec<Browsed>> {
        Err(unsupported("way to see messages without receiving them"))
    }

    async fn delete(&self, _: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        ids.iter().map(|_| Err(unsupported("deletion of a message that was not received"))).collect()
    }

    async fn purge(&self, _: &PartitionId, _: usize) -> Result<usize> {
        Err(unsupported("purge that keeps messages in flight"))
    }

    async fn request_cancel(&self, _: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        ids.iter().map(|_| Err(unsupported("cancellation by id"))).collect()
    }
}
