//! Inspecting a partition: how many messages are ready and dead. A broker reveals no more.

use anyqueue::adapter::{InspectQueueStorage, async_trait};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, Error, MessageId, Operation, Page, PartitionId, Result,
};

use crate::RabbitMqQueue;
use crate::error::{ERRORS, NAME};

fn unsupported() -> Error {
    Error::unsupported("a broker shows messages only to consumers that take them")
        .with_backend(NAME)
        .with_operation(Operation::Inspect)
}

#[async_trait]
impl InspectQueueStorage for RabbitMqQueue {
    async fn partitions(&self, _: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        Err(unsupported())
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Inspect));
        }
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Inspect);
        let ready = self.ready(&partition.live()).await.map_err(stamp)?;
        let dead = self.ready(&partition.dead_letters()).await.map_err(stamp)?;
        let mut counts = Counts::default();
        (counts.ready, counts.dead) = (Some(ready), Some(dead));
        Ok(counts)
    }

    async fn browse(&self, _: &PartitionId, _: Page<MessageId>) -> Result<Vec<Browsed>> {
        Err(unsupported())
    }

    async fn delete(&self, _: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        vec![Err(unsupported()); ids.len()]
    }

    async fn purge(&self, _: &PartitionId, _: usize) -> Result<usize> {
        Err(unsupported())
    }

    async fn request_cancel(&self, _: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        vec![Err(unsupported()); ids.len()]
    }
}

impl RabbitMqQueue {
    async fn ready(&self, partition: &PartitionId) -> Result<u64> {
        let shared = &self.inner.shared;
        match shared.publisher.known(partition).await {
            Ok(level_queues) if level_queues.is_empty() => Ok(0),
            Ok(level_queues) => shared.consumers.count(level_queues).await,
            // Publishing may have to wait, or be forbidden. This alternative needs neither, but fills the
            // server's log.
            Err(_) => {
                let found = shared.consumers.try_all(crate::names::level_queues(partition)).await?;
                Ok(found.into_iter().map(|(_, ready)| ready).sum())
            }
        }
    }
}
