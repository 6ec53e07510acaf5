//! A second implementation of [`insert::store_all`](crate::insert::store_all), on sqlx, for the caller's
//! transaction.
//!
//! It runs the same statements in the same order. A test pushes the same messages in both ways and compares
//! the tables.

use anyqueue::{Clock, Error, ErrorKind, MessageId, PartitionId, PushOutcome, Result};
use sqlx::{Row, SqliteConnection};

use crate::error::{ERRORS, by_code};
use crate::insert::IS_DEAD;
use crate::new_message::NewMessage;
use crate::now::Now;
use crate::often::{INSERT, READY};
use crate::place::{BLOCK, START_GROUP, TIME};
use crate::record::{REPLACE, STORED, Stored};
use crate::taken::{Change, FREE_KEY, HASTEN, HASTEN_DISABLED, HOLDER, Holder, KNOWN};
use crate::tx::{DELAYED, FIND_PARTITION, Hints, MAKE_DEAD, MAKE_PARTITION, STORE_COUNTER};

/// Pushes to one partition within the caller's transaction.
pub(crate) struct PushTx<'c> {
    conn: &'c mut SqliteConnection,
    partition: &'c PartitionId,
    part: i64,
    now: Now,
    next: i64,
    urgent_ms: Option<i64>,
    hints: Hints,
}

impl<'c> PushTx<'c> {
    /// Begins pushing. An update that changes nothing takes the write lock before anything is read.
    pub(crate) async fn join(
        conn: &'c mut SqliteConnection,
        partition: &'c PartitionId,
        clock: &Clock,
    ) -> Result<Self> {
        let lock = sqlx::query_as("UPDATE anyqueue_counter SET next = next RETURNING next, urgent_ms");
        let (next, urgent_ms) = lock.fetch_one(&mut *conn).await.map_err(classify)?;
        let now = Now::of(clock);
        let key = (partition.is_dead_letters(), partition.name());
        sqlx::query(MAKE_PARTITION).bind(key.1).execute(&mut *conn).await.map_err(classify)?;
        if key.0 {
            sqlx::query(MAKE_DEAD).bind(key.1).execute(&mut *conn).await.map_err(classify)?;
        }
        let find = sqlx::query(FIND_PARTITION).bind(key.0).bind(key.1);
        let part = find.fetch_one(&mut *conn).await.and_then(|row| row.try_get(0)).map_err(classify)?;
        Ok(Self { conn, partition, part, now, next, urgent_ms, hints: Hints::default() })
    }

    /// Stores a message. Messages that are due in the partition are left to the next pull.
    pub(crate) async fn store(&mut self, message: &NewMessage) -> Result<PushOutcome> {
        let live = !self.partition.is_dead_letters();
        let (group, key) =
            (message.group.as_deref().filter(|_| live), message.dedup.as_deref().filter(|_| live));
        let (seq, part, rank, id) = (self.next, self.part, message.rank, &message.id.as_bytes()[..]);
        let is_dead = sqlx::query(IS_DEAD).bind(part).bind(id).fetch_optional(&mut *self.conn);
        if is_dead.await.map_err(classify)?.is_some() {
            return Ok(PushOutcome::Duplicate(Some(message.id)));
        }
        self.next += 1;
        if !self.insert(seq, message, key).await? {
            if let Some(outcome) = self.meet(message, key).await? {
                return Ok(outcome);
            }
            self.insert(seq, message, key).await?;
        }
        self.urgent_ms = [self.urgent_ms, message.urgent_ms(self.now)].into_iter().flatten().min();
        if !message.delay.is_zero() {
            let at_ms = self.now.after(message.delay);
            let time = sqlx::query(TIME).bind(seq).bind(part).bind(at_ms).bind(DELAYED);
            self.run(time.bind(0).bind(false).bind(false)).await?;
            self.hints.due(self.partition, at_ms);
        } else if let Some(group) = group
            && self.run(sqlx::query(START_GROUP).bind(part).bind(group)).await? == 0
        {
            self.run(
                sqlx::query(BLOCK).bind(part).bind(group).bind(seq).bind(seq).bind(0).bind(false).bind(false),
            )
            .await?;
        } else {
            let ready = sqlx::query(READY).bind(part).bind(rank).bind(seq).bind(seq);
            self.run(ready.bind(0).bind(false).bind(group.is_some())).await?;
            self.hints.ready(self.partition);
        }
        Ok(PushOutcome::Stored(message.id))
    }

