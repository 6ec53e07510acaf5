//! What the fetch loop knows of one partition.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyqueue::{Error, QueueMessageHandler, Refills};
use tokio_util::sync::CancellationToken;

use crate::handler::Routes;

/// What the last pull said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    /// It has not been asked lately.
    Unknown,
    /// It gave all that was asked for: there is more.
    More,
    /// It gave less than was asked for.
    Empty,
}

/// A pull under way.
#[derive(Debug)]
pub(crate) struct Pulling {
    /// Slots that are kept for what it brings; none for a pull that waits for something to come.
    pub(crate) granted: usize,
    pub(crate) stop: CancellationToken,
    /// Tasks that had ended when it began.
    pub(crate) seen: u64,
}

/// A message that is held and has not started.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) delivery: QueueMessageHandler,
    pub(crate) claimed_at: Instant,
}

/// The state of one partition.
#[derive(Debug)]
pub(crate) struct LaneState {
    pub(crate) belief: Belief,
    pub(crate) pull: Option<Pulling>,
    pub(crate) ready: VecDeque<Ready>,
    /// Of the ready: they wait for others of their kind to end, and count against no slot.
    pub(crate) parked: usize,
    /// Pulls in a row that brought more of full kinds than may wait, and nothing else.
    pub(crate) fruitless: u32,
    /// When it may next be pulled from for more than may wait of full kinds.
    pub(crate) probe_at: Option<Instant>,
    /// Pulls that failed in a row.
    pub(crate) errors: u32,
    pub(crate) retry_at: Option<Instant>,
    /// Tasks that had ended when it was last found empty.
    pub(crate) empty_at: Option<u64>,
    /// What settlements bring with them, while this is the only lane that has something.
    pub(crate) refills: Refills,
}

/// The pause after a pull that failed; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a pull that brought only what had to be put off, because its kind is full; it doubles up to the longest.
const PROBE_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PROBE_PAUSE: Duration = Duration::from_millis(250);

/// The pause after so many in a row.
fn pause(times: u32, first: Duration, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(10).saturating_sub(1)).min(longest)
}

impl LaneState {
    pub(crate) fn new(refills: Refills) -> Self {
        Self {
            belief: Belief::Unknown,
            pull: None,
            ready: VecDeque::new(),
            parked: 0,
            fruitless: 0,
            probe_at: None,
            errors: 0,
            retry_at: None,
            empty_at: None,
            refills,
        }
    }

    /// Slots that are promised or needed: by the pull under way, and by what waits for nothing but a slot.
    pub(crate) fn claimed(&self) -> usize {
        self.pull.as_ref().map_or(0, |pull| pull.granted) + self.ready.len().saturating_sub(self.parked)
    }

    /// Takes up what a pull brought.
    pub(crate) fn hold(&mut self, deliveries: Vec<QueueMessageHandler>, routes: &Routes, now: Instant) {
        let can_start =
            |delivery| routes.of(QueueMessageHandler::message(delivery)).is_none_or(|route| route.has_room());
        if deliveries.iter().any(can_start) {
            (self.fruitless, self.probe_at) = (0, None);
        }
        let ready = deliveries
            .into_iter()
            .map(|delivery| Ready { delivery: self.refills.bind(delivery), claimed_at: now });
        self.ready.extend(ready);
    }

    /// Takes up what settlements brought. Returns whether that was anything.
    pub(crate) fn hold_refills(&mut self, now: Instant) -> bool {
        let refills = self.refills.take();
        let any = !refills.is_empty();
        self.ready.extend(refills.into_iter().map(|delivery| Ready { delivery, claimed_at: now }));
        any
    }

    /// Whether settlements may bring what comes next: where the dealing of slots has nothing to say.
    pub(crate) fn takes_refills(&self) -> bool {
        self.belief != Belief::Empty && self.errors == 0 && self.parked == 0
    }

    /// Whether it may be pulled from now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.pull.is_none() && self.retry_at.is_none_or(|at| at <= now)
    }

    /// The first message that does not wait for its kind.
    pub(crate) fn startable(&self, routes: &Routes) -> Option<usize> {
        self.ready.iter().position(|ready| !waits_for_kind(ready, routes))
    }

    /// Counts anew what waits for its kind.
    pub(crate) fn count_parked(&mut self, routes: &Routes) {
        self.parked = self.ready.iter().filter(|ready| waits_for_kind(ready, routes)).count();
    }

    pub(crate) fn failed(&mut self, now: Instant, error: &Error) {
        self.errors = self.errors.saturating_add(1);
        let pause = pause(self.errors, PAUSE, LONGEST_PAUSE);
        self.retry_at = now.checked_add(pause.mul_f64(0.5 + fastrand::f64()));
        self.belief = Belief::Unknown;
        if self.errors.is_power_of_two() {
            tracing::warn!(%error, errors = self.errors, "a pull failed; trying again in a moment");
        }
    }

    /// Takes what has been held for too long.
    pub(crate) fn take_overdue(&mut self, now: Instant, ttl: Duration) -> Vec<Ready> {
        let overdue = |ready: &Ready| now.saturating_duration_since(ready.claimed_at) >= ttl;
        if !self.ready.front().is_some_and(overdue) {
            return Vec::new();
        }
        let (late, in_time): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.ready).into_iter().partition(overdue);
        self.ready = in_time.into();
        late
    }

    /// How many more it may be pulled for: while what came last was only of full kinds, no more than may wait of those.
    pub(crate) fn appetite(&self, now: Instant, most_parked: usize) -> usize {
        let waits = self.probe_at.is_some_and(|at| at > now);
        if waits { most_parked.saturating_sub(self.parked) } else { usize::MAX }
    }

    /// Takes what is parked beyond `most`, the newest first.
    pub(crate) fn take_overparked(&mut self, routes: &Routes, most: usize, now: Instant) -> Vec<Ready> {
        let mut excess = Vec::new();
        let mut position = self.ready.len();
        while self.parked > most && position > 0 {
            position -= 1;
            let Some(ready) = self.ready.get(position) else { break };
            if waits_for_kind(ready, routes) {
                excess.extend(self.ready.remove(position));
                self.parked -= 1;
            }
        }
        if !excess.is_empty() {
            self.fruitless = self.fruitless.saturating_add(1);
            self.probe_at = now.checked_add(pause(self.fruitless, PROBE_PAUSE, LONGEST_PROBE_PAUSE));
        }
        excess
    }
}

/// Whether as many of its kind run as may.
pub(crate) fn waits_for_kind(ready: &Ready, routes: &Routes) -> bool {
    routes.of(ready.delivery.message()).is_some_and(|route| !route.has_room())
}
