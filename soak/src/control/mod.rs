//! Worker processes that register, share a limit and run a schedule, while they are killed and frozen.

mod cap;
mod cron;
mod herd;
mod record;
mod rest;
mod worker;

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::{EndState, MessageData, MessageId, Queue};
use anyqueue_control::limits::{Limit, Limits};
use anyqueue_control::registry::Registry;
use anyqueue_worker::task;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::account::Account;
use crate::actors::{AGAIN, store};
use crate::backends::Result;
use crate::open::Places;
use crate::survey::{keeping, survey};
use herd::{Herd, WORKERS};
use record::{Note, Reader, What, Writer};
use worker::{BEAT, Job, KIND, SLOTS, TASKS};

pub(crate) use worker::{Arguments as WorkerArguments, work};

/// The maximum number of tasks that run at once.
const CAP: u64 = 5;
/// The cap after that: as many as there are slots.
const ALL_SLOTS: u64 = (WORKERS * SLOTS) as u64;
/// The limit's name.
const LIMIT: &str = "tasks";
/// The maximum number of waiting tasks, and the number in one push.
const MOST_WAITING: usize = 200;
const BATCH: usize = 25;
/// The time between two checks of what is done.
const LOOK: Duration = Duration::from_millis(200);
/// How long a task takes, in milliseconds.
const TASK_MS: std::ops::Range<u64> = 5..100;
/// One task in this many fails for good.
const DYING: u8 = 20;
/// How long it may take after the last fault until all is done.
const PATIENCE: Duration = Duration::from_mins(3);
/// If nothing has run for this long, nothing will: leases and delays are shorter.
const QUIET: Duration = Duration::from_secs(12);
/// How long each of the tasks takes that are to fill all slots.
const FILLING: Duration = Duration::from_secs(8);

/// The processes and what is known of them.
#[derive(Debug)]
pub(crate) struct Control {
    herd: Herd,
    direct: Places,
    watch: Watch,
    _folder: TempDir,
}

/// What was pushed for the processes, and what they have noted.
#[derive(Debug)]
struct Watch {
    account: Account,
    reader: Reader,
    notes: Vec<Note>,
    done: HashSet<MessageId>,
    last_note: Instant,
}

/// The results.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) report: Value,
    pub(crate) violations: Vec<String>,
}

impl Control {
    /// Stores the limit and the schedule, and starts the processes, which reach the servers at `places`; the
    /// soak itself reaches them at `direct`.
    pub(crate) async fn start(places: Places, direct: Places) -> Result<Self> {
        let queue = direct.open_to_look().await?;
        let home = direct.open_control(&queue).await?;
        home.init().await?;
        Limits::new(home.control()?).put(LIMIT, &Limit::partition(TASKS)?.cap(CAP)).await?;
        cron::put(&direct.scheduler(&queue, &home)?).await?;
        let folder = tempfile::tempdir()?;
        let record = folder.path().join("record");
        Writer::open(&record, 0)?;
        let watch = Watch {
            account: Account::new(queue.capabilities().moves),
            reader: Reader::open(&record)?,
            notes: Vec::new(),
            done: HashSet::new(),
            last_note: Instant::now(),
        };
        let herd = Herd::start(places, record)?;
        Ok(Self { herd, direct, watch, _folder: folder })
    }

    /// Gives the processes tasks, through a queue that is exposed to the faults, and disrupts them, until the
    /// given time.
    pub(crate) async fn disrupt(&mut self, queue: Queue, rng: fastrand::Rng, until: Instant) -> Result<()> {
        let Self { herd, watch, .. } = self;
        tokio::try_join!(herd.disrupt(rng, until), watch.feed(&queue, until)).map(drop)
    }

