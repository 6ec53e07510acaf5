//! A worker that reports to the registry.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyqueue::control::{Applied, Change, ControlStore, Expect, Key, Stamped, Version};
use anyqueue::{Clock, Error, ErrorKind, Result};
use anyqueue_worker::{SlotUsage, Stage, TaskContext, Worker, resident_memory};

use super::host::{has_ended, host_name, new_session};
use super::kept::Kept;
use super::record::{HeldTask, Order, Record, WorkerInfo, WorkerState};
use super::usage::Usage;
use super::watch::{Looked, Watch};
use super::{Registry, kept_for, key_of};
use crate::entry::{FORMAT, encode, unchanged, update};

/// How often one beat is tried if it meets orders.
const ROUNDS: usize = 5;
/// How long removing the entry at the end may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// How a worker reports to the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberOptions {
    /// The time between beats. Default: 5 s.
    pub every: Duration,
    /// How long a beat is valid: a worker that is silent for longer is considered dead. Default: 15 s.
    pub valid_for: Duration,
    /// The application that the worker belongs to. The worker does not start on a machine that is
    /// [kept](Registry::dedicate) for another one. Default: none.
    pub application: Option<String>,
}

impl Default for MemberOptions {
    fn default() -> Self {
        Self { every: Duration::from_secs(5), valid_for: Duration::from_secs(15), application: None }
    }
}

impl MemberOptions {
    /// Sets [`every`](Self::every).
    #[must_use]
    pub const fn with_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Sets [`valid_for`](Self::valid_for), which must be at least twice the time between beats.
    #[must_use]
    pub const fn with_valid_for(mut self, valid_for: Duration) -> Self {
        self.valid_for = valid_for;
        self
    }

    /// Sets [`application`](Self::application): 1 to [`MAX_APPLICATION_BYTES`](super::MAX_APPLICATION_BYTES)
    /// bytes, without control characters.
    #[must_use]
    pub fn with_application(mut self, application: impl Into<String>) -> Self {
        self.application = Some(application.into());
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
    /// Without an order: by a signal, or because nothing was left.
    Unasked,
    /// The worker was [stopped](Order::Stop).
    Stopped,
    /// The worker was [recycled](Order::Recycle): start it again.
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
    usage: Usage,
    /// What the worker used at the end of the last round of looks, and what others used.
    beside: Option<Vec<SlotUsage>>,
    /// The version of the last beat that the store accepted.
    last: Option<Version>,
    /// Whether beats fail; reported once.
    is_cut_off: bool,
    /// Whether another process has the name; reported once.
    is_displaced: bool,
    asked: Ended,
}

impl Registry {
    /// Registers a worker under its [name](anyqueue_worker::WorkerBuilder::name). If the store cannot be
    /// reached now, the worker can work all the same, and is registered with the first beat that succeeds.
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for times that do not fit together, if a living
    /// worker has the name (the error says where that one runs), and if this machine is
    /// [kept](Self::dedicate) for another application, which the error names.
    pub async fn join(&self, worker: &Worker, options: MemberOptions) -> Result<Member> {
        options.check()?;
        let clock = worker.queue().clock().clone();
        let mut member = Member {
            registry: self.clone(),
            store: self.store.clone(),
            worker: worker.clone(),
            key: key_of(worker.name())?,
            options,
            session: new_session(),
            began: clock.now(),
            usage: Usage::new(worker, clock.now()),
            beside: None,
            clock,
            last: None,
            is_cut_off: false,
            is_displaced: false,
            asked: Ended::Unasked,
        };
        match member.enter().await {
            Err(error) if error.retry() == anyqueue::RetryClass::Never => Err(error),
            Ok(Some(other)) => Err(taken(&other)),
            beat => {
                member.note(&beat);
                Ok(member)
            }
        }
    }
}

impl Member {
    /// Runs the work, for instance `worker.run()`, and in the meantime reports on the worker and receives
    /// orders for it. At the end the worker leaves the registry. Returns the result of the work, and why it
    /// ended. Failing beats never end the work: leases protect its tasks.
    ///
    /// # Cancellation
    /// Dropping the future drops the work. The worker is considered dead some seconds later.
    pub async fn during<T>(mut self, work: impl Future<Output = T>) -> (T, Ended) {
        let mut work = pin!(work);
        let now = self.clock.now();
        let mut watch = Watch::new(now, self.options.valid_for);
        let mut beat_at = now + self.options.every;
        let end = loop {
            let turn = async {
                self.clock.sleep_until(beat_at).await;
                // Counted from here, so that a beat that hangs does not delay the next one.
                beat_at = self.clock.now() + self.options.every;
                self.turn(&mut watch).await;
            };
            tokio::select! { biased; end = &mut work => break end, () = turn => {} }
        };
        self.leave().await;
        (end, self.asked)
    }

