//! A worker that tells of itself.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyqueue::control::{Applied, Change, ControlStore, Entry, Expect, Key, Version};
use anyqueue::{Clock, Error, Result};
use anyqueue_worker::{Stage, TaskContext, Worker};

use super::record::{HeldTask, Order, Record, WorkerInfo, WorkerState};
use super::{Registry, key_of};
use crate::entry::{FORMAT, decode, encode};

/// Tells this process from every other, also from one that had its number.
static PROCESS: LazyLock<String> = LazyLock::new(|| uuid::Uuid::new_v4().to_string());

/// How often one beat is tried that meets orders.
const ROUNDS: usize = 5;
/// How much longer than it counts a beat is kept, at least, so that it can be told what its worker held.
const KEPT: Duration = Duration::from_mins(5);
/// How long the removal of the entry may take at the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// How a worker tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberOptions {
    /// From one beat to the next. Default: 5 s.
    pub every: Duration,
    /// How long a beat counts: a worker that is silent for longer is taken for dead. Default: 15 s.
    pub valid_for: Duration,
}

impl Default for MemberOptions {
    fn default() -> Self {
        Self { every: Duration::from_secs(5), valid_for: Duration::from_secs(15) }
    }
}

impl MemberOptions {
    /// Sets [`every`](Self::every).
    #[must_use]
    pub const fn with_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Sets [`valid_for`](Self::valid_for): at least twice as long as from one beat to the next.
    #[must_use]
    pub const fn with_valid_for(mut self, valid_for: Duration) -> Self {
        self.valid_for = valid_for;
        self
    }

    fn check(&self) -> Result<()> {
        let most = Duration::from_hours(24);
        if self.every.is_zero() || self.valid_for > most || self.valid_for < self.every.saturating_mul(2) {
            let (every, valid) =
                (humantime::format_duration(self.every), humantime::format_duration(self.valid_for));
            return Err(Error::invalid(format!(
                "a beat every {every} that counts for {valid}: let it count for at least twice as long, and at most a day"
            )));
        }
        Ok(())
    }
}

/// Why the work of a member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Nobody ordered it: by a signal, or because nothing was left.
    Unasked,
    /// It was [stopped](Order::Stop).
    Stopped,
    /// It was [recycled](Order::Recycle): start it anew.
    Recycled,
}

/// A worker that is in the registry, or will be as soon as the store can be reached.
#[derive(Debug)]
#[must_use = "a member is silent until its work runs: see `during`"]
pub struct Member {
    registry: Registry,
    store: ControlStore,
    worker: Worker,
    clock: Clock,
    key: Key,
    options: MemberOptions,
    session: String,
    began: Instant,
    /// The content of the last beat that the store has taken.
    last: Option<Version>,
    /// Beats fail: said once.
    is_cut_off: AtomicBool,
    asked: Ended,
}

impl Registry {
    /// Registers a worker under its [name](anyqueue_worker::WorkerBuilder::name). If the store cannot be reached now, the worker can work all the same, and
    /// registers with its first beat that arrives.
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for times that do not fit, and if a living worker has the name: the error says where it runs.
    pub async fn join(&self, worker: &Worker, options: MemberOptions) -> Result<Member> {
        options.check()?;
        let clock = worker.queue().clock().clone();
        let mut member = Member {
            registry: self.clone(),
            store: self.store.clone(),
            worker: worker.clone(),
            key: key_of(worker.name())?,
            options,
            session: format!("{}/{}", *PROCESS, uuid::Uuid::new_v4()),
            began: clock.now(),
            clock,
            last: None,
            is_cut_off: AtomicBool::new(false),
            asked: Ended::Unasked,
        };
        match member.enter().await {
            Err(error) if error.retry() == anyqueue::RetryClass::Never => Err(error),
            entered => {
                member.note(&entered);
                Ok(member)
            }
        }
    }
}

impl Member {
    /// Does the work, `worker.run()` for instance, and meanwhile tells of the worker and hears what it is to do. At the end the worker leaves the registry.
    /// Returns what the work returned, and why it ended. Failing beats never end it: its leases protect its tasks.
    ///
    /// # Cancellation
    /// Dropping the future drops the work. The worker is taken for dead some seconds later.
    pub async fn during<T>(mut self, work: impl Future<Output = T>) -> (T, Ended) {
        let mut work = pin!(work);
        let mut sweep_at = self.clock.now() + self.options.valid_for.mul_f64(fastrand::f64());
        let ended = loop {
            let beat = async {
                self.clock.sleep(self.options.every).await;
                let beat = self.beat().await;
                self.note(&beat);
                if beat.is_ok() && self.clock.now() >= sweep_at {
                    sweep_at = self.clock.now() + self.options.valid_for.mul_f64(1.0 + fastrand::f64());
                    // Another member tries again.
                    let _ = self.registry.sweep().await;
                }
            };
            tokio::select! { biased; ended = &mut work => break ended, () = beat => {} }
        };
        self.leave().await;
        (ended, self.asked)
    }

    /// The first beat, unless somebody else who lives has the name.
    async fn enter(&mut self) -> Result<()> {
        for _ in 0..ROUNDS {
            let found = self.store.get(&self.key).await?;
            if let Some(entry) = &found.value {
                let name = self.worker.name();
                // What cannot be read stands in nobody's way.
                if let Ok(other) = WorkerInfo::of(name, entry) {
                    if !other.is_lost(found.now) && !has_ended(&other) {
                        return Err(Error::invalid(format!(
                            "the name {name} is taken: a worker on {} with process number {} has it; give this one another name, or wait until that one has ended",
                            other.host, other.pid
                        )));
                    }
                    self.registry.bury(entry, &other).await?;
                    continue;
                }
            }
            let expect = found.value.as_ref().map_or(Expect::Absent, |entry| Expect::Version(entry.version));
            if self.put(expect).await?.is_ok() {
                return Ok(());
            }
        }
        Err(Error::new(anyqueue::ErrorKind::Unavailable, "others register under this name all the time"))
    }

