//! What a worker reports about itself.

use std::fmt;
use std::time::{Duration, SystemTime};

use anyqueue::control::{Entry, MAX_CONTROL_VALUE_BYTES};
use anyqueue::{MessageId, Result};
use serde::{Deserialize, Serialize};

use super::kept::{Kept, MAX_KEPT_BYTES};
use crate::entry::decode;

/// The largest number of tasks that an entry lists; beyond it the entry only says how many there are.
pub(crate) const MAX_HELD: usize = 512;
/// The space in an entry for the tasks and the kept texts, and for the names of the partitions, in bytes.
/// Both have to fit, with room for what others write into the entry.
const MAX_HELD_BYTES: usize = 128 << 10;
const MAX_PARTITIONS_BYTES: usize = 64 << 10;
const _: () = assert!(MAX_HELD_BYTES + MAX_PARTITIONS_BYTES + (32 << 10) < MAX_CONTROL_VALUE_BYTES);
const _: () = assert!(MAX_KEPT_BYTES < MAX_HELD_BYTES);

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// The worker takes on tasks.
    Working,
    /// The worker takes on nothing new, and continues with what it has.
    Quiet,
    /// The worker is ending.
    Draining,
}

impl WorkerState {
    /// The name, in `snake_case`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Quiet => "quiet",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An order for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Order {
    /// Take on nothing new. Running tasks continue.
    Quiet,
    /// Take on tasks again.
    Resume,
    /// End in an orderly way: [`Worker::shutdown`](anyqueue_worker::Worker::shutdown).
    Stop,
    /// Like [`Stop`](Order::Stop), but whoever started the worker should start it again.
    Recycle,
}

/// A task that a worker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeldTask {
    /// The partition it was pulled from.
    pub partition: String,
    /// The id of its message.
    pub id: String,
    /// The kind of the task; empty if it has none.
    pub kind: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// How long the task had run when the worker reported it, in milliseconds.
    pub ran_ms: u64,
    /// How far the task has come, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}

impl HeldTask {
    /// Makes a task that somebody else runs.
    #[must_use]
    pub fn new(partition: impl Into<String>, id: MessageId, kind: impl Into<String>) -> Self {
        Self {
            partition: partition.into(),
            id: id.to_string(),
            kind: kind.into(),
            attempt: 1,
            ran_ms: 0,
            progress: None,
        }
    }

    /// Sets the number of the attempt, from 1, and how long it has run.
    #[must_use]
    pub fn with_run(mut self, attempt: u32, ran: Duration) -> Self {
        (self.attempt, self.ran_ms) = (attempt, u64::try_from(ran.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Sets how far the task has come, in its own words.
    #[must_use]
    pub fn with_progress(mut self, progress: Option<String>) -> Self {
        self.progress = progress;
        self
    }
}

/// What the entry of a worker holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) format: u32,
    /// Distinguishes processes of the same name.
    pub(crate) session: String,
    pub(crate) host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) application: Option<String>,
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) state: WorkerState,
    pub(crate) partitions: Vec<String>,
    /// How many thousandths of a slot each partition used on average since the previous beat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) used: Vec<u64>,
    pub(crate) slots: usize,
    pub(crate) running: usize,
    pub(crate) held: Vec<HeldTask>,
    /// Resident memory of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bytes: Option<u64>,
    /// How long the process had run.
    pub(crate) up_ms: u64,
    /// How long a beat is valid, and how much longer the entry stays.
    pub(crate) valid_ms: u64,
    pub(crate) kept_ms: u64,
    /// When the worker was last heard of, in milliseconds of Unix time by the server's clock. Only others
    /// write this, since their writing is no sign of the worker's life. For what the worker wrote itself, the
    /// expiry of the entry tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seen_ms: Option<u64>,
    /// Orders that the worker has not received yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<Order>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cancel: Vec<String>,
    #[serde(default, skip_serializing_if = "Kept::is_empty")]
    pub(crate) kept: Kept,
}

impl Record {
    /// How long the entry stays.
    pub(crate) const fn ttl(&self) -> Duration {
        Duration::from_millis(self.valid_ms.saturating_add(self.kept_ms))
    }

