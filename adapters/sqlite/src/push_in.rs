//! Storing messages within a transaction of the application's own.

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
    /// Stores messages within the caller's own transaction on the same file: they can be pulled once it is committed, and
    /// are gone with it if it is rolled back.
    ///
    /// A connection without a transaction stores at once. Keep the transaction short: it holds the file's only write
    /// lock. `outcomes` has one answer per message, in order; a bad message harms no other. After the commit, tell
    /// [`after_commit`](PushedIn::after_commit): it wakes pulls of this handle. Without it, and in other processes, they find
    /// the messages by polling.
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
    /// If a statement failed; nothing was stored, and the caller's transaction can go on. `Incompatible` if the connection
    /// is to another file, `Unavailable` if the write lock could not be had.
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
        // A transaction, or a savepoint in the caller's: whole or not at all.
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

/// What [`SqliteQueue::push_in`] answers.
#[derive(Debug)]
#[must_use = "the outcomes may hold errors, and after_commit wakes waiting pulls"]
pub struct PushedIn {
    /// One answer per message, in order; true once the transaction is committed.
    pub outcomes: Vec<Result<PushOutcome>>,
    /// To be told after the commit.
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
    /// Call this when the transaction is committed. Harmless otherwise.
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

/// What core checks of a message before a storage sees it, for the push that does not pass through core.
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
