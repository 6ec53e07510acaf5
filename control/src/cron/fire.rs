//! What a tick does: it pushes the tasks that are due, and the next tick takes its place.

use std::time::{Duration, Instant, SystemTime};

use anyqueue::QueueMessageStatus::{self, Processed};
use anyqueue::adapter::Dedup;
use anyqueue::{
    Delivery, Error, ErrorKind, MessageData, PushOutcome, Result, RetryClass, SettleOutcome, Successors,
};

use super::pause::look;
use super::plan::{Plan, pass, plan};
use super::record::{Record, Run, RunOutcome, key_of};
use super::schedule::{Running, Schedule};
use super::scheduler::Shared;
use super::task::task;
use super::tick::{TICKS, Tick, millis, task_id};

/// When to look again at a tick that this release, or this machine, cannot read.
const UNREADABLE: Duration = Duration::from_secs(30);
/// When to try again after a failure.
const FAILED: Duration = Duration::from_secs(5);

/// One run of a schedule's tick, while its lease is held.
pub(super) struct Firing<'a> {
    pub(super) shared: &'a Shared,
    pub(super) tick: Tick,
    pub(super) record: Record,
    pub(super) schedule: Schedule,
    /// The server's time, and when the server returned it.
    pub(super) now: SystemTime,
    told: Instant,
}

impl Shared {
    /// Does the work of a tick. After a failure it is tried again, by whichever process comes first.
    pub(super) async fn fire(&self, mut delivery: Delivery) {
        let Err(error) = self.try_fire(&mut delivery).await else { return };
        tracing::debug!(%error, "the tick of a schedule is tried again");
        metrics::counter!("anyqueue_cron_failed_total").increment(1);
        // If that fails too, the delivery is dropped: the tick comes back at once, or when its lease ends.
        let _ = delivery.settle(QueueMessageStatus::postponed(FAILED)).await;
    }

    async fn try_fire(&self, delivery: &mut Delivery) -> Result<()> {
        let tick = match Tick::of(delivery) {
            Ok(tick) => tick,
            Err(error) if error.kind() == ErrorKind::Incompatible => {
                return self.put_off(delivery, UNREADABLE).await;
            }
            Err(error) => {
                tracing::warn!(%error, id = %delivery.id(), "it becomes a dead letter of {TICKS}");
                let why = error.message().to_owned();
                return delivery.settle(QueueMessageStatus::Poisonous { reason: why }).await.map(|_| ());
            }
        };
        let found = self.store.get(&key_of(&tick.name)?).await?;
        let told = self.home.clock().now();
        let Some(entry) = found.value else { return end(delivery).await };
        let readable = Record::of(&entry).and_then(|record| Ok((record.schedule(&tick.name)?, record)));
        let (schedule, record) = match readable {
            Ok(readable) => readable,
            Err(error) => {
                self.warn_once(&tick.name, &error);
                return self.put_off(delivery, UNREADABLE).await;
            }
        };
        self.can_be_read(&tick.name);
        if record.revision != tick.revision || record.is_done_with(tick.at_ms) {
            return end(delivery).await;
        }
        if let Ok(early) = tick.at().duration_since(found.now)
            && !early.is_zero()
        {
            return self.put_off(delivery, early).await;
        }
        Firing { shared: self, tick, record, schedule, now: found.now, told }.run(delivery).await
    }

    async fn put_off(&self, delivery: &mut Delivery, delay: Duration) -> Result<()> {
        let allowed = self.home.capabilities().postpone_delay;
        let delay = allowed.map_or(Duration::ZERO, |allowed| delay.min(allowed.max));
        delivery.settle(QueueMessageStatus::postponed(delay)).await.map(|_| ())
    }
}

/// Ends a tick of a schedule that is gone, or of a content that was replaced.
async fn end(delivery: &mut Delivery) -> Result<()> {
    delivery.settle(Processed).await.map(|_| ())
}

