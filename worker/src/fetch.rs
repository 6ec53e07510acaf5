//! The loop that pulls: slots first, then claims.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, QueueMessageHandler, Result};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use crate::lane::{Belief, LaneState, Pulling};
use crate::runner::LATE;
use crate::schedule::{Claim, Schedule};
use crate::shared::{Shared, Stage};
use crate::summary::Summary;
use crate::telemetry::{self, Book, LaneGauges};

/// How long a pull waits for something to come. It is woken by pushes; this bounds one call.
const POLL_WAIT: Duration = Duration::from_secs(10);
/// How often the loop goes round if nothing happens.
const TURN: Duration = Duration::from_secs(1);
/// How long few free slots wait for more to free, so that one pull serves several.
const GATHER: Duration = Duration::from_millis(2);
/// How long pulls that wait may go on waiting while no slot is free: what comes to them then is held for as long, and released.
pub(crate) const SATURATED: Duration = Duration::from_millis(100);
/// A burst gives up on a partition after this many failures in a row.
const BURST_ERRORS: u32 = 5;

/// The flag of a lane; one that is not there takes on nothing.
pub(crate) fn is(quiet: &[bool], index: usize) -> bool {
    quiet.get(index).copied().unwrap_or(true)
}

/// What a pull answers; nothing if it was stopped.
pub(crate) struct Answer {
    lane: usize,
    asked: usize,
    result: Option<Result<Vec<QueueMessageHandler>>>,
}

/// One run of a worker.
pub(crate) struct Fetch {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lanes: Vec<LaneState>,
    pub(crate) pulls: FuturesUnordered<BoxFuture<'static, Answer>>,
    pub(crate) schedule: Schedule,
    /// Ends when there is nothing more to do.
    pub(crate) burst: bool,
    pub(crate) book: Book,
    gauges: Vec<LaneGauges>,
    /// Since when no slot is free.
    full_since: Option<Instant>,
    /// Since when few free slots wait for more.
    gathering_since: Option<Instant>,
    /// Tasks that had ended when something was last released because no slot came free.
    pub(crate) given_back_at: Option<u64>,
    next_turn: Instant,
    failed: Option<Error>,
}

impl Fetch {
    /// # Errors
    /// `InvalidInput` for a lease that the backend cannot give.
    pub(crate) fn new(shared: Arc<Shared>, burst: bool) -> Result<Self> {
        let weights = shared.lanes.iter().map(|lane| lane.weight);
        let lanes = shared.lanes.iter();
        let lanes = lanes
            .map(|lane| Ok(LaneState::new(shared.queue.refills(&lane.id, lane.lease)?)))
            .collect::<Result<_>>()?;
        Ok(Self {
            lanes,
            pulls: FuturesUnordered::new(),
            schedule: Schedule::new(shared.config.sharing, shared.config.slots, weights),
            burst,
            book: Book::default(),
            gauges: shared.lanes.iter().map(|lane| LaneGauges::new(lane.id.name())).collect(),
            full_since: None,
            gathering_since: None,
            given_back_at: None,
            next_turn: shared.queue.clock().now(),
            failed: None,
            shared,
        })
    }

    pub(crate) async fn run(mut self) -> Result<Summary> {
        let shared = self.shared.clone();
        while *shared.stage.borrow() == Stage::Working && self.failed.is_none() {
            let now = shared.queue.clock().now();
            if now >= self.next_turn {
                self.turn(now);
            }
            let quiet = self.quiet();
            self.hold_refills(now);
            self.start_ready();
            self.open_refills(&quiet);
            self.give_back_overdue(now, &quiet);
            self.start_pulls(now, &quiet);
            if self.burst && self.is_done(&quiet) {
                break;
            }
            let wake = self.wake_at(now);
            tokio::select! {
                Some(answer) = self.pulls.next() => self.answered(answer),
                () = shared.pool.changed.notified() => {}
                () = shared.queue.clock().sleep_until(wake) => {}
            }
        }
        let abandoned = self.drain().await;
        match self.failed {
            Some(error) => Err(error),
            None => Ok(shared.tally.summary(abandoned)),
        }
    }

