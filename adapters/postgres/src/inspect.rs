//! Looking into the queue, and what an operator does to it.

use std::collections::HashSet;

use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, InspectQueueStorage, MessageId, MessageState, Operation,
    PartitionId, PauseQueueStorage, Result, async_trait,
};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::PostgresQueue;
use crate::pull::{age, decode};
use crate::sql::{get, int};
use crate::wake::Hint;

/// What became of messages that were to be taken out.
#[derive(Default)]
struct TakenOut {
    gone: HashSet<Uuid>,
    held: HashSet<Uuid>,
}

fn uuid(id: &MessageId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

fn browsed(row: &PgRow) -> Result<Browsed> {
    let id = get::<Uuid>(row, 0)?;
    let is_hidden = get::<Option<bool>>(row, 2)?.unwrap_or(false);
    let state = match get::<i16>(row, 1)? {
        1 if is_hidden => MessageState::Leased,
        2 if is_hidden => MessageState::Delayed,
        _ => MessageState::Ready,
    };
    let deliveries = u32::try_from(get::<i32>(row, 3)?).unwrap_or(0);
    let due_in = if state == MessageState::Delayed { Some(age(row, 7)?) } else { None };
    let browsed = Browsed::new(decode(row, id, 5)?, state);
    Ok(browsed.with_delivery_count(deliveries).with_age(age(row, 4)?).with_due_in(due_in))
}

impl PostgresQueue {
    async fn take_out(&self, partition: &PartitionId, ids: &[MessageId], cancel: bool) -> Result<TakenOut> {
        let mut ids: Vec<_> = ids.iter().map(uuid).collect();
        ids.sort_unstable();
        let query = self.inner.statements.take_out.query();
        let query =
            query.bind(partition.name().to_owned()).bind(partition.is_dead_letters()).bind(ids).bind(cancel);
        let rows = self.fetch(query, Operation::Inspect).await?;
        let Some(row) = rows.first() else { return Ok(TakenOut::default()) };
        self.tell(partition, Hint::ready(usize::try_from(get::<i32>(row, 2)?).unwrap_or(0)));
        let set = |column| Ok(get::<Option<Vec<Uuid>>>(row, column)?.into_iter().flatten().collect());
        Ok(TakenOut { gone: set(0)?, held: set(1)? })
    }

    /// The outcome for each id.
    async fn take_out_each<T: Clone>(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        cancel: bool,
        [gone, held, missing]: [T; 3],
    ) -> Vec<Result<T>> {
        match self.take_out(partition, ids, cancel).await {
            Ok(mut taken) => {
                let outcome = |id: &MessageId| match uuid(id) {
                    id if taken.gone.remove(&id) => gone.clone(), // not there any more if it is asked for twice
                    id if taken.held.contains(&id) => held.clone(),
                    _ => missing.clone(),
                };
                ids.iter().map(outcome).map(Ok).collect()
            }
            Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

#[async_trait]
impl InspectQueueStorage for PostgresQueue {
    async fn partitions(&self, after: Option<&PartitionId>, limit: usize) -> Result<Vec<PartitionId>> {
        let after = after.map_or("", PartitionId::name).to_owned();
        let query = self.inner.statements.partitions.query().bind(after).bind(i64::from(int(limit)));
        let rows = self.fetch(query, Operation::Inspect).await?;
        rows.iter().map(|row| PartitionId::new(get(row, 0)?)).collect()
    }

    /// Reads one index entry per message: some 100 ms for a million.
    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        let query = self.inner.statements.counts.query();
        let query = query.bind(partition.name().to_owned()).bind(partition.is_dead_letters());
        let rows = self.fetch(query, Operation::Inspect).await?;
        let Some(row) = rows.first() else { return Ok(Counts::known(0, 0, 0, 0)) };
        let count = |column| get::<i64>(row, column).map(|count| u64::try_from(count).unwrap_or(0));
        Ok(Counts::known(count(0)? + count(3)?, count(1)?, count(2)?, count(4)?))
    }

    async fn browse(
        &self,
        partition: &PartitionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<Browsed>> {
        let statements = &self.inner.statements;
        let text = if partition.is_dead_letters() { &statements.browse_dead } else { &statements.browse };
        let query = text.query().bind(partition.name().to_owned());
        let query = query.bind(after.as_ref().map_or_else(Uuid::nil, uuid)).bind(i64::from(int(limit)));
        self.fetch(query, Operation::Inspect).await?.iter().map(browsed).collect()
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        let outcomes = [DeleteOutcome::Deleted, DeleteOutcome::Leased, DeleteOutcome::NotFound];
        self.take_out_each(partition, ids, false, outcomes).await
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        let query = self.inner.statements.purge.query();
        let query =
            query.bind(partition.name().to_owned()).bind(partition.is_dead_letters()).bind(int(limit));
        let rows = self.fetch(query, Operation::Inspect).await?;
        self.tell(partition, Hint::ready(1)); // a group may have gone on
        rows.first().map_or(Ok(0), |row| get::<i32>(row, 0).map(|count| usize::try_from(count).unwrap_or(0)))
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        let outcomes = [CancelOutcome::Removed, CancelOutcome::Requested, CancelOutcome::NotFound];
        self.take_out_each(partition, ids, true, outcomes).await
    }
}

#[async_trait]
impl PauseQueueStorage for PostgresQueue {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        let query = self.inner.statements.set_paused.query();
        let query = query.bind(partition.name().to_owned()).bind(partition.is_dead_letters()).bind(paused);
        self.fetch(query, Operation::Pause).await?;
        if !paused {
            self.tell(partition, Hint::ready(usize::MAX));
        }
        Ok(())
    }

    async fn is_paused(&self, partition: &PartitionId) -> Result<bool> {
        let query = self.inner.statements.is_paused.query();
        let query = query.bind(partition.name().to_owned()).bind(partition.is_dead_letters());
        let rows = self.fetch(query, Operation::Pause).await?;
        rows.first().map_or(Ok(false), |row| get(row, 0))
    }
}
