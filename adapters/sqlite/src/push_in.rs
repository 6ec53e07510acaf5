//! Storing messages in a transaction of the application.

use std::sync::Arc;

use anyqueue::adapter::Waiters;
use anyqueue::{
    Clock, Error, MAX_KEY_BYTES, MessageData, Operation, PartitionId, PushOutcome, RESERVED_HEADER_PREFIX,
    Result,
};
use sqlx::SqliteConnection;

use crate::SqliteQueue;
use crate::config::Config;
use crate::error::{ERRORS, NAME};
use crate::new_message::NewMessage;
use crate::push::{answers, part_good};
use crate::push_tx::{PushTx, classify};
use crate::tx::Hints;

impl SqliteQueue {
    /// Stores messages in the caller's own transaction on the same file: they can be pulled once it is
    /// committed, and are gone if it is rolled back.
    ///
    /// On a connection without a transaction they are stored at once. Keep the transaction short, because it
    /// holds the only write lock on the file. `outcomes` has one result per message, in order; an invalid
    /// message does not affect the others. After the commit, call
    /// [`after_commit.notify()`](AfterCommit::notify), which wakes waiting pulls of this handle. Without it,
    /// and in other processes, pulls find the messages by polling.
    ///
    /// ```
    /// # use anyqueue::adapter::{PullQueueStorage, PullRequest, Waiters};
    /// # use anyqueue::{Error, ErrorKind, MessageData, PartitionId};
    /// # use anyqueue_sqlite::SqliteQueue;
    /// # use std::time::Duration;
    /// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("shop.db");
    /// use sqlx::Connection;
    /// let queue = SqliteQueue::open(&path).await?;
    /// let mail = PartitionId::new("mail")?;
    /// let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    /// let mut conn = sqlx::SqliteConnection::connect_with(&options).await?;
    /// sqlx::raw_sql("CREATE TABLE orders (name TEXT)").execute(&mut conn).await?;
    ///
    /// // Neither the order nor its mail, if the transaction is given up.
    /// let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    /// sqlx::raw_sql("INSERT INTO orders VALUES ('tea')").execute(&mut *tx).await?;
    /// let pushed = queue.push_in(&mut tx, &mail, &[MessageData::new("tea is on its way")]).await?;
    /// assert!(pushed.outcomes[0].is_ok());
    /// tx.rollback().await?;
    /// let now = || PullRequest::new(1, Duration::ZERO, Duration::from_secs(30));
    /// assert!(queue.pull(&mail, now()).await?.is_empty());
    ///
    /// // Both, if it is committed.
    /// let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    /// sqlx::raw_sql("INSERT INTO orders VALUES ('tea')").execute(&mut *tx).await?;
    /// let pushed = queue.push_in(&mut tx, &mail, &[MessageData::new("tea is on its way")]).await?;
    /// tx.commit().await?;
    /// pushed.after_commit.notify();
    /// assert_eq!(queue.pull(&mail, now()).await?[0].message.payload(), b"tea is on its way");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// If a statement failed. Nothing was stored then, and the caller's transaction can continue.
    /// `Incompatible` if the connection is to another file, `Unavailable` if the write lock could not be
    /// obtained.
    pub async fn push_in(
        &self,
        conn: &mut SqliteConnection,
        partition: &PartitionId,
        messages: &[MessageData],
    ) -> Result<PushedIn> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Push);
        if self.inner.closed.is_cancelled() {
            return Err(ERRORS.closed(Operation::Push));
        }
        let Config { message_bytes, clock, identity, path, .. } = &self.inner.config;
        identity.look_at_database(path).map_err(stamp)?;
        // A transaction, or a savepoint within the caller's, so that all messages are stored or none.
        let mut tx = sqlx::Connection::begin(conn).await.map_err(|error| stamp(classify(error)))?;
        let (outcomes, hints) =
            store(&mut tx, partition, messages, *message_bytes, clock).await.map_err(stamp)?;
        tx.commit().await.map_err(|error| stamp(classify(error)))?;
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map_err(stamp)).collect();
        Ok(PushedIn {
            outcomes,
            after_commit: AfterCommit { waiters: Arc::clone(&self.inner.waiters), hints },
        })
    }
}

/// The result of [`SqliteQueue::push_in`].
#[derive(Debug)]
#[must_use = "the outcomes may hold errors, and after_commit wakes waiting pulls"]
pub struct PushedIn {
    /// One result per message, in order; valid once the transaction is committed.
    pub outcomes: Vec<Result<PushOutcome>>,
    /// To be notified after the commit.
    pub after_commit: AfterCommit,
}

/// Wakes the pulls of this handle that wait for what was pushed in a transaction.
#[derive(Debug)]
#[must_use = "call notify() after the commit"]
pub struct AfterCommit {
    waiters: Arc<Waiters<i64>>,
    hints: Hints,
}

impl AfterCommit {
    /// Wakes the pulls. Call this after the commit; without a commit it is harmless.
    pub fn notify(self) {
        self.hints.give(&self.waiters);
    }
}

async fn store(
    conn: &mut SqliteConnection,
    partition: &PartitionId,
    messages: &[MessageData],
    message_bytes: u64,
    clock: &Clock,
) -> Result<(Vec<Result<PushOutcome>>, Hints)> {
    let prepare = |message: &MessageData| {
        check(message)?;
        NewMessage::prepare(&message.clone().normalised(clock.wall()), message_bytes, clock)
    };
    let (verdicts, good) = part_good(messages.iter().map(prepare));
    if good.is_empty() {
        return Ok((answers(verdicts, Vec::new()), Hints::default()));
    }
    let mut tx = PushTx::join(conn, partition, clock).await?;
    let mut outcomes = Vec::with_capacity(good.len());
    for message in &good {
        outcomes.push(tx.store(message).await?);
    }
    Ok((answers(verdicts, outcomes), tx.leave().await?))
}

/// Makes the checks that core makes before a storage gets a message, since this push bypasses core.
fn check(message: &MessageData) -> Result<()> {
    let options = message.options();
    let keys =
        [message.task_id(), message.session_id(), options.group.as_deref(), options.dedup_key.as_deref()];
    if keys.into_iter().flatten().any(|key| key.len() > MAX_KEY_BYTES) {
        let text = format!("task id, session id, group and dedup key are at most {MAX_KEY_BYTES} bytes");
        return Err(ERRORS.invalid(text));
    }
    if message.headers().keys().any(|name| name.starts_with(RESERVED_HEADER_PREFIX)) {
        return Err(
            ERRORS.invalid(format!("header names that begin with {RESERVED_HEADER_PREFIX} are reserved"))
        );
    }
    Ok(())
}
