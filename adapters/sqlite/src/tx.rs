//! One write transaction: time, positions, partitions, and whom to wake when it is committed.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use anyqueue::{Clock, PartitionId, Result};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use crate::changes::Changes;
use crate::due;
use crate::sql::{MAX_ROWS, Script, Statement, get, rows, statement};
use crate::wake::Wake;

/// What a position is lessened by when its message is given back: ahead of all that was never delivered.
pub(crate) const FRONT: i64 = 1 << 62;
/// Partitions remembered; beyond it they are looked up anew.
const MAX_REMEMBERED: usize = 10_000;

/// States of a message in `anyqueue_timed`.
pub(crate) const LEASED: i64 = 1;
pub(crate) const DELAYED: i64 = 2;
pub(crate) const POSTPONED: i64 = 3;

/// A moment in milliseconds of Unix time, rounded both ways so that nothing is early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// For asking what is over.
    pub(crate) ms: i64,
    ceil_ms: i64,
}

impl Now {
    pub(crate) fn of(clock: &Clock) -> Self {
        let since = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX), ceil_ms: ceil_ms(since) }
    }

    /// The end of a span that begins now.
    pub(crate) fn after(self, span: Duration) -> i64 {
        self.ceil_ms.saturating_add(ceil_ms(span))
    }
}

fn ceil_ms(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Partitions by name and number, as committed. Rows are never deleted, so what is known stays true.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    known: HashMap<PartitionId, Part>,
    names: HashMap<i64, PartitionId>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    part: i64,
    used: bool,
}

impl Parts {
    /// Forgets what a transaction that did not commit may have put here.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.names.clear();
    }

    /// The numbers of those that are known, at most [`MAX_ROWS`], without repetition.
    fn numbers<'p>(&mut self, partitions: impl Iterator<Item = &'p PartitionId>) -> Vec<i64> {
        if self.known.len() > MAX_REMEMBERED {
            self.clear();
        }
        let mut numbers: Vec<i64> = partitions.filter_map(|name| Some(self.known.get(name)?.part)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.truncate(MAX_ROWS);
        numbers
    }

    fn remember(&mut self, partition: &PartitionId, part: Part) {
        self.known.insert(partition.clone(), part);
        self.names.insert(part.part, partition.clone());
    }
}

/// What a commit means for waiting pulls of a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Hint {
    ready: usize,
    due_ms: Option<i64>,
}

/// What to tell waiting pulls after the commit.
#[derive(Debug, Default)]
pub(crate) struct Hints(HashMap<PartitionId, Hint>);

impl Hints {
    /// Tells them.
    pub(crate) fn give(self, wake: &Wake) {
        for (partition, hint) in self.0 {
            if let Some(due_ms) = hint.due_ms {
                wake.due(&partition, due_ms);
            }
            wake.ready(&partition, hint.ready);
        }
    }
}

/// One transaction, under the write lock. Writes are gathered and go to SQLite together, at the latest with the commit.
pub(crate) struct Tx<'c> {
    conn: &'c mut SqliteConnection,
    pub(crate) now: Now,
    pub(crate) changes: Changes,
    parts: &'c mut Parts,
    script: Script,
    hints: HashMap<i64, Hint>,
    next: i64,
    stored_next: i64,
    committed: bool,
}

/// How a transaction begins.
pub(crate) struct Begun<'c> {
    pub(crate) tx: Tx<'c>,
    /// Partitions in which what is due was brought already.
    pub(crate) brought: Vec<i64>,
    /// The rows of the question asked along with it.
    pub(crate) answer: Vec<SqliteRow>,
}