    /// Waits until all is done, and checks whether anything leaked. To be called after the last fault.
    pub(crate) async fn close(mut self) -> Result<Outcome> {
        let (mut violations, is_beside) = (Vec::new(), self.direct.store_url.is_some());
        if !self.watch.all_done(PATIENCE).await? {
            violations.push("the tasks of the worker processes were not done in time".to_owned());
        }
        self.herd.replace_the_dead()?;
        // Opened now, because the earlier connections are to servers that were killed.
        let queue = self.direct.open_to_look().await?;
        let home = self.direct.open_control(&queue).await?;
        let (registry, limits) = (Registry::new(home.control()?), Limits::new(home.control()?));
        violations.extend(rest::of_registry(&registry, &self.herd.names()).await?);
        violations.extend(rest::of_limit(&limits, LIMIT, &self.herd.names()).await?);
        let lifted_ns = record::now_ns();
        limits.put(LIMIT, &Limit::partition(TASKS)?.cap(ALL_SLOTS)).await?;
        tokio::time::sleep(BEAT * 5).await;
        self.fill_slots(&queue).await?;
        let (ended_at, harms, disrupted) =
            (SystemTime::now(), self.herd.counts(), self.herd.disrupted().to_vec());
        violations.extend(self.herd.end().await?);
        violations.extend(rest::of_nobody(&registry).await?);
        violations.extend(rest::of_limit(&limits, LIMIT, &[]).await?);

        self.watch.read()?;
        let (runs, endless) = cap::runs(&self.watch.notes, &disrupted);
        let (before, after): (Vec<_>, Vec<_>) =
            runs.iter().copied().partition(|run| run.began_before(lifted_ns));
        let (most, most_after) = (cap::most_at_once(before.iter().copied()), cap::most_at_once(after));
        let crowd = cap::crowd(&before, &disrupted, i64::try_from(CAP)?);
        violations.extend(judge(most, &crowd, most_after, endless));
        let fired = cron::fired(&queue).await?;
        violations.extend(fired.violations(ended_at, !is_beside));
        let mut report = json!({
            "workers": WORKERS,
            "slots": SLOTS,
            "harms": harms,
            "tasks": self.watch.account.acknowledged().len(),
            "runs": runs.len(),
            "cap": CAP,
            "most_at_once": most,
            "most_at_once_in_all_slots": most_after,
            "times_of_the_schedule": fired.count(),
            "times_that_came_twice": fired.twice(),
        });
        if queue.keeps_ends() {
            let (found, wrong) = survey(&queue, TASKS).await?;
            violations.extend(
                wrong.into_iter().chain(self.watch.account.ledger_violations(&found, keeping(&queue))),
            );
            if let Some(report) = report.as_object_mut() {
                report.insert("ledger".to_owned(), found.totals());
            }
        }
        let violations = violations.into_iter().map(|text| format!("control: {text}")).collect();
        Ok(Outcome { report, violations })
    }

    /// Runs as many tasks as there are slots and permits: whatever kept one of those would keep one of these
    /// tasks from running with the others.
    async fn fill_slots(&mut self, queue: &Queue) -> Result<()> {
        let ms = u64::try_from(FILLING.as_millis())?;
        let jobs = vec![Job { ms, dies: false }; WORKERS * SLOTS];
        self.watch.push(queue, &jobs).await?;
        self.watch.all_done(PATIENCE).await.map(drop)
    }
}

/// Returns what is wrong with how many ran at once.
fn judge(most: i64, crowd: &str, most_after: i64, endless: usize) -> Vec<String> {
    let [cap, slots] = [CAP, ALL_SLOTS].map(|most| i64::try_from(most).unwrap_or(0));
    let mut violations = Vec::new();
    if most > cap {
        violations.push(format!("{most} tasks ran at once under a cap of {cap}{crowd}"));
    }
    if most_after != slots {
        violations.push(format!("{most_after} tasks ran at once in {slots} slots, with as many permits"));
    }
    if endless > 0 {
        violations.push(format!("{endless} runs neither ended nor were killed"));
    }
    violations
}

impl Watch {
    /// Pushes tasks as fast as they are done.
    async fn feed(&mut self, queue: &Queue, until: Instant) -> Result<()> {
        while Instant::now() < until {
            self.read()?;
            let waiting = self.account.acknowledged().len().saturating_sub(self.done.len());
            if waiting < MOST_WAITING {
                let job = |_| Job { ms: fastrand::u64(TASK_MS), dies: fastrand::u8(0..DYING) == 0 };
                let jobs: Vec<_> = (0..BATCH).map(job).collect();
                self.push(queue, &jobs).await?;
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn push(&self, queue: &Queue, jobs: &[Job]) -> Result<()> {
        let mut batch: Vec<MessageData> = Vec::new();
        for job in jobs {
            let message = task(KIND, job)?;
            let end = if job.dies { EndState::Failed } else { EndState::Succeeded };
            self.account.bind(message.id(), end);
            batch.push(message);
        }
        store(queue, TASKS, &self.account, batch, AGAIN).await;
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let notes = self.reader.read()?;
        if !notes.is_empty() {
            self.last_note = Instant::now();
        }
        let done = notes.iter().filter(|note| note.what == What::Done);
        self.done.extend(done.map(|note| note.task));
        self.notes.extend(notes);
        Ok(())
    }

    /// Waits until all acknowledged tasks have run to their end, and nothing has run for a while.
    async fn all_done(&mut self, longest: Duration) -> Result<bool> {
        let (ids, deadline) = (self.account.acknowledged(), Instant::now() + longest);
        // The last fault may have kept everybody from working until now.
        self.last_note = Instant::now();
        while Instant::now() < deadline {
            self.read()?;
            if self.last_note.elapsed() >= QUIET && ids.iter().all(|id| self.done.contains(id)) {
                return Ok(true);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(false)
    }
}