impl Firing<'_> {
    async fn run(self, delivery: &mut Delivery) -> Result<()> {
        let of = if self.record.paused { pass } else { plan };
        let mut plan = of(&self.schedule, self.tick.at(), self.now);
        if let Some(pause) = self.schedule.timetable.spec().pause().filter(|_| !plan.run.is_empty()) {
            if let Some((next, lives)) = self.waits(pause).await? {
                return self.wait(delivery, next, lives).await;
            }
            plan.next = self.now.max(self.tick.at()).checked_add(look(pause));
        }
        if self.schedule.running == Running::CancelOld && !plan.run.is_empty() {
            self.cancel_old().await?;
        }
        let before = self.still_lives().await;
        let refused = match self.settle(delivery, &plan).await? {
            Settled::Done(refused) => refused,
            // Another process has the tick, and does all of this.
            Settled::Lost => return Ok(()),
        };
        let outcome = match (&refused, plan.run.last()) {
            (Refused::Because(_), _) => RunOutcome::Refused,
            (_, None) if self.record.paused => RunOutcome::Paused,
            (_, None) => RunOutcome::Missed,
            (Refused::Duplicate, Some(_)) => RunOutcome::Running,
            (Refused::No, Some(at)) => self.pushed(*at, before).await,
        };
        metrics::counter!("anyqueue_cron_runs_total", "outcome" => outcome.as_str()).increment(1);
        self.note(&plan, outcome, refused).await
    }

    /// Ends the tick. Its successors are the tasks, if that is one step, and the next tick.
    async fn settle(&self, delivery: &mut Delivery, plan: &Plan) -> Result<Settled> {
        let tasks = plan.run.iter().map(|at| self.task(*at));
        let mut refused = Refused::No;
        if self.shared.in_one_step {
            let with_tasks = self.then(tasks, plan, true)?;
            match delivery.settle_with(Processed, with_tasks).await {
                Ok(outcome) => return Ok(Settled::of(outcome, refused)),
                Err(error) if is_refusal(&error) => refused = self.is_refused(error),
                Err(error) => return Err(error),
            }
        } else {
            for task in tasks {
                let own = task.id();
                match self.shared.tasks.push(&self.schedule.partition, task).await {
                    // If this is a repetition, the task itself is there already, under its own id.
                    Ok(PushOutcome::Duplicate(other)) if other != Some(own) => refused = Refused::Duplicate,
                    Ok(_) => refused = Refused::No,
                    Err(error) if is_refusal(&error) => refused = self.is_refused(error),
                    Err(error) => return Err(error),
                }
            }
        }
        let is_pushed = matches!(refused, Refused::No);
        let then = self.then(std::iter::empty(), plan, is_pushed)?;
        Ok(Settled::of(delivery.settle_with(Processed, then).await?, refused))
    }

    fn task(&self, at: SystemTime) -> MessageData {
        let id = task_id(&self.schedule.name, &self.record.revision, at);
        let task = task(&self.schedule, id, at, self.server_time());
        match self.shared.tasks.capabilities().dedup {
            // If this process dies before the tick has ended, the next one pushes nothing new.
            Dedup::Window(_) => task.with_dedup_key(id.to_string()),
            _ => task,
        }
    }

    /// The tasks, and the next tick, which names the task that is pushed.
    fn then(
        &self,
        tasks: impl Iterator<Item = MessageData>,
        plan: &Plan,
        is_pushed: bool,
    ) -> Result<Successors> {
        let mut then = Successors::new();
        for task in tasks {
            then = then.then(&self.schedule.partition, task)?;
        }
        let Some(next) = self.next(plan, is_pushed) else { return Ok(then) };
        let last = plan.run.last().filter(|_| is_pushed);
        let pushed = last.map(|at| task_id(&self.schedule.name, &self.record.revision, *at));
        // Without a run, the earlier task is still the last one.
        let before = || {
            let is_behind = self.schedule.timetable.spec().pause().is_none();
            self.tick.earlier.as_deref().filter(|_| is_behind).and_then(|id| id.parse().ok())
        };
        let tick = Tick::new(&self.tick.name, &self.tick.revision, next).behind(pushed.or_else(before));
        then.then(TICKS, self.delayed(&tick)?)
    }

    /// When the schedule is due next. After a refused task there is no end to wait for.
    fn next(&self, plan: &Plan, is_pushed: bool) -> Option<SystemTime> {
        match self.schedule.timetable.spec().pause() {
            Some(pause) if !is_pushed => self.now.max(self.tick.at()).checked_add(pause),
            _ => plan.next,
        }
    }

    /// A tick as a message that is due in time.
    pub(super) fn delayed(&self, tick: &Tick) -> Result<MessageData> {
        let delay = tick.at().duration_since(self.server_time()).unwrap_or_default();
        tick.message(self.shared.within_delays(delay))
    }

    /// The server's time now, computed from the time that it last returned.
    pub(super) fn server_time(&self) -> SystemTime {
        let since = self.shared.home.clock().now().saturating_duration_since(self.told);
        self.now.checked_add(since).unwrap_or(self.now)
    }

    fn is_refused(&self, error: Error) -> Refused {
        tracing::warn!(schedule = self.tick.name, %error, "the task of a schedule was refused: put the schedule again");
        Refused::Because(error)
    }

    /// Whether the task that was pushed last is alive, if that keeps others out and can be seen. If looking
    /// fails, it counts as not alive.
    async fn still_lives(&self) -> bool {
        let last = self.record.pushed.as_deref().and_then(|id| id.parse().ok());
        let Some(last) = last.filter(|_| self.keeps_others_out()) else { return false };
        let found = self.shared.tasks.task(&self.schedule.partition, last).await;
        found.is_ok_and(|task| task.is_some_and(|task| task.state.ended().is_none()))
    }

    /// Whether the task of this time was stored, which a settlement does not say. If the task is nowhere,
    /// although an earlier one was alive just before, it was not stored.
    async fn pushed(&self, at: SystemTime, earlier_lived: bool) -> RunOutcome {
        if !self.shared.in_one_step || !earlier_lived {
            return RunOutcome::Pushed;
        }
        let id = task_id(&self.schedule.name, &self.record.revision, at);
        match self.shared.tasks.task(&self.schedule.partition, id).await {
            Ok(None) => RunOutcome::Running,
            _ => RunOutcome::Pushed,
        }
    }

    fn keeps_others_out(&self) -> bool {
        let keeps = matches!(self.schedule.running, Running::Skip | Running::BufferOne);
        keeps && self.shared.tasks.capabilities().inspect.browse
    }

    /// Notes what was done. If this fails, the schedule continues all the same.
    async fn note(&self, plan: &Plan, outcome: RunOutcome, refused: Refused) -> Result<()> {
        let due = plan.run.last().copied().unwrap_or_else(|| self.tick.at());
        let id = task_id(&self.schedule.name, &self.record.revision, due).to_string();
        let id = (outcome == RunOutcome::Pushed).then_some(id);
        let error = match refused {
            Refused::Because(error) => Some(error.message().chars().take(500).collect()),
            _ => None,
        };
        let (due_ms, done_ms) = (millis(due), millis(self.server_time()));
        let next = self.next(plan, outcome == RunOutcome::Pushed);
        let run = Run { due_ms, done_ms, outcome, id, error };
        let noted = self.shared.note(&self.tick.name, &self.tick.revision, |there| {
            let is_news = !there.is_done_with(self.tick.at_ms);
            if is_news {
                (there.started, there.next_ms, there.noted_ms) = (true, next.map(millis), done_ms);
                there.pushed = run.id.clone().or_else(|| there.pushed.take());
                there.last = Some(run.clone());
            }
            is_news
        });
        self.is_noted(noted.await);
        Ok(())
    }

    pub(super) fn is_noted(&self, noted: Result<()>) {
        if let Err(error) = noted {
            tracing::debug!(schedule = self.tick.name, %error, "the outcome of a schedule could not be recorded");
        }
    }
}

/// How the settlement of a tick ended.
enum Settled {
    Done(Refused),
    Lost,
}

impl Settled {
    fn of(outcome: SettleOutcome, refused: Refused) -> Self {
        match outcome {
            SettleOutcome::Settled => Self::Done(refused),
            SettleOutcome::Lost => Self::Lost,
        }
    }
}

/// Why the task of the latest time was not stored, if the backend said so.
enum Refused {
    No,
    Duplicate,
    Because(Error),
}

/// Whether the backend will never accept the task as it is. The schedule continues without it.
pub(super) fn is_refusal(error: &Error) -> bool {
    let kinds = [ErrorKind::InvalidInput, ErrorKind::TooLarge, ErrorKind::Unsupported];
    error.retry() == RetryClass::Never && kinds.contains(&error.kind())
}
