//! The ledger of task ends.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use anyqueue::adapter::{
    Cancelled, EndWatch, EndedCursor, EndedQuery, EndedTask, LedgerQueueStorage, SeriesCell, SeriesKey,
    TaskEnd, async_trait, is_of_facts,
};
use anyqueue::{
    CancelOutcome, EndState, Error, MAX_RESULT_BYTES, MessageId, Operation, Page, PartitionId, Result,
};
use uuid::Uuid;

use crate::PostgresQueue;
use crate::ends::{EncodedEnd, EndColumns, read_end, runs, since_1970_ms};
use crate::error::NAME;
use crate::inspect::uuid;
use crate::limits::BATCH_BYTES;
use crate::series;
use crate::sql::{Text, get, int};

/// This many ends with the largest possible results are about as much as a statement can carry.
const FOUND_AT_ONCE: usize = BATCH_BYTES / MAX_RESULT_BYTES;

#[async_trait]
impl LedgerQueueStorage for PostgresQueue {
    fn watch_ended(&self, id: MessageId) -> EndWatch {
        if self.inner.hint_sender.outbox.is_none() {
            return EndWatch::silent(); // notifications are off
        }
        self.inner.listen.cancel();
        self.inner.end_watches.watch(id)
    }

    fn note_ended(&self, ids: &[MessageId]) {
        self.inner.end_watches.ended(ids);
    }

    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        let mut outcomes = Vec::with_capacity(ends.len());
        let mut encoded = Vec::with_capacity(ends.len());
        for (index, (id, end)) in ends.iter().enumerate() {
            if is_of_facts(partition) && !end.is_kept() {
                outcomes.push((index, Ok(()))); // neither stored nor counted
                continue;
            }
            match EncodedEnd::of(end) {
                Ok(end) => encoded.push((uuid(id), index, end)),
                Err(error) => outcomes.push((index, Err(error))),
            }
        }
        encoded.sort_unstable_by_key(|(id, ..)| *id);
        for run in runs(&encoded, |(.., end)| end.bytes()) {
            let done = self.record_run(partition, run).await;
            outcomes.extend(run.iter().map(|(_, index, _)| (*index, done.clone())));
        }
        outcomes.sort_unstable_by_key(|(index, _)| *index);
        outcomes.into_iter().map(|(_, outcome)| outcome.map_err(stamp)).collect()
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        let (before_ms, before_id) = end_of(query, page.after);
        let text = self.inner.statements.ended_page.query().bind(partition.name().to_owned());
        let text = text.bind(states(query)).bind(begin_of(query)).bind(before_ms).bind(before_id);
        let rows = self.fetch(text.bind(int(page.limit)), Operation::Inspect).await.map_err(stamp)?;
        rows.iter().map(|row| read_end(row, false)).collect::<Result<_>>().map_err(stamp)
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        let text = self.inner.statements.count_ended.query().bind(partition.name().to_owned());
        let text = text.bind(states(query)).bind(begin_of(query)).bind(end_of(query, None).0);
        let text = text.bind(i64::try_from(cap).unwrap_or(i64::MAX));
        let rows = self.fetch(text, Operation::Inspect).await.map_err(stamp)?;
        let count = rows.first().map_or(Ok(0), |row| get::<i64>(row, 0)).map_err(stamp)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(FOUND_AT_ONCE) {
            match self.find_run(partition, ids).await {
                Ok(ends) => {
                    found.extend(ids.iter().map(|id| ends.get(id).cloned().transpose().map_err(stamp)));
                }
                Err(error) => found.extend(ids.iter().map(|_| Err(stamp(error.clone())))),
            }
        }
        found
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        let mut sorted: Vec<_> = ids.iter().map(uuid).collect();
        sorted.sort_unstable();
        let query = self.inner.statements.delete_ended.query().bind(partition.name().to_owned());
        let rows = self.fetch(query.bind(sorted), Operation::Inspect).await;
        let deleted = rows.and_then(|rows| match rows.first() {
            Some(row) => Ok(get::<Option<Vec<Uuid>>>(row, 0)?.unwrap_or_default()),
            None => Ok(Vec::new()),
        });
        match deleted {
            Ok(deleted) => {
                let mut deleted: HashSet<_> = deleted.into_iter().collect();
                ids.iter().map(|id| Ok(deleted.remove(&uuid(id)))).collect()
            }
            Err(error) => ids.iter().map(|_| Err(stamp(error.clone()))).collect(),
        }
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.purge_series().await.map_err(stamp)?;
        let mut purged = 0;
        while purged < limit {
            let query = self.inner.statements.purge_ended.query().bind(int(limit - purged));
            let rows = self.fetch(query, Operation::Inspect).await.map_err(stamp)?;
            let Some(row) = rows.first() else { break };
            purged += usize::try_from(get::<i32>(row, 0).map_err(stamp)?).unwrap_or(0);
            if !get::<bool>(row, 1).map_err(stamp)? {
                break;
            }
        }
        Ok(purged)
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        let query = series::page(&self.inner.statements, partition, &minutes, &page);
        let rows = self.fetch(query, Operation::Inspect).await.map_err(stamp)?;
        rows.iter().map(series::read_cell).collect::<Result<_>>().map_err(stamp)
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        let mut encoded = Vec::with_capacity(tasks.len());
        for Cancelled { id, end } in tasks {
            let end = end.as_deref().filter(|_| !partition.is_dead_letters());
            encoded.push((*id, end.map(EncodedEnd::of).transpose()));
        }
        let bytes = |(_, end): &(_, Result<Option<EncodedEnd<'_>>>)| match end {
            Ok(Some(end)) => end.bytes(),
            _ => 0,
        };
        let mut outcomes = Vec::with_capacity(tasks.len());
        for run in runs(&encoded, bytes) {
            outcomes.extend(self.cancel_run(partition, run).await);
        }
        outcomes.into_iter().map(|outcome| outcome.map_err(stamp)).collect()
    }
}

