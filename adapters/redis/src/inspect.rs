//! Inspecting the queue, and an operator's changes to it.

use anyqueue::adapter::{InspectQueueStorage, PauseQueueStorage, async_trait};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, Error, MessageId, Operation, Page, PartitionId, Result,
};

use crate::RedisQueue;
use crate::error::{ERRORS, NAME};
use crate::link::Call;
use crate::names::partition_kind;
use crate::{reply, script};

/// How many ids one call carries.
pub(crate) const IDS_PER_CALL: usize = 100;

impl RedisQueue {
    /// Removes messages, or requests their cancellation. Returns the outcome for each id: removed, held, or
    /// missing.
    async fn take_out<T: Clone>(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        cancel: bool,
        outcomes: [T; 3],
    ) -> Vec<Result<T>> {
        let mut answers = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_PER_CALL) {
            match self.take_out_some(partition, ids, cancel).await {
                Ok(digits) => answers.extend((0..ids.len()).map(|number| {
                    let [gone, held, missing] = outcomes.clone();
                    Ok(match digits.get(number) {
                        Some(b'g') => gone,
                        Some(b'h') => held,
                        _ => missing,
                    })
                })),
                Err(error) => answers.extend(ids.iter().map(|_| Err(stamp(error.clone())))),
            }
        }
        answers
    }

    async fn take_out_some(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        cancel: bool,
    ) -> Result<Vec<u8>> {
        let mut call = self.new_call(&script::TAKE_OUT, partition, ids.len() + 2, 32 * ids.len() + 96);
        call.int(cancel.into()).arg(&[partition_kind(partition)]);
        for id in ids {
            call.arg(id.as_bytes());
        }
        reply::bytes(self.run(&call, Operation::Inspect).await?)
    }

    async fn counts_now(&self, partition: &PartitionId) -> Result<Counts> {
        loop {
            let call = self.new_call(&script::COUNTS, partition, 0, 0);
            let [ready, delayed, leased, disabled, dead, again] =
                reply::exactly(self.run(&call, Operation::Inspect).await?)?;
            if reply::int(&again)? == 0 {
                let count = reply::count;
                let counts = Counts::known(count(&ready)?, count(&delayed)?, count(&leased)?, count(&dead)?);
                return Ok(counts.with_disabled(count(&disabled)?));
            }
        }
    }

    async fn purge_some(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        let (mut cursor, mut purged) = (b"0".to_vec(), 0);
        while purged < limit && !cursor.is_empty() {
            let mut call = self.new_call(&script::PURGE, partition, 2, 64);
            call.int((limit - purged) as u64).arg(&cursor);
            let [count, next] = reply::exactly(self.run(&call, Operation::Inspect).await?)?;
            purged += usize::try_from(reply::count(&count)?).unwrap_or(usize::MAX);
            cursor = reply::bytes(next)?;
        }
        Ok(purged)
    }

    async fn list_partitions(&self, after: Option<&PartitionId>, limit: usize) -> Result<Vec<PartitionId>> {
        let mut call = Call::new(&script::LIST_PARTITIONS, &[self.inner.names.partitions()], 2, 64);
        call.arg(after.map_or("", PartitionId::name).as_bytes()).int(limit as u64);
        let names = reply::list(self.run(&call, Operation::Inspect).await?)?;
        names.into_iter().map(|name| PartitionId::new(&reply::text(name)?)).collect()
    }
}

/// A repetition is safe: what was removed stays removed.
pub(crate) fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Inspect)
}

#[async_trait]
impl InspectQueueStorage for RedisQueue {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        self.list_partitions(after, limit).await.map_err(stamp)
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.counts_now(partition).await.map_err(stamp)
    }

    /// If the partition has more than two thousand messages, this scans all of its messages and dead letters
    /// that were not pushed together with others. It proceeds in small steps, and skips large payloads.
    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        self.page(partition, after, limit).await.map_err(stamp)
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        let outcomes = [DeleteOutcome::Deleted, DeleteOutcome::Leased, DeleteOutcome::NotFound];
        self.take_out(partition, ids, false, outcomes).await
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.purge_some(partition, limit).await.map_err(stamp)
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        let outcomes = [CancelOutcome::Removed, CancelOutcome::Requested, CancelOutcome::NotFound];
        self.take_out(partition, ids, true, outcomes).await
    }
}

#[async_trait]
impl PauseQueueStorage for RedisQueue {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        let mut call = self.new_call(&script::PAUSE, partition, 1, 8);
        call.int(paused.into());
        let stamp = |error: Error| error.repeatable().with_operation(Operation::Pause);
        if paused && !partition.is_dead_letters() {
            self.register_partition(partition).await.map_err(stamp)?;
        }
        self.run(&call, Operation::Pause).await.map(|_| ()).map_err(stamp)
    }

    async fn is_paused(&self, partition: &PartitionId) -> Result<bool> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Pause));
        }
        let mut ask = redis::cmd("HEXISTS");
        ask.arg(self.inner.names.state(partition)).arg("paused");
        let stamp = |error: Error| error.repeatable().with_backend(NAME).with_operation(Operation::Pause);
        let answer = self.inner.link.command(&ask).await.map_err(stamp)?;
        reply::int(&answer).map(|paused| paused == 1).map_err(stamp)
    }
}
