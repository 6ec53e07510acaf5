//! One write transaction: time, positions, partitions, and which pulls to wake once it is committed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyqueue::adapter::Waiters;
use anyqueue::{Clock, PartitionId, Result};
use rusqlite::Connection;

use crate::now::Now;
use crate::often::{INSERT, Often, READY, REMOVE, TAKE};
use crate::sql::{first, run};
use crate::steps::{self, Noted, Steady};

/// What is subtracted from the position of a returned message, so that it is ahead of all that were never
/// delivered.
pub(crate) const FRONT: i64 = 1 << 62;
/// How many partitions are remembered. Beyond that, all are looked up anew.
const MAX_REMEMBERED: usize = 10_000;

/// The states of a message in `anyqueue_timed`.
pub(crate) const LEASED: i64 = 1;
pub(crate) const DELAYED: i64 = 2;
pub(crate) const POSTPONED: i64 = 3;

pub(crate) const FIND_PARTITION: &str = "SELECT part FROM anyqueue_partition WHERE dead = ? AND name = ?";
pub(crate) const MAKE_PARTITION: &str =
    "INSERT INTO anyqueue_partition (dead, name) VALUES (0, ?) ON CONFLICT DO NOTHING";
/// Must run after [`MAKE_PARTITION`].
pub(crate) const MAKE_DEAD: &str = "INSERT INTO anyqueue_partition (part, dead, name)
    SELECT -part, 1, name FROM anyqueue_partition WHERE dead = 0 AND name = ? ON CONFLICT DO NOTHING";
const COUNTER: &str = "SELECT next, forgotten, boot IS ?, ahead_ms, urgent_ms FROM anyqueue_counter";
pub(crate) const STORE_COUNTER: &str = "UPDATE anyqueue_counter SET next = ?, urgent_ms = ?";

/// Partitions by name and number, as committed. An entry is valid until rows are deleted, which the file
/// counts.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    known: HashMap<PartitionId, i64>,
    names: HashMap<i64, PartitionId>,
    /// The file's count of deletions when these were looked up.
    pub(crate) forgotten: Option<i64>,
    /// The last partition that was examined for whether it can be forgotten.
    pub(crate) looked_at: i64,
    /// How many were looked up since then.
    pub(crate) looked_up: usize,
}

impl Parts {
    /// Forgets everything, including what a transaction that did not commit may have added.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.names.clear();
        self.forgotten = None;
    }

    /// Forgets a partition whose row, and that of its dead letters, is deleted.
    pub(crate) fn forget(&mut self, part: i64) {
        for part in [part, -part] {
            if let Some(partition) = self.names.remove(&part) {
                self.known.remove(&partition);
            }
        }
    }

    fn remember(&mut self, partition: &PartitionId, part: i64) {
        self.looked_up += 1;
        self.known.insert(partition.clone(), part);
        self.names.insert(part, partition.clone());
    }
}

/// What a commit means for the pulls that wait for a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Hint {
    ready: usize,
    due_ms: Option<i64>,
}

/// The hints for waiting pulls, to be given after the commit.
#[derive(Debug, Default)]
pub(crate) struct Hints(HashMap<PartitionId, Hint>);

impl Hints {
    /// Wakes the pulls.
    pub(crate) fn give(self, waiters: &Waiters<i64>) {
        for (partition, hint) in self.0 {
            if let Some(due_ms) = hint.due_ms {
                waiters.due(&partition, due_ms);
            }
            waiters.wake(&partition, hint.ready);
        }
    }

    /// Records that a message of the partition can be pulled after the commit.
    #[cfg(feature = "sqlx")]
    pub(crate) fn ready(&mut self, partition: &PartitionId) {
        self.0.entry(partition.clone()).or_default().ready += 1;
    }

    /// Records that a message of the partition becomes available at that time.
    #[cfg(feature = "sqlx")]
    pub(crate) fn due(&mut self, partition: &PartitionId, at_ms: i64) {
        self.0.entry(partition.clone()).or_default().learn(at_ms);
    }
}

impl Hint {
    fn learn(&mut self, at_ms: i64) {
        self.due_ms = Some(self.due_ms.map_or(at_ms, |known| known.min(at_ms)));
    }
}

/// Messages that were stored one after the other: the keys of the first and the last, and where the first one
/// stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRun {
    pub(crate) part: i64,
    pub(crate) rank: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// One transaction, under the write lock.
