//! Storing messages within a transaction of the application's own.

use std::sync::PoisonError;

use anyqueue::{
    Error, MAX_KEY_BYTES, MessageData, Operation, PartitionId, PushOutcome, RESERVED_HEADER_PREFIX, Result,
};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

use crate::PostgresQueue;
use crate::batch::Batch;
use crate::error::{NAME, classify, closed, invalid, repeatable};
use crate::teller::Teller;
use crate::waiters::Hint;

/// More partitions than this are not remembered to be there: pushes into them ask again.
const MAX_REMEMBERED: usize = 10_000;

impl PostgresQueue {
    /// Stores messages within the caller's own transaction in the same database: they can be pulled once it is committed, and
    /// are gone with it if it is rolled back.
    ///
    /// A connection without a transaction stores at once. `outcomes` has one answer per message, in order; a bad message
    /// harms no other. After the commit, tell [`after_commit`](PushedIn::after_commit): it wakes waiting pulls, here and in
    /// other processes. Without it they find the messages by polling. Until the transaction ends, pushes with the same
    /// deduplication keys or ids wait for it, and what shares a call with them; nothing else does. Groups are joined after the
    /// commit. Behind a proxy that hands out connections per transaction, `conn` must be in one.
    ///
    /// A transaction of any isolation level will do. Above `READ COMMITTED` the server refuses a message that collides with what
    /// others committed since the transaction began, as it does any such change: with `Unavailable`, and the transaction is to be
    /// repeated. A partition that nobody has used yet is made beforehand, on a connection of the handle, and stays if the
    /// transaction is rolled back.
    ///
    /// ```no_run
    /// # async fn order(queue: anyqueue_postgres::PostgresQueue, mut conn: sqlx::PgConnection) -> Result<(), Box<dyn std::error::Error>> {
    /// use anyqueue::{MessageData, PartitionId};
    /// use sqlx::Connection;
    /// let mail = PartitionId::new("mail")?;
    /// let mut tx = conn.begin().await?;
    /// sqlx::query("INSERT INTO orders VALUES ('tea')").execute(&mut *tx).await?;
    /// let pushed = queue.push_in(&mut tx, &mail, &[MessageData::new("tea is on its way")]).await?;
    /// tx.commit().await?;
    /// pushed.after_commit.notify();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the statement failed; nothing was stored, and unless the connection broke, the caller's transaction can go on. (One that was
    /// begun behind sqlx's back, by a `BEGIN` of one's own, has failed with it, as by any other error.)
    /// `Incompatible` if the connection is to a database without this queue's schema.
    pub async fn push_in(
        &self,
        conn: &mut PgConnection,
        partition: &PartitionId,
        messages: &[MessageData],
    ) -> Result<PushedIn> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Push);
        if self.is_closed() {
            return Err(closed(Operation::Push));
        }
        let now = self.inner.config.clock.wall();
        let normalised: Vec<_> = messages.iter().map(|message| message.clone().normalised(now)).collect();
        let checked = normalised.iter().map(|message| check(message).map(|()| message));
        let batch = Batch::prepare(checked, &self.inner.config);
        let mut rows = Vec::new();
        if !batch.is_empty() {
            self.make(partition).await?;
            rows = self.store_in(conn, &batch, partition).await.map_err(|error| stamp(classify(error)))?;
        }
        let (outcomes, hint) = batch.answers(&rows).map_err(stamp)?;
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map_err(stamp)).collect();
        let after_commit =
            AfterCommit { teller: self.inner.teller.clone(), partition: partition.clone(), hint };
        Ok(PushedIn { outcomes, after_commit })
    }

    /// Makes a new partition in a transaction of its own: until the caller's ends, everybody else who uses it would wait.
    async fn make(&self, partition: &PartitionId) -> Result<()> {
        let made = || self.inner.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made().contains(partition) {
            return Ok(());
        }
        let query = self.inner.statements.part_for.query();
        let query = query.bind(partition.name().to_owned()).bind(partition.is_dead_letters());
        self.fetch(query, Operation::Push).await.map_err(repeatable)?;
        let mut made = made();
        if made.len() >= MAX_REMEMBERED {
            made.clear();
        }
        made.insert(partition.clone());
        Ok(())
    }

    async fn store_in(
        &self,
        conn: &mut PgConnection,
        batch: &Batch,
        partition: &PartitionId,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = batch.query_in(&self.inner.statements, partition).persistent(self.inner.config.prepared);
        if !conn.is_in_transaction() {
            // No transaction of our own: it is one statement, and what sqlx knows nothing of may be under way all the same. Its
            // commit is not ours to make.
            return query.fetch_all(conn).await;
        }
        let mut savepoint = conn.begin().await?;
        let rows = query.fetch_all(&mut *savepoint).await?;
        savepoint.commit().await?;
        Ok(rows)
    }
}

/// What [`PostgresQueue::push_in`] answers.
#[derive(Debug)]
#[must_use = "the outcomes may hold errors, and after_commit wakes waiting pulls"]
pub struct PushedIn {
    /// One answer per message, in order; true once the transaction is committed.
    pub outcomes: Vec<Result<PushOutcome>>,
    /// To be told after the commit.
    pub after_commit: AfterCommit,
}

/// Wakes pulls that wait for what was pushed in a transaction.
#[derive(Debug)]
#[must_use = "call notify() after the commit"]
pub struct AfterCommit {
    teller: Teller,
    partition: PartitionId,
    hint: Hint,
}

impl AfterCommit {
    /// Call this when the transaction is committed. Harmless otherwise. Sends nothing itself: a task of the handle does.
    pub fn notify(self) {
        self.teller.tell(&self.partition, self.hint);
    }
}

/// What core checks of a message before a storage sees it, for the push that does not pass through core.
fn check(message: &MessageData) -> Result<()> {
    let options = message.options();
    let keys =
        [message.task_id(), message.session_id(), options.group.as_deref(), options.dedup_key.as_deref()];
    if keys.into_iter().flatten().any(|key| key.len() > MAX_KEY_BYTES) {
        return Err(invalid(format!(
            "task id, session id, group and dedup key are at most {MAX_KEY_BYTES} bytes"
        )));
    }
    if message.headers().keys().any(|name| name.starts_with(RESERVED_HEADER_PREFIX)) {
        return Err(invalid(format!("header names that begin with {RESERVED_HEADER_PREFIX} are reserved")));
    }
    Ok(())
}
