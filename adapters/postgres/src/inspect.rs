//! Inspecting the queue, and an operator's changes to it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Hint, InspectQueueStorage, PauseQueueStorage, async_trait};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, MessageId, MessageState, Operation, Page, PartitionId,
    Result,
};
use sqlx::Postgres;
use sqlx::postgres::types::PgInterval;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use uuid::Uuid;

use crate::PostgresQueue;
use crate::ends::{EncodedEnd, EndColumns};
use crate::pull::{age, decode};
use crate::sql::{Statements, get, int};

/// How often the removal of locked messages is attempted.
const TAKE_OUT_TRIES: usize = 10;
/// How long a purge waits for locked messages without making progress. What is locked for longer counts as
/// held.
const PURGE_LOCK_WAIT: Duration = Duration::from_secs(1);
/// The pause before locked messages are tried again. A lock is held for about the duration of a call.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(10);

/// The outcomes of messages that should be removed.
#[derive(Default)]
struct RemovalOutcomes {
    gone: HashSet<Uuid>,
    held: HashSet<Uuid>,
    busy: HashSet<Uuid>,
}

pub(crate) fn uuid(id: &MessageId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

fn browsed(row: &PgRow) -> Result<Browsed> {
    let id = get::<Uuid>(row, 0)?;
    let is_hidden = get::<Option<bool>>(row, 2)?.unwrap_or(false);
    let state = match get::<i16>(row, 1)? {
        1 if is_hidden => MessageState::Leased,
        2 if is_hidden => MessageState::Delayed,
        4 => MessageState::Disabled,
        _ => MessageState::Ready,
    };
    let deliveries = u32::try_from(get::<i32>(row, 3)?).unwrap_or(0);
    let due_in = match state {
        MessageState::Delayed | MessageState::Disabled => due_in(row, 7)?,
        _ => None,
    };
    let (message, unreadable) = decode(row, id, 5)?;
    let browsed = Browsed::new(message, state).with_delivery_count(deliveries).with_age(age(row, 4)?);
    Ok(browsed.with_due_in(due_in).with_unreadable(unreadable))
}

/// How long until the moment that a message waits for; `None` if there is none, or it has passed.
fn due_in(row: &PgRow, column: usize) -> Result<Option<Duration>> {
    if get::<Option<PgInterval>>(row, column)?.is_none() {
        return Ok(None);
    }
    Ok(Some(age(row, column)?).filter(|due_in| !due_in.is_zero()))
}

impl PostgresQueue {
    async fn take_out(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        removal: &Removal<'_>,
    ) -> Result<RemovalOutcomes> {
        let mut ids: Vec<_> = ids.iter().map(uuid).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut outcomes = RemovalOutcomes::default();
        for _ in 0..TAKE_OUT_TRIES {
            let query = removal.query(&self.inner.statements, partition, &ids);
            let rows = self.fetch(query, Operation::Inspect).await?;
            let Some(row) = rows.first() else { break };
            self.hint_advanced(partition, get(row, 3)?);
            let list = |column| Ok(get::<Option<Vec<Uuid>>>(row, column)?.unwrap_or_default());
            outcomes.gone.extend(list(0)?);
            outcomes.held.extend(list(1)?);
            ids = list(2)?;
            outcomes.busy = ids.iter().copied().collect();
            if ids.is_empty() {
                break;
            }
            ids.sort_unstable();
            tokio::time::sleep(RETRY_AFTER).await;
        }
        Ok(outcomes)
    }

    /// Wakes pulls after groups have advanced, possibly at positions that pulls have passed already.
    fn hint_advanced(&self, partition: &PartitionId, advanced: i32) {
        let advanced = usize::try_from(advanced).unwrap_or(0);
        if advanced > 0 {
            self.inner.scan_starts.forget(partition);
            self.send_hint(partition, Hint::ready(advanced));
        }
    }

    /// Removes messages, and returns the outcome for each id.
    async fn take_out_each<T: Clone>(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        removal: &Removal<'_>,
        [gone, held, missing]: [T; 3],
    ) -> Vec<Result<T>> {
        match self.take_out(partition, ids, removal).await {
            Ok(mut outcomes) => {
                let outcome = |id: &MessageId| match uuid(id) {
                    id if outcomes.gone.remove(&id) => gone.clone(), // missing if it is asked for twice
                    // A message that was locked all the time counts as held.
                    id if outcomes.held.contains(&id) || outcomes.busy.contains(&id) => held.clone(),
                    _ => missing.clone(),
                };
                ids.iter().map(outcome).map(Ok).collect()
            }
            Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Requests cancellation, and stores the given ends of the messages that are removed.
    pub(crate) async fn cancel_each(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        ends: &HashMap<Uuid, &EncodedEnd<'_>>,
    ) -> Vec<Result<CancelOutcome>> {
        let outcomes = [CancelOutcome::Removed, CancelOutcome::Requested, CancelOutcome::NotFound];
        self.take_out_each(partition, ids, &Removal::Cancel(ends), outcomes).await
    }
}

/// How messages are removed.
enum Removal<'a> {
    Delete,
    /// Holders learn of the request. For messages that are removed, these ends are stored.
    Cancel(&'a HashMap<Uuid, &'a EncodedEnd<'a>>),
}

impl<'a> Removal<'a> {
    fn query(
        &self,
        statements: &Statements,
        partition: &PartitionId,
        ids: &[Uuid],
    ) -> Query<'a, Postgres, PgArguments> {
        let columns = match self {
            Self::Cancel(ends) => {
                let owners = (1..).zip(ids).filter_map(|(number, id)| Some((number, *ends.get(id)?)));
                EndColumns::of(owners)
            }
            Self::Delete => EndColumns::default(),
        };
        if columns.is_empty() {
            let query = statements.take_out.query().bind(partition.name().to_owned());
            let query = query.bind(partition.is_dead_letters()).bind(ids.to_vec());
            return query.bind(matches!(self, Self::Cancel(_)));
        }
        let query = statements.cancel.query_of(columns.bytes()).bind(partition.name().to_owned());
        columns.bind(query.bind(ids.to_vec()))
    }
}

#[async_trait]
impl InspectQueueStorage for PostgresQueue {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        let after = after.map_or("", PartitionId::name).to_owned();
        let query = self.inner.statements.partitions.query().bind(after).bind(i64::from(int(limit)));
        let rows = self.fetch(query, Operation::Inspect).await?;
        rows.iter().map(|row| PartitionId::new(get(row, 0)?)).collect()
    }

    /// Reads one index entry per message: about 100 ms for a million.
    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        let query = self.inner.statements.counts.query();
        let query = query.bind(partition.name().to_owned()).bind(partition.is_dead_letters());
        let rows = self.fetch(query, Operation::Inspect).await?;
        let Some(row) = rows.first() else { return Ok(Counts::known(0, 0, 0, 0)) };
        let count = |column| get::<i64>(row, column).map(|count| u64::try_from(count).unwrap_or(0));
        let counts = Counts::known(count(0)? + count(3)?, count(1)?, count(2)?, count(4)?);
        Ok(counts.with_disabled(count(5)?))
    }

    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let statements = &self.inner.statements;
        let text = if partition.is_dead_letters() { &statements.browse_dead } else { &statements.browse };
        let query = text.query().bind(partition.name().to_owned());
        let query = query.bind(after.as_ref().map_or_else(Uuid::nil, uuid)).bind(i64::from(int(limit)));
        self.fetch(query, Operation::Inspect).await?.iter().map(browsed).collect()
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        let outcomes = [DeleteOutcome::Deleted, DeleteOutcome::Leased, DeleteOutcome::NotFound];
        self.take_out_each(partition, ids, &Removal::Delete, outcomes).await
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        let (mut purged, mut progress) = (0, Instant::now());
        loop {
            let query = self.inner.statements.purge.query().bind(partition.name().to_owned());
            let query = query.bind(partition.is_dead_letters()).bind(int(limit.saturating_sub(purged)));
            let rows = self.fetch(query, Operation::Inspect).await?;
            let Some(row) = rows.first() else { return Ok(purged) };
            let now_purged = usize::try_from(get::<i32>(row, 0)?).unwrap_or(0);
            purged += now_purged;
            self.hint_advanced(partition, get(row, 2)?);
            if purged >= limit || !get::<bool>(row, 1)? {
                return Ok(purged);
            }
            if now_purged > 0 {
                progress = Instant::now();
            } else if progress.elapsed() >= PURGE_LOCK_WAIT {
                return Ok(purged);
            } else {
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        self.cancel_each(partition, ids, &HashMap::new()).await
    }
}

#[async_trait]
impl PauseQueueStorage for PostgresQueue {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        let query = self.inner.statements.set_paused.query();
        let query = query.bind(partition.name().to_owned()).bind(partition.is_dead_letters()).bind(paused);
        self.fetch(query, Operation::Pause).await?;
        if !paused {
            self.send_hint(partition, Hint::ready(usize::MAX));
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
