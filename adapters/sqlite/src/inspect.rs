//! Inspecting the file, on connections that only read.

use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage, PauseQueueStorage, async_trait};
use anyqueue::{
    Browsed, CancelOutcome, Clock, Counts, DeleteOutcome, ErrorKind, MessageId, MessageState, Operation,
    Page, PartitionId, Result,
};
use rusqlite::{Connection, Row};

use crate::SqliteQueue;
use crate::admin::{Admin, AdminAnswer};
use crate::error::ERRORS;
use crate::job::{Answer, Work};
use crate::now::Now;
use crate::record::{Read, Stored};
use crate::sql::{all, first, limit_of};
use crate::tx::{FRONT, LEASED};

pub(crate) const PARTITIONS: &str =
    "SELECT name FROM anyqueue_partition p WHERE dead = 0 AND name > ? AND (paused = 1
        OR EXISTS (SELECT 1 FROM anyqueue_message WHERE part = p.part)
        OR EXISTS (SELECT 1 FROM anyqueue_message WHERE part = -p.part)
        OR EXISTS (SELECT 1 FROM anyqueue_partition WHERE part = -p.part AND paused = 1))
    ORDER BY name LIMIT ? + 0";

pub(crate) const COUNTS: &str = "SELECT
    (SELECT count(*) FROM anyqueue_ready WHERE part = p.part)
        + (SELECT count(*) FROM anyqueue_blocked WHERE part = p.part)
        + (SELECT count(*) FROM anyqueue_timed WHERE part = p.part AND at_ms <= ?3),
    (SELECT count(*) FROM anyqueue_timed WHERE part = p.part AND at_ms > ?3 AND state <> 1),
    (SELECT count(*) FROM anyqueue_timed WHERE part = p.part AND at_ms > ?3 AND state = 1),
    (SELECT count(*) FROM anyqueue_disabled WHERE part = p.part)
    FROM anyqueue_partition p WHERE dead = ?1 AND name = ?2";

pub(crate) const DEAD: &str = "SELECT count(*) FROM anyqueue_message
    WHERE part = (SELECT part FROM anyqueue_partition WHERE dead = 1 AND name = ?)";

pub(crate) const BROWSE: &str = "SELECT m.seq, m.id, m.body, m.headers, d.seq IS NOT NULL, t.state,
    coalesce(t.at_ms, d.at_ms), coalesce(t.deliveries, d.deliveries, b.deliveries,
        (SELECT deliveries FROM anyqueue_ready WHERE part = m.part AND rank = m.rank AND pos IN (m.pos, m.pos - ?5)))
    FROM anyqueue_message m LEFT JOIN anyqueue_timed t ON t.seq = m.seq
    LEFT JOIN anyqueue_blocked b ON b.part = m.part AND b.grp = m.grp AND b.joined = m.joined
    LEFT JOIN anyqueue_disabled d ON d.part = m.part AND d.seq = m.seq
    WHERE m.part = (SELECT part FROM anyqueue_partition WHERE dead = ?1 AND name = ?2) AND m.id > ?3
    ORDER BY m.id LIMIT ?4 + 0";

pub(crate) const PAUSED: &str = "SELECT paused FROM anyqueue_partition WHERE dead = ? AND name = ?";

fn count(conn: &Connection, partition: &PartitionId, now: Now) -> Result<Counts> {
    let key = (partition.is_dead_letters(), partition.name(), now.ms);
    let found =
        first(conn, COUNTS, key, |row| Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))?;
    let [ready, delayed, leased, disabled] = found.unwrap_or_default().map(i64::unsigned_abs);
    let dead = first(conn, DEAD, [partition.name()], |row| row.get::<_, i64>(0))?.unwrap_or_default();
    Ok(Counts::known(ready, delayed, leased, dead.unsigned_abs()).with_disabled(disabled))
}

/// One row of a page.
struct Line {
    stored: Stored,
    is_disabled: bool,
    state: Option<i64>,
    at_ms: Option<i64>,
    deliveries: Option<i64>,
}

