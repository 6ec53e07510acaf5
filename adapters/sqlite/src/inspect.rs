//! Looking into the file, on connections that only read.

use std::time::Duration;

use anyqueue::{
    Browsed, Bytes, CancelOutcome, Clock, Counts, Decoded, DeleteOutcome, Envelope, ErrorKind,
    InspectQueueStorage, MessageData, MessageId, MessageState, Operation, PartitionId, PauseQueueStorage,
    Result, async_trait,
};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use crate::SqliteQueue;
use crate::admin::{Admin, AdminAnswer};
use crate::error::own;
use crate::sql::{get, rows, statement};
use crate::tx::{FRONT, LEASED, Now};
use crate::writer::{Answer, Work};

pub(crate) const PARTITIONS: &str =
    "SELECT name FROM anyqueue_partition WHERE dead = 0 AND used = 1 AND name > ? ORDER BY name LIMIT ? + 0";

pub(crate) const COUNTS: &str = "SELECT
    (SELECT count(*) FROM anyqueue_ready WHERE part = p.part)
        + (SELECT count(*) FROM anyqueue_blocked WHERE part = p.part)
        + (SELECT count(*) FROM anyqueue_timed WHERE part = p.part AND at_ms <= ?3),
    (SELECT count(*) FROM anyqueue_timed WHERE part = p.part AND at_ms > ?3 AND state <> 1),
    (SELECT count(*) FROM anyqueue_timed WHERE part = p.part AND at_ms > ?3 AND state = 1)
    FROM anyqueue_partition p WHERE dead = ?1 AND name = ?2";

pub(crate) const DEAD: &str = "SELECT count(*) FROM anyqueue_message
    WHERE part = (SELECT part FROM anyqueue_partition WHERE dead = 1 AND name = ?)";

pub(crate) const BROWSE: &str = "SELECT m.id, m.body, t.state, t.at_ms, t.deliveries,
    (SELECT deliveries FROM anyqueue_ready WHERE part = m.part AND rank = m.rank AND pos IN (m.pos, m.pos - ?5))
    FROM anyqueue_message m LEFT JOIN anyqueue_timed t ON t.seq = m.seq
    WHERE m.part = (SELECT part FROM anyqueue_partition WHERE dead = ?1 AND name = ?2) AND m.id > ?3
    ORDER BY m.id LIMIT ?4 + 0";

pub(crate) const PAUSED: &str = "SELECT paused FROM anyqueue_partition WHERE dead = ? AND name = ?";

/// Reads a stored message. `server_id` is for one that this library did not write.
pub(crate) fn decode(body: &Bytes, server_id: i64, now: &Clock) -> Result<(MessageData, Duration)> {
    let decoded = Envelope::decode(body)?;
    let pushed_at = match &decoded {
        Decoded::Envelope(envelope) => envelope.pushed_at,
        Decoded::Foreign(_) => None,
    };
    let age = pushed_at.and_then(|at| now.wall().duration_since(at).ok()).unwrap_or_default();
    Ok((decoded.into_message(&server_id.to_string()), age))
}

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

async fn counts(conn: &mut SqliteConnection, partition: &PartitionId, now: Now) -> Result<Counts> {
    let name = partition.name();
    let query = statement(COUNTS).bind(i64::from(partition.is_dead_letters())).bind(name).bind(now.ms);
    let count =
        |row: &SqliteRow, column| get::<i64>(row, column).map(|count| u64::try_from(count).unwrap_or(0));
    let (mut ready, mut delayed, mut leased, mut dead) = (0, 0, 0, 0);
    for row in rows(conn, query).await? {
        (ready, delayed, leased) = (count(&row, 0)?, count(&row, 1)?, count(&row, 2)?);
    }
    for row in rows(conn, statement(DEAD).bind(name)).await? {
        dead = count(&row, 0)?;
    }
    Ok(Counts::known(ready, delayed, leased, dead))
}

fn browsed(row: &SqliteRow, now: Now, clock: &Clock) -> Result<Browsed> {
    let (message, age) = decode(&Bytes::from(get::<Vec<u8>>(row, 1)?), 0, clock)?;
    let until: Option<i64> = get(row, 3)?;
    let state = match get::<Option<i64>>(row, 2)? {
        Some(LEASED) if until > Some(now.ms) => MessageState::Leased,
        Some(state) if state != LEASED && until > Some(now.ms) => MessageState::Delayed,
        _ => MessageState::Ready,
    };
    let deliveries = get::<Option<i64>>(row, 4)?.or(get(row, 5)?).unwrap_or(0);
    Ok(Browsed::new(message, state)
        .with_delivery_count(u32::try_from(deliveries).unwrap_or(u32::MAX))
        .with_age(age))
}

impl SqliteQueue {
    async fn admin(&self, request: Admin, operation: Operation) -> Result<AdminAnswer> {
        match self.ask(Work::Admin(request), operation).await? {
            Answer::Admin(answer) => Ok(answer),
            _ => {
                Err(own(ErrorKind::Internal, "the writer answered another request").with_operation(operation))
            }
        }
    }
}

#[async_trait]
impl InspectQueueStorage for SqliteQueue {
    async fn partitions(&self, after: Option<&PartitionId>, limit: usize) -> Result<Vec<PartitionId>> {
        let after = after.map_or("", PartitionId::name);
        let read = async |conn: &mut SqliteConnection| {
            let query = statement(PARTITIONS).bind(after).bind(limit_of(limit));
            let found = rows(conn, query).await?;
            found.iter().map(|row| PartitionId::new(&get::<String>(row, 0)?)).collect()
        };
        self.read(Operation::Inspect, read).await
    }

    /// Reads one small index entry per message: about 20 ms for a million.
    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        let now = Now::of(&self.inner.config.clock);
        self.read(Operation::Inspect, async |conn: &mut SqliteConnection| counts(conn, partition, now).await)
            .await
    }

    async fn browse(
        &self,
        partition: &PartitionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<Browsed>> {
        let clock = &self.inner.config.clock;
        let now = Now::of(clock);
        let after = after.map_or_else(Vec::new, |id| id.as_bytes().to_vec());
        let read = async |conn: &mut SqliteConnection| {
            let query = statement(BROWSE).bind(i64::from(partition.is_dead_letters())).bind(partition.name());
            let found = rows(conn, query.bind(after).bind(limit_of(limit)).bind(FRONT)).await?;
            found.iter().map(|row| browsed(row, now, clock)).collect()
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
        let request = Admin::Cancel { partition: partition.clone(), ids: ids.to_vec() };
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
        let read = async |conn: &mut SqliteConnection| {
            let query = statement(PAUSED).bind(i64::from(partition.is_dead_letters())).bind(partition.name());
            let found = rows(conn, query).await?;
            found.first().map_or(Ok(false), |row| get::<i64>(row, 0).map(|paused| paused == 1))
        };
        self.read(Operation::Pause, read).await
    }
}