    async fn turn(&mut self, watch: &mut Watch) {
        self.usage.measure(&self.worker, self.clock.now());
        let beat = self.beat_in_time().await;
        self.note(&beat);
        if beat.is_ok() {
            let late = self.clock.sleep(self.patience());
            let look = watch.look(&self.registry, &self.clock, Some(&self.key));
            let seen = tokio::select! { seen = look => seen, () = late => None };
            if let Some(looked) = seen {
                self.balance(looked);
            }
        }
    }

    /// Tells the worker what others use. With many workers a round takes longer than that information is
    /// valid, so it is repeated with each page until the next round has a new sum. What the worker itself
    /// used is repeated as it was then, too; otherwise the worker would correct the same imbalance several
    /// times.
    fn balance(&mut self, looked: Looked) {
        if let Looked::Round(elsewhere) = looked {
            self.beside = Some(self.usage.beside(&self.worker, &elsewhere));
        }
        if let Some(beside) = &self.beside {
            self.worker.balance(beside.clone());
        }
    }

    /// How long one call may take: one that hangs for longer would keep the next beat from arriving in time.
    fn patience(&self) -> Duration {
        self.options.valid_for / 3
    }

    /// Checks whether the worker may run on this machine, then sends its first beat.
    async fn enter(&mut self) -> Result<Option<WorkerInfo>> {
        let (registry, application) = (self.registry.clone(), self.options.application.clone());
        let may = registry.check_node(application.as_deref());
        in_time(&self.clock, self.patience(), may).await?;
        self.beat_in_time().await
    }

    async fn beat_in_time(&mut self) -> Result<Option<WorkerInfo>> {
        let (clock, patience) = (self.clock.clone(), self.patience());
        in_time(&clock, patience, self.beat()).await
    }

    /// Sends a beat, in one round trip unless there are orders. If another living worker has the name,
    /// returns that worker; its entry, and the orders in it, are left alone.
    async fn beat(&mut self) -> Result<Option<WorkerInfo>> {
        let mut expect = self.last.map_or(Expect::Absent, Expect::Version);
        for _ in 0..ROUNDS {
            let there = match self.put(expect).await? {
                Stamped { value: Applied::Done, .. } => return Ok(None),
                Stamped { value: Applied::Conflict(there), now } => there.map(|entry| (entry, now)),
            };
            let Some((entry, now)) = there else {
                self.was_forgotten();
                expect = Expect::Absent;
                continue;
            };
            expect = Expect::Version(entry.version);
            // An entry that cannot be read does not keep anybody from the name.
            let Ok(found) = WorkerInfo::of(self.worker.name(), &entry) else { continue };
            if found.session == self.session {
                self.hear(&found);
            } else if found.is_lost(now) || has_ended(&found) {
                self.registry.bury(&entry, &found).await?;
                expect = Expect::Absent;
            } else {
                self.last = None;
                return Ok(Some(found));
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "others keep changing the entry of this worker"))
    }

