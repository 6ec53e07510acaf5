//! Workers that somebody else tells of: those of other languages, for which a service over HTTP beats.

use std::fmt;
use std::time::Duration;

use super::kept::Kept;
use super::record::{HeldTask, Order, Record, WorkerInfo, WorkerState};
use super::secret::{hashed, is_of};
use super::{Registry, kept_for, key_of};
use crate::entry::{FORMAT, decode, encode, unchanged, update};
use anyqueue::control::{Applied, Change, Stamped};
use anyqueue::{Error, ErrorKind, MessageId, Result};

/// How often a change is tried that meets the changes of others.
pub(super) const ROUNDS: usize = 16;
/// The most bytes of what a worker says of its machine, and of its release.
const MAX_TEXT_BYTES: usize = 256;
/// For how long a beat may count.
const VALID: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);

/// A worker that somebody else tells of.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "it is unknown until it is admitted: see `Registry::admit`"]
pub struct External {
    name: String,
    host: String,
    pid: u32,
    version: String,
    partitions: Vec<String>,
    slots: usize,
    valid_for: Duration,
    pub(super) session: Option<String>,
}

impl External {
    /// A worker of this name, with one slot, whose beats count for 15 s.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            host: "unknown".to_owned(),
            pid: 0,
            version: String::new(),
            partitions: Vec::new(),
            slots: 1,
            valid_for: Duration::from_secs(15),
            session: None,
        }
    }

    /// Where it runs: the machine, and the number of its process there; 0 if that is not known.
    pub fn with_host(mut self, host: impl Into<String>, pid: u32) -> Self {
        (self.host, self.pid) = (host.into(), pid);
        self
    }

    /// The release of the client that it runs.
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// What it serves.
    pub fn with_partitions(mut self, partitions: Vec<String>) -> Self {
        self.partitions = partitions;
        self
    }

    /// How many tasks it runs at once.
    pub const fn with_slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// For how long a beat counts: a worker that is silent for longer is taken for dead. From a second to an hour.
    pub const fn with_valid_for(mut self, valid_for: Duration) -> Self {
        self.valid_for = valid_for;
        self
    }

    /// The secret that shows that it is the one. By default one is made.
    pub fn with_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// For how long its entry stays after a beat if nobody removes it: longer than the beat counts, so that it can be told what it held.
    #[must_use]
    pub fn stays_for(&self) -> Duration {
        self.valid_for.saturating_add(kept_for(self.valid_for))
    }

    pub(super) fn check(&self) -> Result<()> {
        let longest = self.host.len().max(self.version.len());
        if longest > MAX_TEXT_BYTES {
            let text =
                format!("a worker's host or version of {longest} bytes: give it at most {MAX_TEXT_BYTES}");
            return Err(Error::invalid(text));
        }
        if !VALID.contains(&self.valid_for) {
            let valid = humantime::format_duration(self.valid_for);
            return Err(Error::invalid(format!("a beat that counts for {valid}: from a second to an hour")));
        }
        Ok(())
    }

    pub(super) fn record(&self, session: &str) -> Record {
        let mut record = Record {
            format: FORMAT,
            session: hashed(session),
            host: self.host.clone(),
            application: None,
            pid: self.pid,
            version: self.version.clone(),
            state: WorkerState::Working,
            partitions: Vec::new(),
            used: Vec::new(),
            slots: self.slots,
            running: 0,
            held: Vec::new(),
            memory_bytes: None,
            up_ms: 0,
            valid_ms: millis(self.valid_for),
            kept_ms: millis(kept_for(self.valid_for)),
            seen_ms: None,
            order: None,
            cancel: Vec::new(),
            kept: Kept::default(),
        };
        record.serve(self.partitions.iter().cloned(), &[]);
        record
    }
}

/// Without its secret.
impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External")
            .field("name", &self.name)
            .field("host", &self.host)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

/// What a worker tells of itself with a beat.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Beat {
    /// How it is.
    pub state: WorkerState,
    /// The tasks that it runs; those that ran for longest are shown, up to 512.
    pub held: Vec<HeldTask>,
    /// Resident memory of its process, in bytes.
    pub memory_bytes: Option<u64>,
    /// How many more it runs that whoever speaks for it cannot name.
    pub unnamed: usize,
}

