//! Storing messages within a transaction of the application's own.

use std::time::SystemTime;

use anyqueue::{
    Error, MAX_KEY_BYTES, MessageData, Operation, PartitionId, PushOutcome, RESERVED_HEADER_PREFIX, Result,
};
use sqlx::{Connection, PgConnection};

use crate::PostgresQueue;
use crate::error::{NAME, classify, closed, invalid};
use crate::push::Batch;
use crate::teller::Teller;
use crate::wake::Hint;

impl PostgresQueue {
    /// Stores messages within the caller's own transaction in the same database: they can be pulled once it is committed, and
    /// are gone with it if it is rolled back.
    ///
    /// A connection without a transaction stores at once. `outcomes` has one answer per message, in order; a bad message
    /// harms no other. After the commit, tell [`after_commit`](PushedIn::after_commit): it wakes waiting pulls, here and in
    /// other processes. Without it they find the messages by polling. Until the transaction ends, settlements in the
    /// same groups and pushes with the same keys wait for it: keep it short.
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
    /// If the statement failed; nothing was stored, and unless the connection broke, the caller's transaction can go on.
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
        let now = SystemTime::now();
        let normalised: Vec<_> = messages.iter().map(|message| message.clone().normalised(now)).collect();
        let checked = normalised.iter().map(|message| check(message).map(|()| message));
        let batch = Batch::prepare(checked, self.inner.config.message_bytes);
        let mut rows = Vec::new();
        if !batch.is_empty() {
            let query = batch.query(&self.inner.statements, partition).persistent(self.inner.config.prepared);
            // A transaction, or a savepoint in the caller's: whole or not at all.
            let mut tx = conn.begin().await.map_err(|error| stamp(classify(error)))?;
            rows = query.fetch_all(&mut *tx).await.map_err(|error| stamp(classify(error)))?;
            tx.commit().await.map_err(|error| stamp(classify(error)))?;
        }
        let (outcomes, hint) = batch.answers(&rows).map_err(stamp)?;
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map_err(stamp)).collect();
        let after_commit =
            AfterCommit { teller: self.inner.teller.clone(), partition: partition.clone(), hint };
        Ok(PushedIn { outcomes, after_commit })
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
