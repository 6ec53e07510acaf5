//! Workers that somebody else reports on: workers in other languages, for which an HTTP service sends the
//! beats.

use std::fmt;
use std::time::Duration;

use super::kept::Kept;
use super::record::{HeldTask, Order, Record, WorkerInfo, WorkerState};
use super::secret::{hashed, is_of};
use super::{Registry, kept_for, key_of};
use crate::entry::{FORMAT, decode, encode, unchanged, update};
use anyqueue::control::{Applied, Change, Stamped};
use anyqueue::{Error, ErrorKind, MessageId, Result};

/// How often a change is tried that conflicts with the changes of others.
pub(super) const ROUNDS: usize = 16;
/// The longest texts about a worker's machine and release, in bytes.
const MAX_TEXT_BYTES: usize = 256;
/// How long a beat may be valid.
const VALID: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);

/// A worker that somebody else reports on.
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
    /// A worker of this name, with one slot, whose beats are valid for 15 s.
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

    /// Sets where the worker runs: the machine, and the process id there; 0 if that is not known.
    pub fn with_host(mut self, host: impl Into<String>, pid: u32) -> Self {
        (self.host, self.pid) = (host.into(), pid);
        self
    }

    /// Sets the release of the client that the worker runs.
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Sets the partitions that the worker serves.
    pub fn with_partitions(mut self, partitions: Vec<String>) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets how many tasks the worker runs at once.
    pub const fn with_slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Sets how long a beat is valid: a worker that is silent for longer is considered dead. From a second to
    /// an hour.
    pub const fn with_valid_for(mut self, valid_for: Duration) -> Self {
        self.valid_for = valid_for;
        self
    }

    /// Sets the secret by which the worker proves its identity. By default the registry makes one.
    pub fn with_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// The name of the worker.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long the worker's entry stays after a beat if nobody removes it. This is longer than the beat is
    /// valid, so that others can see what the worker held.
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
            return Err(Error::invalid(format!(
                "a beat that counts for {valid}: give it from a second to an hour"
            )));
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

/// Leaves out the secret.
impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External")
            .field("name", &self.name)
            .field("host", &self.host)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

/// What a worker reports with a beat.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Beat {
    /// The state of the worker.
    pub state: WorkerState,
    /// The tasks that the worker runs. Those that have run longest are shown, up to 512.
    pub held: Vec<HeldTask>,
    /// The resident memory of the worker's process, in bytes.
    pub memory_bytes: Option<u64>,
    /// How many more tasks the worker runs that its reporter cannot name.
    pub unnamed: usize,
}

impl Beat {
    /// Makes the beat of a worker in this state with these tasks.
    #[must_use]
    pub const fn new(state: WorkerState, held: Vec<HeldTask>, memory_bytes: Option<u64>) -> Self {
        Self { state, held, memory_bytes, unnamed: 0 }
    }

    /// Sets how many more tasks the worker runs that its reporter cannot name. A task to be stopped may be
    /// among them, so the request is repeated with later beats.
    #[must_use]
    pub const fn with_unnamed(mut self, unnamed: usize) -> Self {
        self.unnamed = unnamed;
        self
    }
}

/// What a worker is told in reply to a beat.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heard {
    /// What the worker should do. The order is repeated with each beat until the worker's state shows that it
    /// has followed it.
    pub order: Option<Order>,
    /// Which of its tasks the worker should stop. Repeated as long as the worker holds them, or may hold
    /// them.
    pub cancel: Vec<MessageId>,
    /// How long the beat is valid.
    pub valid_for: Duration,
}

impl Registry {
    /// Sends a beat for a worker that was [admitted](Self::admit), and returns what to tell the worker.
    /// Returns `None` if the worker was silent for too long, was forgotten, or another one has its name; it
    /// then has to register again.
    ///
    /// # Errors
    /// Errors of the server. Repeating the beat is harmless.
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
        let text = format!("others keep changing the entry of the worker {name}: try again");
        Err(Error::new(ErrorKind::Unavailable, text))
    }

    /// Removes a worker that ends in an orderly way. Returns whether this worker was there.
    ///
    /// # Errors
    /// Errors of the server. Repeating the call is harmless.
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
    /// Takes up what the worker reports, and removes the orders that it has evidently received. A response
    /// can be lost, so orders that it does not follow yet are kept.
    fn tell(&mut self, beat: &Beat) {
        self.state = beat.state;
        self.running = beat.held.len().saturating_add(beat.unnamed);
        self.memory_bytes = beat.memory_bytes;
        // From now on the expiry of the entry says when the worker was last heard of.
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
