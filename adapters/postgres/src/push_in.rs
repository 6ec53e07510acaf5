//! Storing messages in a transaction of the application.

use std::sync::PoisonError;

use anyqueue::adapter::Hint;
use anyqueue::{
    Error, MAX_KEY_BYTES, MessageData, OnDuplicate, Operation, PartitionId, PushOutcome,
    RESERVED_HEADER_PREFIX, Result,
};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

use crate::PostgresQueue;
use crate::batch::Batch;
use crate::error::{ERRORS, NAME, classify};
use crate::hint_sender::HintSender;

/// How many partitions are remembered to exist; pushes into others ask again.
const MAX_REMEMBERED: usize = 10_000;

impl PostgresQueue {
    /// Stores messages in the caller's transaction in the same database: they can be pulled once it is
    /// committed, and are gone if it is rolled back.
    ///
    /// On a connection without a transaction they are stored at once. `outcomes` has one result per message,
    /// in order; an invalid message does not affect the others. After the commit, call
    /// [`after_commit.notify()`](AfterCommit::notify), which wakes waiting pulls in this and other processes.
    /// Without it they find the messages by polling.
    ///
    /// Until the transaction ends, pushes with the same deduplication keys or ids wait for it, with
    /// everything that shares a call with them; nothing else waits. The messages join their groups at the
    /// commit. A message that is replaced is not delivered before the transaction ends. If a message is
    /// stored behind one that is held, the settlement of that one waits too. Behind a proxy that assigns
    /// connections per transaction, `conn` must be in a transaction.
    ///
    /// The transaction can have any isolation level. Above `READ COMMITTED` the server refuses a message that
    /// conflicts with what others have committed since the transaction began, as it refuses any such change:
    /// the error is `Unavailable`, and the transaction must be repeated. A new partition is created
    /// beforehand, on a connection of the handle, and stays even if the transaction is rolled back.
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
    /// If the statement failed. Nothing was stored then and, unless the connection broke, the caller's
    /// transaction can continue. (If it was begun by a `BEGIN` that sqlx does not know about, it has failed
    /// too, as after any other error.) `Incompatible` if the connection is to a database without this queue's
    /// schema.
    pub async fn push_in(
        &self,
        conn: &mut PgConnection,
        partition: &PartitionId,
        messages: &[MessageData],
    ) -> Result<PushedIn> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Push);
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Push));
        }
        let now = self.inner.config.clock.wall();
        let normalised: Vec<_> = messages.iter().map(|message| message.clone().normalised(now)).collect();
        let checked = normalised.iter().map(|message| check(message).map(|()| message));
        let batch = Batch::prepare(checked, &self.inner.config);
        let mut rows = Vec::new();
        if !batch.is_empty() {
            self.create_partition(partition).await?;
            rows = self.store_in(conn, &batch, partition).await.map_err(|error| stamp(classify(error)))?;
        }
        let (outcomes, hint) = batch.answers(&rows).map_err(stamp)?;
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map_err(stamp)).collect();
        let after_commit =
            AfterCommit { hint_sender: self.inner.hint_sender.clone(), partition: partition.clone(), hint };
        Ok(PushedIn { outcomes, after_commit })
    }

    /// Creates a new partition in a separate transaction. In the caller's, everyone else who uses it would
    /// have to wait.
    async fn create_partition(&self, partition: &PartitionId) -> Result<()> {
        let known_partitions = || self.inner.known_partitions.lock().unwrap_or_else(PoisonError::into_inner);
        if known_partitions().contains(partition) {
            return Ok(());
        }
        let query = self.inner.statements.part_for.query();
        let query = query.bind(partition.name().to_owned()).bind(partition.is_dead_letters());
        self.fetch(query, Operation::Push).await.map_err(Error::repeatable)?;
        let mut known_partitions = known_partitions();
        if known_partitions.len() >= MAX_REMEMBERED {
            known_partitions.clear();
        }
        known_partitions.insert(partition.clone());
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
            // Without a transaction that sqlx knows of, this is a single statement. The caller may still have
            // begun one, which must not be committed here.
            return query.fetch_all(conn).await;
        }
        let mut savepoint = conn.begin().await?;
        let rows = query.fetch_all(&mut *savepoint).await?;
        savepoint.commit().await?;
        Ok(rows)
    }
}

/// The result of [`PostgresQueue::push_in`].
#[derive(Debug)]
#[must_use = "the outcomes may hold errors, and after_commit wakes waiting pulls"]
pub struct PushedIn {
    /// One result per message, in order; valid once the transaction is committed.
    pub outcomes: Vec<Result<PushOutcome>>,
    /// To be notified after the commit.
    pub after_commit: AfterCommit,
}

/// Wakes pulls that wait for what was pushed in a transaction.
#[derive(Debug)]
#[must_use = "call notify() after the commit"]
pub struct AfterCommit {
    hint_sender: HintSender,
    partition: PartitionId,
    hint: Hint,
}

impl AfterCommit {
    /// Wakes the pulls. Call this after the commit; without a commit it is harmless. It does not block: a
    /// task of the handle sends the notification.
    pub fn notify(self) {
        self.hint_sender.send(&self.partition, self.hint);
    }
}

/// Makes the checks that core makes before a storage gets a message, since this push bypasses core.
fn check(message: &MessageData) -> Result<()> {
    let options = message.options();
    let keys =
        [message.task_id(), message.session_id(), options.group.as_deref(), options.dedup_key.as_deref()];
    if keys.into_iter().flatten().any(|key| key.len() > MAX_KEY_BYTES) {
        return Err(ERRORS.invalid(format!(
            "task id, session id, group and dedup key must be at most {MAX_KEY_BYTES} bytes"
        )));
    }
    if options.on_duplicate != OnDuplicate::Keep && options.dedup_key.is_none() {
        let text = "on_duplicate says what to do with a taken deduplication key: give the key too";
        return Err(ERRORS.invalid(text));
    }
    if message.headers().keys().any(|name| name.starts_with(RESERVED_HEADER_PREFIX)) {
        return Err(
            ERRORS.invalid(format!("header names that begin with {RESERVED_HEADER_PREFIX} are reserved"))
        );
    }
    Ok(())
}