impl<'c> Tx<'c> {
    /// Begins a transaction, brings what is due in those of the partitions that are known already, and asks `question`.
    pub(crate) async fn begin(
        conn: &'c mut SqliteConnection,
        parts: &'c mut Parts,
        clock: &Clock,
        partitions: impl Iterator<Item = &PartitionId>,
        question: Option<Statement>,
    ) -> Result<Begun<'c>> {
        let brought = parts.numbers(partitions);
        let mut script = Script::default();
        script.add(due::begin(Now::of(clock), &brought));
        if let Some(question) = question {
            script.add(question);
        }
        let mut answers = script.run(conn).await?.into_iter().skip(1);
        let mut answer = || answers.next().unwrap_or_default();
        let (counter, due, answer) = (answer(), answer(), answer());
        let mut tx = Self::start(conn, parts, clock, &counter)?;
        if !due::bring_these(&mut tx, &due).await? {
            due::bring(&mut tx, &brought).await?;
        }
        Ok(Begun { tx, brought, answer })
    }

    /// Works within a transaction of the caller's. The no-op update takes the write lock before anything is read.
    pub(crate) async fn join(
        conn: &'c mut SqliteConnection,
        parts: &'c mut Parts,
        clock: &Clock,
    ) -> Result<Self> {
        let lock = statement("UPDATE anyqueue_counter SET next = next RETURNING next");
        let counter = rows(conn, lock).await?;
        Self::start(conn, parts, clock, &counter)
    }

    fn start(
        conn: &'c mut SqliteConnection,
        parts: &'c mut Parts,
        clock: &Clock,
        counter: &[SqliteRow],
    ) -> Result<Self> {
        let next = counter.first().map_or(Ok(1), |row| get(row, 0))?;
        let (changes, script, hints) = (Changes::default(), Script::default(), HashMap::new());
        // After the lock was had: leases and delays count from then.
        let now = Now::of(clock);
        Ok(Self { conn, now, changes, parts, script, hints, next, stored_next: next, committed: false })
    }

    /// Writes later, but before anything is read.
    pub(crate) async fn write(&mut self, statement: Statement) -> Result<()> {
        if !self.script.takes(&statement) {
            std::mem::take(&mut self.script).run(self.conn).await?;
        }
        self.script.add(statement);
        Ok(())
    }

    /// Reads, after all that was to be written.
    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<SqliteRow>> {
        if !self.script.is_empty() {
            std::mem::take(&mut self.script).run(self.conn).await?;
        }
        rows(self.conn, statement).await
    }

    /// Writes all that was gathered, then runs these, and with `commit` commits, all in one hop if possible. Answers the
    /// rows of each statement in them.
    pub(crate) async fn conclude(
        &mut self,
        statements: Vec<Statement>,
        commit: bool,
    ) -> Result<Vec<Vec<SqliteRow>>> {
        self.flush().await?;
        let mut script = std::mem::take(&mut self.script);
        let before = script.steps();
        for statement in statements {
            script.add(statement);
        }
        if commit {
            self.add_counter(&mut script);
            script.add(statement("COMMIT"));
        }
        let answers = script.run(self.conn).await?;
        self.committed = commit;
        Ok(answers.into_iter().skip(before).collect())
    }

    fn add_counter(&mut self, script: &mut Script) {
        if self.next != self.stored_next {
            script.add(statement("UPDATE anyqueue_counter SET next = ?").bind(self.next));
            self.stored_next = self.next;
        }
    }

    /// Writes out everything and commits, unless that is done already.
    pub(crate) async fn commit(mut self) -> Result<Hints> {
        if !self.committed {
            self.conclude(Vec::new(), true).await?;
        }
        Ok(self.named_hints())
    }

    /// Writes out everything and leaves the commit to the caller.
    pub(crate) async fn leave(mut self) -> Result<Hints> {
        self.flush().await?;
        let mut script = std::mem::take(&mut self.script);
        self.add_counter(&mut script);
        script.run(self.conn).await?;
        Ok(self.named_hints())
    }

    /// Turns the changes gathered so far into statements.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let changes = std::mem::take(&mut self.changes);
        changes.apply(self).await
    }

    /// The next position in push order.
    pub(crate) fn position(&mut self) -> i64 {
        let position = self.next;
        self.next += 1;
        position
    }

    /// The partition's number, if it exists.
    pub(crate) async fn find(&mut self, partition: &PartitionId) -> Result<Option<i64>> {
        if let Some(known) = self.parts.known.get(partition) {
            return Ok(Some(known.part));
        }
        let sql = "SELECT part, used FROM anyqueue_partition WHERE dead = ? AND name = ?";
        let query = statement(sql).bind(i64::from(partition.is_dead_letters())).bind(partition.name());
        let found = self.rows(query).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let part = Part { part: get(row, 0)?, used: get::<i64>(row, 1)? == 1 };
        self.parts.remember(partition, part);
        Ok(Some(part.part))
    }

    /// The partition's number; makes the partition if needed.
    pub(crate) async fn make(&mut self, partition: &PartitionId) -> Result<i64> {
        if let Some(part) = self.find(partition).await? {
            return Ok(part);
        }
        let sql = "INSERT INTO anyqueue_partition (dead, name) VALUES (?, ?)";
        let query = statement(sql).bind(i64::from(partition.is_dead_letters())).bind(partition.name());
        self.write(query).await?;
        self.find(partition).await.map(Option::unwrap_or_default)
    }

    /// As [`make`](Self::make), for putting messages into it: from now on the partition is listed.
    pub(crate) async fn make_used(&mut self, partition: &PartitionId) -> Result<i64> {
        let part = self.make(partition).await?;
        if self.parts.known.get(partition).is_none_or(|known| !known.used) {
            self.write(statement("UPDATE anyqueue_partition SET used = 1 WHERE part = ?").bind(part)).await?;
            self.parts.remember(partition, Part { part, used: true });
        }
        Ok(part)
    }

    /// Whether groups and keys count there. Only of partitions looked up in this transaction.
    pub(crate) fn is_live(&self, part: i64) -> bool {
        self.parts.names.get(&part).is_none_or(|partition| !partition.is_dead_letters())
    }

    /// Notes that a message can be pulled after the commit.
    pub(crate) fn hint_ready(&mut self, part: i64) {
        self.hints.entry(part).or_default().ready += 1;
    }

    /// Notes that one becomes available at that time.
    pub(crate) fn hint_due(&mut self, part: i64, at_ms: i64) {
        let hint = self.hints.entry(part).or_default();
        hint.due_ms = Some(hint.due_ms.map_or(at_ms, |known| known.min(at_ms)));
    }

    /// Notes that all that is ready in the partition may be pulled again.
    pub(crate) fn hint_all(&mut self, part: i64) {
        self.hints.entry(part).or_default().ready = usize::MAX;
    }

    fn named_hints(&mut self) -> Hints {
        let names = &self.parts.names;
        Hints(self.hints.drain().filter_map(|(part, hint)| Some((names.get(&part)?.clone(), hint))).collect())
    }
}
