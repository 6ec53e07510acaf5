//! Getting permits and keeping them: with regular beats, and with turns in between for what is missing.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyqueue::control::{Applied, ControlStore, Entry, Key, MAX_CONTROL_CHANGES};
use anyqueue::{Clock, Error, ErrorKind, PartitionId, Result};
use tokio::sync::Notify;

use super::gate::Gates;
use super::held::Held;
use super::keys::{LIMITS, MAX_LIMITS, key_of, name_of};
use super::plan::{Me, Moment, Plan};
use super::record::Record;
use super::stock::Stock;

/// How often a turn is tried if others are first.
const ROUNDS: usize = 16;
/// The longest time from a failed turn to the next one.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the permits of one worker.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) store: ControlStore,
    pub(super) me: Me,
    pub(super) clock: OnceLock<Clock>,
    stock: Mutex<Stock>,
    /// The limits that depend on the message.
    pub(super) gates: Gates,
    /// Wakes the beat when something is missing.
    pub(super) asked: Notify,
    /// Wakes the worker when there may be more room.
    pub(super) changed: Notify,
    problem: Mutex<Option<String>>,
    /// Only one task keeps the permits at a time.
    turns: tokio::sync::Mutex<()>,
}

impl Keeper {
    pub(super) fn new(store: ControlStore, me: Me) -> Self {
        Self {
            store,
            me,
            clock: OnceLock::new(),
            stock: Mutex::default(),
            gates: Gates::default(),
            asked: Notify::new(),
            changed: Notify::new(),
            problem: Mutex::default(),
            turns: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gets permits for these partitions and keeps them. Never returns.
    pub(super) async fn keep(&self, who: &str, partitions: &[PartitionId], clock: &Clock) {
        let _turns = self.turns.lock().await;
        {
            let mut stock = self.stock();
            (stock.is_known, stock.is_leaving) = (false, false);
            (stock.who, stock.served) = (who.to_owned(), partitions.to_vec());
        }
        tokio::select! {
            () = self.beat(clock) => {},
            () = self.revoke(clock) => {},
            () = self.tend(clock) => {},
        }
    }

    async fn beat(&self, clock: &Clock) {
        let (mut beat_at, mut is_cut_off) = (clock.now(), false);
        loop {
            let now = clock.now();
            let is_beat = now >= beat_at;
            let needy = if is_beat || is_cut_off { Vec::new() } else { self.stock().needy(now) };
            if is_beat || !needy.is_empty() {
                let turn = self.turn_in_time((!is_beat).then_some(&needy), clock).await;
                is_cut_off = turn.is_err();
                beat_at = self.note(&turn, beat_at, is_beat, clock.now());
                self.changed.notify_one();
            }
            let now = clock.now();
            if self.stock().take_hints(now) {
                self.changed.notify_one();
            }
            let wake = self.stock().wake_at(now).filter(|_| !is_cut_off);
            let wake = wake.map_or(beat_at, |at| at.min(beat_at));
            tokio::select! { () = clock.sleep_until(wake) => {}, () = self.asked.notified() => {} }
        }
    }

    /// Notes whether the store can be reached. Returns when the next beat is due.
    fn note(&self, turn: &Result<Vec<String>>, beat_at: Instant, is_beat: bool, now: Instant) -> Instant {
        let text = match turn {
            Ok(unreadable) if unreadable.is_empty() => None,
            Ok(unreadable) => Some(unreadable.join("; ")),
            Err(error) => Some(format!(
                "limits cannot be reached, so no task is started that they may apply to: {error}"
            )),
        };
        let failed = turn.is_err();
        if is_beat || failed {
            let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
            if let (None, Some(text)) = (&*problem, &text) {
                tracing::warn!(session = self.me.session, "{text}");
            } else if problem.is_some() && text.is_none() {
                tracing::info!(session = self.me.session, "limits can be reached again");
            }
            *problem = text;
        }
        match (failed, is_beat) {
            // What may have been written should be known soon.
            (true, _) => now + RETRY.min(self.me.every),
            // So that not all processes beat at the same time.
            (false, true) => now + self.me.every.mul_f64(0.9 + 0.1 * fastrand::f64()),
            (false, false) => beat_at,
        }
    }

    async fn turn_in_time(&self, needy: Option<&Vec<String>>, clock: &Clock) -> Result<Vec<String>> {
        let patience = self.me.valid_for / 3;
        tokio::select! {
            biased;
            turn = self.turn(needy, clock) => turn,
            () = clock.sleep(patience) => {
                let text = format!("no answer within {}", humantime::format_duration(patience));
                Err(Error::new(ErrorKind::TimedOut, text))
            }
        }
    }

    /// Looks at all limits, or at the needy ones, and changes what this process has of them. Returns what is
    /// wrong with entries.
    async fn turn(&self, needy: Option<&Vec<String>>, clock: &Clock) -> Result<Vec<String>> {
        let mut sent_at = clock.now();
        let (mut now, mut entries) = self.look(needy).await?;
        let mut unreadable = Vec::new();
        if needy.is_none() {
            self.take_up(&entries, now);
        }
        for _ in 0..ROUNDS {
            let moment = Moment { sent_at, now };
            let plans = self.plans(&entries, moment, &mut unreadable, clock.now());
            if plans.is_empty() {
                if needy.is_none() {
                    self.stock().forget_peaks();
                }
                return Ok(unreadable);
            }
            sent_at = clock.now();
            (now, entries) = self.apply(plans, clock).await?;
        }
        let text = "others keep changing the entries of limits: trying again";
        Err(Error::new(ErrorKind::Unavailable, text))
    }

    async fn look(&self, needy: Option<&Vec<String>>) -> Result<(SystemTime, Vec<(String, Option<Entry>)>)> {
        let Some(needy) = needy else {
            let found = self.store.list_all(LIMITS, MAX_LIMITS).await?;
            let named = |entry: Entry| (name_of(&entry.key).to_owned(), Some(entry));
            return Ok((found.now, found.value.into_iter().map(named).collect()));
        };
        let names: Vec<_> = needy.iter().take(MAX_CONTROL_CHANGES).cloned().collect();
        let keys = names.iter().map(|name| key_of(name)).collect::<Result<Vec<Key>>>()?;
        let found = self.store.get_many(&keys).await?;
        Ok((found.now, names.into_iter().zip(found.value).collect()))
    }

    /// Forgets the limits that are gone, and takes up those that depend on the message.
    fn take_up(&self, entries: &[(String, Option<Entry>)], now: SystemTime) {
        let record = |entry: &Entry| Record::of(entry, now).ok();
        let readable = entries.iter().map(|(name, entry)| (name.as_str(), entry.as_ref().and_then(record)));
        self.gates.take_up(readable);
        let mut stock = self.stock();
        stock.limits.retain(|name, _| entries.iter().any(|(there, _)| there == name));
    }

    /// Plans what to do about these entries. A plan without a change is taken up at once.
    fn plans(
        &self,
        entries: &[(String, Option<Entry>)],
        moment: Moment,
        unreadable: &mut Vec<String>,
        now: Instant,
    ) -> Vec<Plan> {
        let mut stock = self.stock();
        let mut plans = Vec::new();
        for (name, entry) in entries {
            match self.plan(&mut stock, (name, entry.as_ref()), moment) {
                Ok(Some(plan)) if plan.change.is_some() => plans.push(plan),
                Ok(Some(plan)) => self.me.commit(&mut stock, &plan, now),
                Ok(None) => drop(stock.limits.remove(name)),
                // The limit is not known: what is held of it ends when its time is over, and nothing more is
                // taken.
                Err(error) => {
                    stock.put_off(name, now + self.me.every);
                    unreadable.push(format!("the limit {name}: {error}"));
                }
            }
        }
        stock.is_known = true;
        plans
    }

    fn plan(
        &self,
        stock: &mut Stock,
        (name, entry): (&str, Option<&Entry>),
        moment: Moment,
    ) -> Result<Option<Plan>> {
        let Some(entry) = entry else { return Ok(None) };
        let record = Record::of(entry, moment.now)?;
        let covered = stock.served.iter().find(|partition| record.of.covers(&partition.to_string()));
        let Some(partition) = covered.cloned() else { return Ok(None) };
        if stock.limits.get(name).is_none_or(|held| held.partition != partition) {
            stock.limits.insert(name.to_owned(), Held::new(partition));
        }
        self.me.plan(stock, name, entry, record, moment).map(Some)
    }

    /// Makes the changes. Returns the entries that others changed first.
    async fn apply(
        &self,
        mut plans: Vec<Plan>,
        clock: &Clock,
    ) -> Result<(SystemTime, Vec<(String, Option<Entry>)>)> {
        let (mut now, mut conflicts) = (SystemTime::UNIX_EPOCH, Vec::new());
        while !plans.is_empty() {
            let rest = plans.split_off(plans.len().min(MAX_CONTROL_CHANGES));
            let changes = plans.iter().filter_map(|plan| plan.change.clone()).collect();
            let applied = self.store.apply_all(changes).await?;
            now = applied.now;
            let mut stock = self.stock();
            for (plan, applied) in plans.iter().zip(applied.value) {
                match applied {
                    Applied::Done => self.me.commit(&mut stock, plan, clock.now()),
                    Applied::Conflict(entry) => conflicts.push((plan.name.clone(), entry)),
                }
            }
            drop(stock);
            plans = rest;
        }
        Ok((now, conflicts))
    }

    /// Stops tasks whose permits end, even while the store does not respond. Never returns.
    async fn revoke(&self, clock: &Clock) {
        loop {
            let now = clock.now();
            let next = [self.stock().revoke_due(now), self.gates.revoke_due(now)].into_iter().flatten().min();
            let look = now + self.me.lead();
            clock.sleep_until(next.map_or(look, |next| next.min(look))).await;
        }
    }

    /// Releases what is not in use.
    pub(super) async fn leave(&self) {
        self.stock().is_leaving = true;
        let (_turns, Some(clock)) = (self.turns.lock().await, self.clock.get()) else { return };
        if let Err(error) = self.turn_in_time(None, clock).await {
            tracing::debug!(%error, "permits were not released: they expire by themselves");
        }
        self.tend_once(clock).await;
    }
}