    /// When the worker was last heard of.
    pub(crate) fn seen_at(&self, entry: &Entry) -> SystemTime {
        let told = self.seen_ms.and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        // The server stamped the expiry of the entry: the moment of the beat is that minus the time to live.
        let stamped = entry.expires_at.and_then(|ends_at| ends_at.checked_sub(self.ttl()));
        told.or(stamped).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Takes those of the tasks that have run longest, as many as fit.
    pub(crate) fn hold(&mut self, mut tasks: Vec<HeldTask>) {
        tasks.sort_by_key(|task| std::cmp::Reverse(task.ran_ms));
        tasks.truncate(MAX_HELD);
        self.held = fitting(tasks, MAX_HELD_BYTES.saturating_sub(self.kept.bytes()));
    }

    /// Takes the first of the partitions, as many as fit, and how many slots they used.
    pub(crate) fn serve(&mut self, partitions: impl Iterator<Item = String>, used: &[f64]) {
        self.partitions = fitting(partitions, MAX_PARTITIONS_BYTES);
        let used = used.iter().map(|slots| thousandths(*slots)).take(self.partitions.len());
        self.used = used.collect();
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn thousandths(slots: f64) -> u64 {
    (slots * 1000.0).round() as u64
}

/// The first items, as many as fit into `most` bytes as JSON. The size is measured, since texts of tasks can
/// become six times as long in JSON.
fn fitting<T: Serialize>(all: impl IntoIterator<Item = T>, most: usize) -> Vec<T> {
    let mut bytes = 0;
    let fits = |one: &T| {
        bytes += serde_json::to_vec(one).map_or(most, |json| json.len() + 1);
        bytes < most
    };
    all.into_iter().take_while(fits).collect()
}

/// A worker as its entry describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The name of the worker.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// The application that it belongs to, if it named one.
    pub application: Option<String>,
    /// Its process id on that machine.
    pub pid: u32,
    /// The release of this library that it runs.
    pub version: String,
    /// Its state.
    pub state: WorkerState,
    /// The partitions that it serves; only the first ones if the names take many thousand bytes.
    pub partitions: Vec<String>,
    /// How many tasks it runs at once.
    pub slots: usize,
    /// How many slots are occupied.
    pub running: usize,
    /// The tasks that it runs, at most 512 of them.
    pub held: Vec<HeldTask>,
    /// The resident memory of its process, in bytes, if that is known.
    pub memory_bytes: Option<u64>,
    /// How long its process had run at its last beat.
    #[serde(skip)]
    pub up: Duration,
    /// When it was last heard of, by the server's clock.
    #[serde(skip)]
    pub seen_at: SystemTime,
    /// Until when that is valid, by the server's clock: from then on the worker is considered dead.
    #[serde(skip)]
    pub valid_until: SystemTime,
    /// An order that it has not received yet.
    pub order: Option<Order>,
    /// Tasks that it should cancel, if it has not been told about them yet.
    pub cancel: Vec<MessageId>,
    #[serde(skip)]
    pub(crate) session: String,
    #[serde(skip)]
    pub(crate) used: Vec<u64>,
}

impl WorkerInfo {
    /// Returns whether the worker is considered dead, at this time of the server.
    #[must_use]
    pub fn is_lost(&self, now: SystemTime) -> bool {
        self.valid_until <= now
    }

    pub(crate) fn of(name: &str, entry: &Entry) -> Result<Self> {
        let record: Record = decode(entry)?;
        let (seen_at, valid) = (record.seen_at(entry), Duration::from_millis(record.valid_ms));
        let cancel = record.cancel.iter().filter_map(|id| id.parse().ok()).collect();
        Ok(Self {
            name: name.to_owned(),
            host: record.host,
            application: record.application,
            pid: record.pid,
            version: record.version,
            state: record.state,
            partitions: record.partitions,
            slots: record.slots,
            running: record.running,
            held: record.held,
            memory_bytes: record.memory_bytes,
            up: Duration::from_millis(record.up_ms),
            seen_at,
            valid_until: seen_at.checked_add(valid).unwrap_or(seen_at),
            order: record.order,
            cancel,
            session: record.session,
            used: record.used,
        })
    }
}