impl Beat {
    /// A beat of a worker that is so and holds these.
    #[must_use]
    pub const fn new(state: WorkerState, held: Vec<HeldTask>, memory_bytes: Option<u64>) -> Self {
        Self { state, held, memory_bytes, unnamed: 0 }
    }

    /// It runs so many more that whoever speaks for it cannot name. What it is to stop may be among them, so it is told that again with later beats.
    #[must_use]
    pub const fn with_unnamed(mut self, unnamed: usize) -> Self {
        self.unnamed = unnamed;
        self
    }
}

/// What a worker hears.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heard {
    /// What it is to do. It is said again with each beat until the worker says that it is so.
    pub order: Option<Order>,
    /// Which of the tasks that it holds it is to stop; said again as long as it holds them, or may.
    pub cancel: Vec<MessageId>,
    /// For how long the beat counts.
    pub valid_for: Duration,
}

impl Registry {
    /// Tells of a worker that was [admitted](Self::admit), and returns what it is to hear. `None`: it was silent for too long, was forgotten, or another one
    /// has its name: it has to register anew.
    ///
    /// # Errors
    /// The server's. The same beat again is harmless.
    pub async fn beat(&self, name: &str, session: &str, beat: &Beat) -> Result<Option<Heard>> {
        let key = key_of(name)?;
        let Stamped { value: mut there, now } = self.store.get(&key).await?;
        for _ in 0..ROUNDS {
            let Some(entry) = there else { return Ok(None) };
            let info = WorkerInfo::of(name, &entry)?;
            if !is_of(&info, session) {
                return Ok(None);
            }
            if info.is_lost(now) {
                self.bury(&entry, &info).await?;
                return Ok(None);
            }
            let mut record: Record = decode(&entry)?;
            let since = now.duration_since(info.seen_at).unwrap_or_default();
            record.up_ms = record.up_ms.saturating_add(millis(since));
            record.tell(beat);
            let heard = Heard {
                order: record.order,
                cancel: record.cancel.iter().filter_map(|id| id.parse().ok()).collect(),
                valid_for: Duration::from_millis(record.valid_ms),
            };
            let change = Change::put(key.clone(), unchanged(Some(&entry)), encode(&record)?);
            match self.store.apply(change.with_ttl(record.ttl())).await?.value {
                Applied::Done => return Ok(Some(heard)),
                Applied::Conflict(instead) => there = instead,
            }
        }
        let text = format!("others change the entry of the worker {name} all the time: try again");
        Err(Error::new(ErrorKind::Unavailable, text))
    }

    /// Removes a worker that ends in order. Returns whether it was there, and this one.
    ///
    /// # Errors
    /// The server's. The same again is harmless.
    pub async fn leave(&self, name: &str, session: &str) -> Result<bool> {
        let key = key_of(name)?;
        update(&self.store, &key, |there| {
            let is_it = |entry: &&_| WorkerInfo::of(name, entry).is_ok_and(|found| is_of(&found, session));
            let change = there.filter(is_it).map(|entry| Change::delete(key.clone(), unchanged(Some(entry))));
            let was_there = change.is_some();
            Ok((change, was_there))
        })
        .await
    }
}

impl Record {
    /// What the worker tells, and what it has heard as that shows: an answer can be lost, so what it does not yet do stays said.
    fn tell(&mut self, beat: &Beat) {
        self.state = beat.state;
        self.running = beat.held.len().saturating_add(beat.unnamed);
        self.memory_bytes = beat.memory_bytes;
        // The end of the entry says when it was heard of.
        self.seen_ms = None;
        let is_done = match self.order {
            Some(Order::Quiet) => beat.state != WorkerState::Working,
            Some(Order::Resume) => beat.state == WorkerState::Working,
            Some(Order::Stop | Order::Recycle) | None => false,
        };
        if is_done {
            self.order = None;
        }
        if beat.unnamed == 0 {
            self.cancel.retain(|id| beat.held.iter().any(|held| held.id == *id));
        }
        self.hold(beat.held.clone());
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