pub(crate) struct Tx<'c> {
    pub(crate) conn: &'c Connection,
    pub(crate) now: Now,
    pub(crate) parts: &'c mut Parts,
    /// Partitions in which everything due has been made ready.
    pub(crate) brought: BTreeSet<i64>,
    /// The last partition that was found to have no dead letters.
    pub(crate) without_dead: Option<i64>,
    /// The earliest moment at which another message becomes urgent.
    pub(crate) urgent_ms: Option<i64>,
    pub(crate) insert: Often<'c>,
    pub(crate) ready: Often<'c>,
    pub(crate) take: Often<'c>,
    pub(crate) remove: Often<'c>,
    /// Messages that still have to be made ready.
    pub(crate) new: Option<NewRun>,
    hints: BTreeMap<i64, Hint>,
    next: i64,
    /// The next position and the earliest urgent moment, as stored in the file.
    stored: (i64, Option<i64>),
}

impl<'c> Tx<'c> {
    /// Begins a transaction. The caller must [`commit`](Self::commit) it or roll it back.
    pub(crate) fn begin(
        conn: &'c Connection,
        parts: &'c mut Parts,
        clock: &Clock,
        steady: Option<&Steady>,
    ) -> Result<Self> {
        if parts.known.len() > MAX_REMEMBERED {
            parts.clear();
        }
        run(conn, "BEGIN IMMEDIATE", ())?;
        let counter = first(conn, COUNTER, [steps::boot(steady)], |row| {
            let noted = Noted { of_this_boot: row.get(2)?, ahead_ms: row.get(3)? };
            Ok((row.get(0)?, row.get::<_, i64>(1)?, noted, row.get(4)?))
        })?;
        let (next, forgotten, noted, urgent_ms) = counter.unwrap_or((1, 0, Noted::default(), None));
        if parts.forgotten != Some(forgotten) {
            parts.clear();
            parts.forgotten = Some(forgotten);
        }
        // Read after the lock was obtained: leases and delays are measured from here.
        let (now, reading) = steps::read(clock, steady);
        if let Some(reading) = reading {
            reading.apply(conn, &noted)?;
        }
        let (brought, hints) = (BTreeSet::new(), BTreeMap::new());
        let stored = (next, urgent_ms);
        let mut tx = Self {
            conn,
            now,
            parts,
            brought,
            without_dead: None,
            urgent_ms,
            insert: Often::new(INSERT),
            ready: Often::new(READY),
            take: Often::new(TAKE),
            remove: Often::new(REMOVE),
            new: None,
            hints,
            next,
            stored,
        };
        tx.forget_some()?;
        tx.lift_urgent()?;
        Ok(tx)
    }

    pub(crate) fn commit(self) -> Result<Hints> {
        let counter = (self.next, self.urgent_ms);
        if counter != self.stored {
            run(self.conn, STORE_COUNTER, counter)?;
        }
        run(self.conn, "COMMIT", ())?;
        let names = &self.parts.names;
        let hints = self.hints.into_iter();
        Ok(Hints(hints.filter_map(|(part, hint)| Some((names.get(&part)?.clone(), hint))).collect()))
    }

    /// Returns the next position in push order.
    pub(crate) fn position(&mut self) -> i64 {
        let position = self.next;
        self.next += 1;
        position
    }

    /// Returns the partition's number, if it exists.
    pub(crate) fn find(&mut self, partition: &PartitionId) -> Result<Option<i64>> {
        if let Some(known) = self.parts.known.get(partition) {
            return Ok(Some(*known));
        }
        let key = (partition.is_dead_letters(), partition.name());
        let found = first(self.conn, FIND_PARTITION, key, |row| row.get(0))?;
        if let Some(part) = found {
            self.parts.remember(partition, part);
        }
        Ok(found)
    }

    /// Returns the partition's number. Creates the partition if it does not exist.
    pub(crate) fn make(&mut self, partition: &PartitionId) -> Result<i64> {
        if let Some(part) = self.find(partition)? {
            return Ok(part);
        }
        run(self.conn, MAKE_PARTITION, [partition.name()])?;
        if partition.is_dead_letters() {
            run(self.conn, MAKE_DEAD, [partition.name()])?;
            self.without_dead = None;
        }
        let part = self.conn.last_insert_rowid();
        self.parts.remember(partition, part);
        Ok(part)
    }

    /// Whether groups and deduplication apply in the partition, which must have been looked up before.
    pub(crate) fn is_live(&self, part: i64) -> bool {
        self.parts.names.get(&part).is_none_or(|partition| !partition.is_dead_letters())
    }

    /// Records that a message can be pulled after the commit.
    pub(crate) fn hint_ready(&mut self, part: i64) {
        self.hints.entry(part).or_default().ready += 1;
    }

    /// Records that a message becomes available at that time.
    pub(crate) fn hint_due(&mut self, part: i64, at_ms: i64) {
        self.hints.entry(part).or_default().learn(at_ms);
    }

    /// Records that everything ready in the partition can be pulled again.
    pub(crate) fn hint_all(&mut self, part: i64) {
        self.hints.entry(part).or_default().ready = usize::MAX;
    }
}