    /// Tells of the worker, in one round trip unless there is something to hear.
    async fn beat(&mut self) -> Result<()> {
        let mut expect = self.last.map_or(Expect::Absent, Expect::Version);
        for _ in 0..ROUNDS {
            let there = match self.put(expect).await? {
                Ok(()) => return Ok(()),
                Err(there) => there,
            };
            expect = match there {
                None => {
                    if self.last.is_some() {
                        tracing::warn!(
                            worker = self.worker.name(),
                            "this worker was taken for dead, or forgotten, and registers anew"
                        );
                    }
                    Expect::Absent
                }
                Some(entry) => {
                    self.hear(&entry);
                    Expect::Version(entry.version)
                }
            };
        }
        Ok(())
    }

    /// Does what others have written into the entry.
    fn hear(&mut self, entry: &Entry) {
        let Ok(record) = decode::<Record>(entry) else { return };
        if record.session != self.session {
            tracing::error!(
                worker = self.worker.name(),
                host = record.host,
                pid = record.pid,
                "another process has the name of this worker, which was frozen or cut off: the registry shows only one of them"
            );
            return;
        }
        for id in record.cancel.iter().filter_map(|id| id.parse().ok()) {
            self.worker.cancel(id);
        }
        let Some(order) = record.order else { return };
        tracing::info!(worker = self.worker.name(), ?order, "the worker was told what to do");
        match order {
            Order::Quiet => self.worker.set_quiet(true),
            Order::Resume => self.worker.set_quiet(false),
            Order::Stop => self.end(Ended::Stopped),
            Order::Recycle => self.end(Ended::Recycled),
        }
    }

    fn end(&mut self, asked: Ended) {
        self.asked = asked;
        self.worker.shutdown();
    }

    /// Writes the entry. If another content is there than expected, returns that.
    async fn put(&mut self, expect: Expect) -> Result<Result<(), Option<Entry>>> {
        let record = self.record();
        let change = Change::put(self.key.clone(), expect, encode(&record)?).with_ttl(record.ttl());
        let version = change.version();
        match self.store.apply(change).await?.value {
            Applied::Done => {
                self.last = version;
                Ok(Ok(()))
            }
            Applied::Conflict(there) => Ok(Err(there)),
        }
    }

    fn record(&self) -> Record {
        let (health, now) = (self.worker.health(), self.clock.now());
        let state = match health.stage {
            Stage::Working if self.worker.is_quiet() => WorkerState::Quiet,
            Stage::Working => WorkerState::Working,
            _ => WorkerState::Draining,
        };
        let valid = self.options.valid_for;
        let mut record = Record {
            format: FORMAT,
            session: self.session.clone(),
            host: host(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state,
            partitions: self.worker.partitions().map(ToString::to_string).collect(),
            slots: self.worker.slots(),
            running: health.running,
            held: Vec::new(),
            memory_bytes: resident_memory(),
            up_ms: millis(now.saturating_duration_since(self.began)),
            valid_ms: millis(valid),
            kept_ms: millis(KEPT.max(valid.saturating_mul(4))),
            seen_ms: None,
            order: None,
            cancel: Vec::new(),
        };
        record.hold(self.worker.running().iter().map(|task| held(task, now)).collect());
        record
    }

    fn note<T>(&self, beat: &Result<T>) {
        let was_cut_off = self.is_cut_off.swap(beat.is_err(), Ordering::Relaxed);
        match beat {
            Err(error) => {
                metrics::counter!("anyqueue_beats_failed_total").increment(1);
                if !was_cut_off {
                    tracing::warn!(worker = self.worker.name(), %error, "the registry of workers cannot be reached; the work goes on");
                }
            }
            Ok(_) if was_cut_off => {
                tracing::info!(worker = self.worker.name(), "the registry of workers can be reached again");
            }
            Ok(_) => {}
        }
    }

    async fn leave(&self) {
        let Some(last) = self.last else { return };
        let farewell = self.store.apply(Change::delete(self.key.clone(), Expect::Version(last)));
        let late = self.clock.sleep(FAREWELL);
        // An order that came in between makes this fail. Then the entry ends by itself, and nothing is named that is not held.
        tokio::select! {
            left = farewell => {
                if let Ok(Applied::Conflict(Some(entry))) = left.map(|left| left.value) {
                    let is_mine = decode::<Record>(&entry).is_ok_and(|record| record.session == self.session);
                    if is_mine {
                        let _ = self.store.apply(Change::delete(self.key.clone(), Expect::Version(entry.version))).await;
                    }
                }
            }
            () = late => {}
        }
    }
}

/// Whether the process of a worker is certainly gone, though its beats still count: one of this machine that is not there, or whose number this process
/// has now, as after a restart.
fn has_ended(other: &WorkerInfo) -> bool {
    let is_here = other.host == host();
    let is_mine = other.session.starts_with(&*PROCESS);
    let lives = || !cfg!(target_os = "linux") || Path::new(&format!("/proc/{}", other.pid)).exists();
    is_here && !is_mine && (other.pid == std::process::id() || !lives())
}

fn held(task: &TaskContext, now: Instant) -> HeldTask {
    HeldTask {
        partition: task.partition().to_string(),
        id: task.id().to_string(),
        kind: task.kind().to_owned(),
        attempt: task.attempt(),
        ran_ms: millis(now.saturating_duration_since(task.started_at())),
        progress: task.progress().map(|progress| progress.to_string()),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME").map_err(std::io::Error::other));
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// Linux tells it in pages; elsewhere it is not known.
fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