impl Line {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (is_disabled, state) = (row.get(4)?, row.get(5)?);
        let (at_ms, deliveries) = (row.get(6)?, row.get(7)?);
        Ok(Self { stored: Stored::of(row, 0)?, is_disabled, state, at_ms, deliveries })
    }

    fn browsed(&self, now: Now, clock: &Clock) -> Browsed {
        let Read { message, age, unreadable } = self.stored.read(clock);
        let to_come = self.at_ms.filter(|at_ms| *at_ms > now.ms);
        let state = match self.state {
            _ if self.is_disabled => MessageState::Disabled,
            Some(LEASED) if to_come.is_some() => MessageState::Leased,
            Some(_) if to_come.is_some() => MessageState::Delayed,
            _ => MessageState::Ready,
        };
        let left = to_come.map(|at| Duration::from_millis(u64::try_from(at - now.ms).unwrap_or(0)));
        let due_in = left.filter(|_| state != MessageState::Leased);
        Browsed::new(message, state)
            .with_due_in(due_in)
            .with_delivery_count(u32::try_from(self.deliveries.unwrap_or(0)).unwrap_or(u32::MAX))
            .with_age(age)
            .with_unreadable(unreadable)
    }
}

impl SqliteQueue {
    pub(crate) async fn admin(&self, request: Admin, operation: Operation) -> Result<AdminAnswer> {
        match self.ask(Work::Admin(request), operation).await? {
            Answer::Admin(answer) => Ok(answer),
            _ => Err(ERRORS
                .error(ErrorKind::Internal, "the writer answered another request")
                .with_operation(operation)),
        }
    }
}

#[async_trait]
impl InspectQueueStorage for SqliteQueue {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        let after = after.map_or("", PartitionId::name).to_owned();
        let read = move |conn: &Connection| {
            let names: Vec<String> = all(conn, PARTITIONS, (after, limit_of(limit)), |row| row.get(0))?;
            names.iter().map(|name| PartitionId::new(name)).collect()
        };
        self.read(Operation::Inspect, read).await
    }

    /// Reads one small index entry per message: about 20 ms for a million.
    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        let now = Now::of(&self.inner.config.clock);
        let partition = partition.clone();
        self.read(Operation::Inspect, move |conn| count(conn, &partition, now)).await
    }

    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let clock = self.inner.config.clock.clone();
        let partition = partition.clone();
        let read = move |conn: &Connection| {
            let after = after.as_ref().map_or(&[][..], |id| id.as_bytes());
            let key = (partition.is_dead_letters(), partition.name(), after, limit_of(limit), FRONT);
            let lines = all(conn, BROWSE, key, Line::read)?;
            Ok(lines.iter().map(|line| line.browsed(Now::of(&clock), &clock)).collect())
        };
        self.read(Operation::Inspect, read).await
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        let request = Admin::Delete { partition: partition.clone(), ids: ids.to_vec() };
        match self.admin(request, Operation::Inspect).await {
            Ok(AdminAnswer::Deleted(outcomes)) => outcomes.into_iter().map(Ok).collect(),
            Ok(_) => vec![Ok(DeleteOutcome::NotFound); ids.len()],
            Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        match self.admin(Admin::Purge { partition: partition.clone(), limit }, Operation::Inspect).await? {
            AdminAnswer::Purged(count) => Ok(count),
            _ => Ok(0),
        }
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        let tasks = ids.iter().map(|id| (*id, None)).collect();
        let request = Admin::Cancel { partition: partition.clone(), tasks };
        match self.admin(request, Operation::Inspect).await {
            Ok(AdminAnswer::Cancelled(outcomes)) => outcomes.into_iter().map(Ok).collect(),
            Ok(_) => vec![Ok(CancelOutcome::NotFound); ids.len()],
            Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

#[async_trait]
impl PauseQueueStorage for SqliteQueue {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        self.admin(Admin::Pause { partition: partition.clone(), paused }, Operation::Pause).await.map(drop)
    }

    async fn is_paused(&self, partition: &PartitionId) -> Result<bool> {
        let partition = partition.clone();
        let read = move |conn: &Connection| {
            first(conn, PAUSED, (partition.is_dead_letters(), partition.name()), |row| row.get(0))
        };
        Ok(self.read(Operation::Pause, read).await?.unwrap_or(false))
    }
}