    /// Once a second: asks the governor, looks for stuck handlers, tells how things are.
    fn turn(&mut self, now: Instant) {
        self.next_turn = now + TURN;
        let held_back = self.shared.config.governor.as_ref().and_then(|governor| governor.check().err());
        let grace = self.shared.config.cancel_grace.saturating_add(TURN);
        let overdue = |asked: Instant| now.saturating_duration_since(asked) > grace;
        let stuck = self
            .shared
            .pool
            .running
            .tasks()
            .iter()
            .filter(|task| task.asked_at().is_some_and(overdue))
            .count();
        for (index, (lane, gauges)) in self.lanes.iter().zip(&self.gauges).enumerate() {
            gauges.set(self.shared.pool.in_lane(index), lane.ready.len());
        }
        telemetry::stuck(stuck);
        telemetry::held_back(held_back.is_some());
        // Where no pull is under way none was needed: slots, partitions or kinds are full.
        let full = self.lanes.iter().all(|lane| lane.pull.is_none());
        let mut control = self.shared.control();
        control.turned_at = now;
        if full || held_back.is_some() || control.paused.iter().all(|paused| *paused) {
            control.progress_at = now;
        }
        if stuck > control.stuck {
            tracing::error!(stuck, "handlers were asked to stop and did not: they block their thread");
        }
        control.stuck = stuck;
        if held_back != control.held_back {
            if let Some(reason) = &held_back {
                tracing::warn!("no more work is taken on: {reason}");
            } else {
                tracing::info!("more work is taken on again");
            }
            control.held_back = held_back;
        }
    }

    /// Lanes that take on nothing now: paused, or held back as all are.
    fn quiet(&self) -> Vec<bool> {
        let control = self.shared.control();
        if control.held_back.is_some() { vec![true; self.lanes.len()] } else { control.paused.clone() }
    }

    /// Takes up what settlements brought.
    pub(crate) fn hold_refills(&mut self, now: Instant) {
        let mut any = false;
        for lane in &mut self.lanes {
            any |= lane.hold_refills(now);
        }
        if any {
            self.shared.control().progress_at = now;
        }
    }

    /// Settlements bring what comes next where no other lane could want the slot.
    fn open_refills(&self, quiet: &[bool]) {
        let mut willing = self.lanes.iter().enumerate().filter(|(_, lane)| lane.belief != Belief::Empty);
        let only = willing.next().map(|(index, _)| index).filter(|_| willing.next().is_none() && !self.burst);
        for (index, lane) in self.lanes.iter().enumerate() {
            lane.refills.set_open(only == Some(index) && !is(quiet, index) && lane.takes_refills());
        }
    }

    /// Slots, and places for prefetched messages, that nothing is promised to.
    fn room(&mut self, now: Instant) -> usize {
        // In this order: what a settlement brings is there before its slot is free.
        let occupied = self.shared.pool.occupied();
        self.hold_refills(now);
        // A burst leaves nothing for later: what waits for its kind keeps more from being pulled.
        let parked = |lane: &LaneState| if self.burst { lane.parked } else { 0 };
        let claimed: usize = self.lanes.iter().map(|lane| lane.claimed() + parked(lane)).sum();
        // What was released for want of a slot would only be fetched again: not before a task has ended.
        let prefetches = self.given_back_at != Some(self.shared.pool.ended());
        let all = self.shared.config.slots + if prefetches { self.shared.config.prefetch } else { 0 };
        // Where every kind is full nothing that a pull could bring would start.
        all.saturating_sub(occupied + claimed).min(self.shared.routes.room().saturating_sub(claimed))
    }

    /// Pulls for the slots that are free: first where something is or may be, then waiting where nothing was.
    fn start_pulls(&mut self, now: Instant, quiet: &[bool]) {
        self.stop_waiting(|index, _| is(quiet, index));
        let room = self.room(now);
        if room == 0 {
            let since = *self.full_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= SATURATED {
                self.stop_waiting(|_, pull| pull.granted == 0);
            }
            return;
        }
        self.full_since = None;
        if self.gathers(room, now) {
            return;
        }
        let open =
            self.lanes.iter().enumerate().filter(|(index, lane)| lane.is_due(now) && !is(quiet, *index));
        let (empty, others): (Vec<_>, Vec<_>) = open.partition(|(_, lane)| lane.belief == Belief::Empty);
        let empty: Vec<usize> = empty.into_iter().map(|(index, _)| index).collect();
        let claims: Vec<Claim> = others.into_iter().map(|(index, _)| self.pull_claim(index, now)).collect();
        for (claim, granted) in claims.iter().zip(self.schedule.deal(room, &claims)) {
            if granted > 0 {
                self.pull(claim.partition, granted, Duration::ZERO);
            }
        }
        if self.burst || empty.is_empty() {
            return;
        }
        let share = (self.room(now) / empty.len()).max(1);
        for index in empty {
            let claim = self.pull_claim(index, now);
            let max = share.min(claim.cap.saturating_sub(claim.used));
            if max > 0 {
                self.pull(index, max, POLL_WAIT);
            }
        }
    }

    fn pull_claim(&self, index: usize, now: Instant) -> Claim {
        let lane = self.lanes.get(index);
        let used = self.shared.pool.in_lane(index) + lane.map_or(0, LaneState::claimed);
        let appetite = lane.map_or(0, |lane| lane.appetite(now, self.shared.config.slots));
        Claim { partition: index, used, cap: self.cap(index).min(used.saturating_add(appetite)) }
    }