    async fn insert(&mut self, seq: i64, message: &NewMessage, key: Option<&str>) -> Result<bool> {
        let insert = sqlx::query(INSERT).bind(seq).bind(self.part).bind(message.rank);
        let insert = insert.bind(&message.id.as_bytes()[..]).bind(message.group.as_deref());
        let insert = insert.bind(key).bind(message.body.as_slice()).bind(message.urgent_ms(self.now));
        Ok(self.run(insert).await? == 1)
    }

    /// Does the same as [`taken::meet`](crate::taken::meet).
    async fn meet(&mut self, newer: &NewMessage, key: Option<&str>) -> Result<Option<PushOutcome>> {
        let known = sqlx::query_scalar(KNOWN).bind(&newer.id.as_bytes()[..]).bind(self.part).bind(key);
        let known: Option<Vec<u8>> = known.fetch_optional(&mut *self.conn).await.map_err(classify)?;
        let known = known.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(MessageId::from_bytes);
        match known {
            Some(holder) if newer.may_change(holder) => self.change(newer, key, holder).await,
            _ => Ok(Some(PushOutcome::Duplicate(known))),
        }
    }

    async fn change(
        &mut self,
        newer: &NewMessage,
        key: Option<&str>,
        id: MessageId,
    ) -> Result<Option<PushOutcome>> {
        let kept = Ok(Some(PushOutcome::Duplicate(Some(id))));
        let holder = sqlx::query_as(HOLDER).bind(self.part).bind(key);
        let holder = holder.fetch_optional(&mut *self.conn).await.map_err(classify)?;
        let Some((seq, state, at_ms, is_disabled)) = holder else { return kept };
        let holder = Holder { seq, state, at_ms, is_disabled };
        let at_ms = match holder.change(newer, self.now) {
            Change::Nothing => return kept,
            Change::Key => return self.run(sqlx::query(FREE_KEY).bind(seq)).await.map(|_| None),
            Change::Content { at_ms } => at_ms,
        };
        let Some(body) = self.stored(seq).await?.with_content(&newer.message)? else { return kept };
        self.run(sqlx::query(REPLACE).bind(body).bind(None::<&[u8]>).bind(seq)).await?;
        if let Some(at_ms) = at_ms.filter(|_| holder.is_disabled) {
            let to_come = Some(at_ms).filter(|at_ms| *at_ms > self.now.ms);
            self.run(sqlx::query(HASTEN_DISABLED).bind(to_come).bind(self.part).bind(seq)).await?;
        } else if let Some(at_ms) = at_ms {
            self.run(sqlx::query(HASTEN).bind(at_ms).bind(seq)).await?;
            self.hints.due(self.partition, at_ms);
        }
        Ok(Some(PushOutcome::Replaced(id)))
    }

    async fn stored(&mut self, seq: i64) -> Result<Stored> {
        let stored = sqlx::query_as(STORED).bind(seq).fetch_one(&mut *self.conn);
        let (seq, id, body, headers): (i64, Vec<u8>, Vec<u8>, Option<Vec<u8>>) =
            stored.await.map_err(classify)?;
        Ok(Stored::new(seq, &id, body.into(), headers.map(Into::into)))
    }

    /// Writes what is left to be written. The commit is the caller's.
    pub(crate) async fn leave(mut self) -> Result<Hints> {
        let (next, urgent_ms) = (self.next, self.urgent_ms);
        self.run(sqlx::query(STORE_COUNTER).bind(next).bind(urgent_ms)).await?;
        Ok(self.hints)
    }

    async fn run(
        &mut self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<u64> {
        let done = query.execute(&mut *self.conn).await.map_err(classify)?;
        Ok(done.rows_affected())
    }
}

/// Classifies errors like [`error::classify`](crate::error::classify), but those of sqlx.
pub(crate) fn classify(error: sqlx::Error) -> Error {
    let (kind, message) = match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().and_then(|code| code.parse().ok()).unwrap_or(0);
            by_code(code, database.message())
        }
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => {
            (ErrorKind::Unavailable, "the connection to the file broke off")
        }
        _ => (ErrorKind::Internal, "sqlx refused a statement"),
    };
    ERRORS.error(kind, message).with_source(error)
}
