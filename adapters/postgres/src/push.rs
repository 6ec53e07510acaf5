//! Pushing: one statement for a batch, and a faster one if all messages are new and plain.

use anyqueue::adapter::{Envelope, PushQueueStorage, async_trait};
use anyqueue::{Error, MessageData, Operation, PartitionId, PushOutcome, Result};
use sqlx::postgres::PgRow;

use crate::PostgresQueue;
use crate::batch::Batch;
use crate::error::{ERRORS, NAME};
use crate::storage::Inner;

#[async_trait]
impl PushQueueStorage for PostgresQueue {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        Envelope::max_encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Push);
        let batch = Batch::prepare(messages.iter().map(Ok), &self.inner.config);
        if batch.is_empty() && !self.is_closed() {
            return batch.failed(&ERRORS.closed(Operation::Push));
        }
        // An uncertain push can be repeated: what was stored is recognised by its id.
        let rows = match self.store(partition, &batch).await.map_err(Error::repeatable) {
            Ok(rows) => rows,
            Err(error) => return batch.failed(&error),
        };
        match batch.answers(&rows) {
            Ok((outcomes, hint)) => {
                self.send_hint(partition, hint);
                outcomes.into_iter().map(|outcome| outcome.map_err(stamp)).collect()
            }
            Err(error) => messages.iter().map(|_| Err(stamp(error.clone()))).collect(),
        }
    }
}

impl PostgresQueue {
    /// Stores a batch, and returns the rows of messages that were not stored.
    async fn store(&self, partition: &PartitionId, batch: &Batch) -> Result<Vec<PgRow>> {
        let Inner { config, statements, pool, .. } = &*self.inner;
        // If each statement has to be planned again, trying the faster one first gains nothing.
        if config.prepared
            && !self.is_closed()
            && let Some(query) = batch.plain_query(statements, partition)
        {
            let stored = pool.store(query).await;
            let stored = stored.map_err(|error| error.with_backend(NAME).with_operation(Operation::Push))?;
            if batch.is_all(stored) {
                return Ok(Vec::new());
            }
        }
        self.fetch(batch.query(statements, partition), Operation::Push).await
    }
}