    fn was_forgotten(&mut self) {
        if self.last.take().is_some() {
            tracing::warn!(
                worker = self.worker.name(),
                "this worker was considered dead, or was forgotten, and registers again"
            );
        }
    }

    /// Carries out what others have written into the entry.
    fn hear(&mut self, said: &WorkerInfo) {
        for id in &said.cancel {
            self.worker.cancel(*id);
        }
        let Some(order) = said.order else { return };
        tracing::info!(worker = self.worker.name(), ?order, "the worker received an order");
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

    /// Writes the entry, if what is there is as expected.
    async fn put(&mut self, expect: Expect) -> Result<Stamped<Applied>> {
        let record = self.record();
        let change = Change::put(self.key.clone(), expect, encode(&record)?).with_ttl(record.ttl());
        let version = change.version();
        let applied = self.store.apply(change).await?;
        if applied.value.is_done() {
            self.last = version;
        }
        Ok(applied)
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
            host: host_name(),
            application: self.options.application.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state,
            partitions: Vec::new(),
            used: Vec::new(),
            slots: self.worker.slots(),
            running: health.running,
            held: Vec::new(),
            memory_bytes: resident_memory(),
            up_ms: millis(now.saturating_duration_since(self.began)),
            valid_ms: millis(valid),
            kept_ms: millis(kept_for(valid)),
            seen_ms: None,
            order: None,
            cancel: Vec::new(),
            kept: Kept::default(),
        };
        record.serve(self.worker.partitions().map(ToString::to_string), self.usage.here());
        record.hold(self.worker.running().iter().map(|task| held(task, now)).collect());
        record
    }

    fn note(&mut self, beat: &Result<Option<WorkerInfo>>) {
        let was_cut_off = std::mem::replace(&mut self.is_cut_off, beat.is_err());
        match beat {
            Err(error) => {
                metrics::counter!("anyqueue_beats_failed_total").increment(1);
                if !was_cut_off {
                    tracing::warn!(worker = self.worker.name(), %error, "the registry of workers cannot be reached; the work continues");
                }
            }
            Ok(other) => {
                if was_cut_off {
                    tracing::info!(
                        worker = self.worker.name(),
                        "the registry of workers can be reached again"
                    );
                }
                self.note_displaced(other.as_ref());
            }
        }
    }

    fn note_displaced(&mut self, by: Option<&WorkerInfo>) {
        let was_displaced = std::mem::replace(&mut self.is_displaced, by.is_some());
        if let (Some(other), false) = (by, was_displaced) {
            tracing::error!(
                worker = self.worker.name(),
                host = other.host,
                pid = other.pid,
                "another process has the name of this worker, which was frozen or cut off: the registry shows that one, and this one receives no orders until that one has ended"
            );
        }
    }

    /// Removes the entry, whatever orders it holds. If that fails, the entry expires.
    async fn leave(&self) {
        let farewell = update(&self.store, &self.key, |there| {
            let is_mine = |entry: &&_| {
                WorkerInfo::of(self.worker.name(), entry).is_ok_and(|found| found.session == self.session)
            };
            let mine = there.filter(is_mine);
            Ok((mine.map(|entry| Change::delete(self.key.clone(), unchanged(Some(entry)))), ()))
        });
        tokio::select! { _ = farewell => {}, () = self.clock.sleep(FAREWELL) => {} }
    }
}

async fn in_time<T>(clock: &Clock, patience: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        end = call => end,
        () = clock.sleep(patience) => {
            let text = format!("no answer within {}", humantime::format_duration(patience));
            Err(Error::new(ErrorKind::TimedOut, text))
        }
    }
}

fn taken(by: &WorkerInfo) -> Error {
    Error::invalid(format!(
        "the name {} is taken: a worker on {} with process id {} has it; give this one another name, or wait until that one has ended",
        by.name, by.host, by.pid
    ))
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