impl PostgresQueue {
    async fn record_run(&self, partition: &PartitionId, run: &[(Uuid, usize, EncodedEnd<'_>)]) -> Result<()> {
        let ids: Vec<_> = run.iter().map(|(id, ..)| *id).collect();
        let columns = EndColumns::of((1..).zip(run).map(|(number, (.., end))| (number, end)));
        let (statements, bytes) = (&self.inner.statements, columns.bytes());
        let begin = |text: &Text| text.query_of(bytes).bind(partition.name().to_owned()).bind(ids);
        let query = if is_of_facts(partition) {
            columns.bind_stored(begin(&statements.record_facts))
        } else {
            columns.bind_all(begin(&statements.record_ended))
        };
        self.fetch(query, Operation::Inspect).await.map(drop)
    }

    /// Returns the ends that were found, each readable or not.
    async fn find_run(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Result<HashMap<MessageId, Result<EndedTask>>> {
        let query = self.inner.statements.find_ended.query().bind(partition.name().to_owned());
        let query = query.bind(ids.iter().map(uuid).collect::<Vec<_>>());
        let rows = self.fetch(query, Operation::Inspect).await?;
        let found = |row| Ok((MessageId::from_bytes(*get::<Uuid>(row, 0)?.as_bytes()), read_end(row, true)));
        rows.iter().map(found).collect()
    }

    async fn cancel_run(
        &self,
        partition: &PartitionId,
        run: &[(MessageId, Result<Option<EncodedEnd<'_>>>)],
    ) -> Vec<Result<CancelOutcome>> {
        let readable = || run.iter().filter_map(|(id, end)| Some((id, end.as_ref().ok()?)));
        let ids: Vec<_> = readable().map(|(id, _)| *id).collect();
        let ends = readable().filter_map(|(id, end)| Some((uuid(id), end.as_ref()?))).collect();
        let mut outcomes = self.cancel_each(partition, &ids, &ends).await.into_iter();
        let outcome = |(_, end): &(_, Result<_>)| match end {
            Ok(_) => outcomes.next().unwrap_or(Ok(CancelOutcome::NotFound)),
            Err(error) => Err(error.clone()),
        };
        run.iter().map(outcome).collect()
    }
}

fn states(query: &EndedQuery) -> Vec<i16> {
    let mut states = if query.states.is_empty() { EndState::ALL.to_vec() } else { query.states.clone() };
    states.sort_unstable();
    states.dedup();
    states.into_iter().map(|state| i16::from(state.code())).collect()
}

fn begin_of(query: &EndedQuery) -> i64 {
    query.since.map_or(0, since_1970_ms)
}

/// Returns the moment and id before which the requested ends come.
fn end_of(query: &EndedQuery, after: Option<EndedCursor>) -> (i64, Uuid) {
    let before = query.before.map_or(i64::MAX, since_1970_ms);
    let after = after.map(|EndedCursor { ended_at, id }| {
        let ms = since_1970_ms(ended_at);
        let is_whole =
            SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(ms.unsigned_abs()) == ended_at;
        (ms, if is_whole { uuid(&id) } else { Uuid::nil() })
    });
    after.map_or((before, Uuid::nil()), |after| after.min((before, Uuid::nil())))
}

/// Every call here can be repeated: the second time it changes nothing.
fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Inspect)
}