    /// Few slots are free, and others will be in a moment: one pull for all of them then.
    fn gathers(&mut self, room: usize, now: Instant) -> bool {
        let pool = &self.shared.pool;
        let since = *self.gathering_since.get_or_insert(now);
        let goes_on =
            room < pool.quarter() && pool.settling() > 0 && now.saturating_duration_since(since) < GATHER;
        if !goes_on {
            self.gathering_since = None;
        }
        goes_on
    }

    /// Stops pulls that wait for something to come: what they claim in that moment is released by core.
    fn stop_waiting(&mut self, which: impl Fn(usize, &Pulling) -> bool) {
        for (index, lane) in self.lanes.iter().enumerate() {
            if let Some(pull) = lane.pull.as_ref().filter(|pull| which(index, pull)) {
                pull.stop.cancel();
            }
        }
    }

    fn pull(&mut self, index: usize, max: usize, wait: Duration) {
        let (Some(lane), Some(state)) = (self.shared.lanes.get(index), self.lanes.get_mut(index)) else {
            return;
        };
        let stop = CancellationToken::new();
        let granted = if wait.is_zero() { max } else { 0 };
        state.pull = Some(Pulling { granted, stop: stop.clone(), seen: self.shared.pool.ended() });
        // A burst ends where nothing is.
        let mut pull = self.shared.queue.pull(&lane.id).max(max).wait(wait).thorough(self.burst);
        if let Some(lease) = lane.lease {
            pull = pull.lease(lease);
        }
        let answer = async move {
            let result = tokio::select! {
                biased;
                result = pull.into_future() => Some(result),
                () = stop.cancelled() => None,
            };
            Answer { lane: index, asked: max, result }
        };
        self.pulls.push(answer.boxed());
    }

    pub(crate) fn answered(&mut self, answer: Answer) {
        let now = self.shared.queue.clock().now();
        let Some(lane) = self.lanes.get_mut(answer.lane) else { return };
        let pull = lane.pull.take();
        if lane.belief == Belief::Empty {
            self.schedule.woken(answer.lane);
        }
        let error = match answer.result {
            None => {
                lane.belief = Belief::Unknown;
                return;
            }
            Some(Ok(deliveries)) => {
                lane.belief = if deliveries.len() >= answer.asked { Belief::More } else { Belief::Empty };
                lane.empty_at = pull.filter(|_| deliveries.is_empty()).map(|pull| pull.seen);
                lane.hold(deliveries, &self.shared.routes, now);
                (lane.errors, lane.retry_at) = (0, None);
                None
            }
            Some(Err(error)) => {
                lane.failed(now, &error);
                if error.kind() == ErrorKind::Closed || (self.burst && lane.errors >= BURST_ERRORS) {
                    self.failed = Some(error.clone());
                }
                if let Some(gauges) = self.gauges.get(answer.lane) {
                    gauges.pull_errors.increment(1);
                }
                Some(error)
            }
        };
        let mut control = self.shared.control();
        // An error is an answer too: a restart would not mend the backend.
        control.progress_at = now;
        if let Some(failing) = control.failing.get_mut(answer.lane) {
            *failing = error;
        }
    }

    /// Whether a burst has nothing more to do: no task has ended since every partition was found empty, and none runs.
    fn is_done(&mut self, quiet: &[bool]) -> bool {
        let pool = &self.shared.pool;
        let held = self.lanes.iter().any(|lane| !lane.ready.is_empty() || lane.pull.is_some());
        if held || pool.occupied() > 0 {
            return false;
        }
        let ended = pool.ended();
        let mut done = true;
        for (lane, quiet) in self.lanes.iter_mut().zip(quiet) {
            if *quiet || lane.empty_at == Some(ended) {
                continue;
            }
            done = false;
            if lane.belief == Belief::Empty {
                lane.belief = Belief::Unknown;
                // The loop goes round once more, and asks.
                pool.changed.notify_one();
            }
        }
        done
    }

    /// When the loop must go round if nothing happens.
    fn wake_at(&self, now: Instant) -> Instant {
        let mut wake = self.next_turn;
        for (index, lane) in self.lanes.iter().enumerate() {
            let retry = lane.retry_at.filter(|at| *at > now);
            let overdue = lane.ready.front().and_then(|ready| ready.claimed_at.checked_add(self.hold(index)));
            let probe = lane.probe_at.filter(|at| *at > now);
            wake = [retry, overdue, probe].into_iter().flatten().fold(wake, Instant::min);
        }
        let full = self.full_since.map(|since| since + SATURATED).filter(|at| *at > now);
        let gathered = self.gathering_since.map(|since| since + GATHER).filter(|at| *at > now);
        let runs = Some(now + LATE).filter(|_| self.shared.runs.is_left());
        [full, gathered, runs].into_iter().flatten().fold(wake, Instant::min)
    }
}
