//! What the fetch loop knows about one partition.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyqueue::{Delivery, Error, GroupDelivery, PartitionId, Result, SettlePulls};
use tokio_util::sync::CancellationToken;

use crate::handler::Routes;
use crate::permits::Permit;

/// What the last pull showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastPull {
    /// There was no pull recently.
    Unknown,
    /// It brought all that was asked for, so there may be more.
    More,
    /// It brought less than was asked for.
    Empty,
}

/// How a pull ended.
pub(super) struct Pulled {
    pub(super) partition: usize,
    pub(super) asked: usize,
    /// `None` if the pull was stopped.
    pub(super) result: Option<Result<Brought>>,
}

/// What a pull brought.
pub(super) enum Brought {
    Messages(Vec<Delivery>),
    Groups(Vec<GroupDelivery>),
}

impl Brought {
    /// The number of messages.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Messages(messages) => messages.len(),
            Self::Groups(groups) => groups.iter().map(|group| group.members().len()).sum(),
        }
    }
}

/// A pull under way.
#[derive(Debug)]
pub(super) struct ActivePull {
    /// Slots that are reserved for what the pull brings; none for a pull that waits for messages.
    pub(super) reserved: usize,
    pub(super) stop: CancellationToken,
    /// How many tasks had ended when the pull began.
    pub(super) seen: u64,
    /// The permit for what the pull may bring, if permits are needed.
    pub(super) permit: Option<Permit>,
}

impl ActivePull {
    /// Whether it waits for messages.
    pub(super) fn waits(&self) -> bool {
        self.reserved == 0
    }
}

/// A message that is held and has not started, with the messages that run together with it.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) delivery: Delivery,
    /// The other tasks of its batch, in order.
    pub(super) behind: Vec<Delivery>,
    pub(super) claimed_at: Instant,
    /// How many slots it takes.
    pub(super) slots: usize,
    /// Its permit, if permits are needed and it came with one.
    pub(super) permit: Option<Permit>,
}

impl Ready {
    pub(super) fn alone(delivery: Delivery, routes: &Routes, claimed_at: Instant) -> Self {
        let slots = routes.slots_of(delivery.message());
        Self { delivery, behind: Vec::new(), claimed_at, slots, permit: None }
    }

    /// The number of messages.
    pub(super) fn len(&self) -> usize {
        1 + self.behind.len()
    }

    /// All of them, in order.
    pub(super) fn into_deliveries(self) -> impl Iterator<Item = Delivery> {
        std::iter::once(self.delivery).chain(self.behind)
    }
}

/// The state of one partition.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) last_pull: LastPull,
    pub(super) pull: Option<ActivePull>,
    pub(super) ready: VecDeque<Ready>,
    /// How many of the ready messages wait for others of their kind to end. They do not count against any
    /// slot.
    pub(super) parked: usize,
    /// How many slots the other ready messages need beyond one each, because they are heavy.
    extra: usize,
    /// How many slots a message is expected to take: the average of the last pull.
    pub(super) slots_each: usize,
    /// How many pulls in a row brought only messages of full kinds, and more of them than may wait.
    pub(super) blocked_pulls: u32,
    /// When the partition may next be pulled from for more messages than may wait for full kinds.
    pub(super) probe_at: Option<Instant>,
    /// How many pulls failed in a row.
    pub(super) errors: u32,
    pub(super) retry_at: Option<Instant>,
    /// How many tasks had ended when the partition was last found empty.
    pub(super) empty_at: Option<u64>,
    /// The messages that settlements bring with them, while only this partition has messages.
    pub(super) settle_pulls: SettlePulls,
    /// Whether the partition is pulled in whole groups, which settlements do not bring.
    pub(super) in_groups: bool,
}

/// The pause after a pull that failed; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a pull that brought only messages to defer because their kind is full; it doubles up to
/// the longest.
const PROBE_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PROBE_PAUSE: Duration = Duration::from_millis(250);

/// The pause after this many failed or blocked pulls in a row.
fn pause(times: u32, first: Duration, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(10).saturating_sub(1)).min(longest)
}

impl PartitionState {
    pub(super) fn new(settle_pulls: SettlePulls, in_groups: bool) -> Self {
        Self {
            last_pull: LastPull::Unknown,
            pull: None,
            ready: VecDeque::new(),
            parked: 0,
            extra: 0,
            slots_each: 1,
            blocked_pulls: 0,
            probe_at: None,
            errors: 0,
            retry_at: None,
            empty_at: None,
            settle_pulls,
            in_groups,
        }
    }

    /// Slots that are reserved or needed: by the pull under way, and by messages that wait only for a slot.
    pub(super) fn claimed(&self) -> usize {
        self.pull.as_ref().map_or(0, |pull| pull.reserved) + self.waiting() + self.extra
    }

    /// The number of tasks that wait only for slots.
    pub(super) fn waiting(&self) -> usize {
        self.ready.len().saturating_sub(self.parked)
    }

    /// Takes up what a pull brought.
    pub(super) fn hold(
        &mut self,
        deliveries: Vec<Delivery>,
        permit: Option<Permit>,
        routes: &Routes,
        now: Instant,
    ) {
        let can_start =
            |delivery| routes.of(Delivery::message(delivery)).is_none_or(|route| route.has_room());
        if deliveries.iter().any(can_start) {
            (self.blocked_pulls, self.probe_at) = (0, None);
        }
        let ready = deliveries
            .into_iter()
            .map(|delivery| Ready::alone(self.settle_pulls.bind(delivery), routes, now));
        self.take_up(ready.collect(), permit, routes);
    }

    /// Takes up batches that a pull of whole groups brought.
    pub(super) fn hold_batches(&mut self, batches: Vec<Ready>, permit: Option<Permit>, routes: &Routes) {
        if batches.iter().any(|batch| !waits_for_kind(batch, routes)) {
            (self.blocked_pulls, self.probe_at) = (0, None);
        }
        self.take_up(batches, permit, routes);
    }

    fn take_up(&mut self, mut brought: Vec<Ready>, permit: Option<Permit>, routes: &Routes) {
        if routes.are_weighted() && !brought.is_empty() {
            let slots: usize = brought.iter().map(|ready| ready.slots).sum();
            self.slots_each = slots.div_ceil(brought.len());
        }
        // Permits that are left over go back.
        if let Some(mut permit) = permit {
            for ready in &mut brought {
                ready.permit = permit.split(ready.len());
            }
        }
        self.ready.extend(brought);
        self.count(routes);
    }

    /// Takes up what settlements brought. Returns whether there was anything.
    pub(super) fn hold_refills(&mut self, routes: &Routes, now: Instant) -> bool {
        let settle_pulls = self.settle_pulls.take();
        let any = !settle_pulls.is_empty();
        self.ready.extend(settle_pulls.into_iter().map(|delivery| Ready::alone(delivery, routes, now)));
        any
    }

    /// Whether settlements may bring the next message: only if the schedule has nothing to decide.
    pub(super) fn takes_refills(&self) -> bool {
        !self.in_groups && self.last_pull != LastPull::Empty && self.errors == 0 && self.parked == 0
    }

    /// Whether the partition may be pulled from now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.pull.is_none() && self.retry_at.is_none_or(|at| at <= now)
    }

    /// The first message that does not wait for its kind.
    pub(super) fn startable(&self, routes: &Routes) -> Option<usize> {
        self.ready.iter().position(|ready| !waits_for_kind(ready, routes))
    }

    /// Counts again how many messages wait for their kind, and how many slots the others need.
    pub(super) fn count(&mut self, routes: &Routes) {
        (self.parked, self.extra) = (0, 0);
        for ready in &self.ready {
            if waits_for_kind(ready, routes) {
                self.parked += 1;
            } else {
                self.extra += ready.slots.saturating_sub(1);
            }
        }
    }

    /// Drops, and so releases, the messages that do not fit into this many slots. Returns how many slots are
    /// left.
    pub(super) fn release_beyond(&mut self, slots: usize, most: usize) -> usize {
        let mut left = Some(slots);
        self.ready.retain(|ready| {
            left = left.and_then(|left| left.checked_sub(ready.slots.min(most)));
            left.is_some()
        });
        left.unwrap_or(0)
    }

    /// The message that is released first if it does not start, except the spared one.
    pub(super) fn first_to_release(&self, spared: Option<usize>) -> Option<&Ready> {
        let (first, second) = (self.ready.front(), self.ready.get(1));
        if spared == Some(0) { second } else { first }
    }

    /// Notes that a pull failed.
    pub(super) fn failed(&mut self, id: &PartitionId, error: &Error, now: Instant) {
        self.errors = self.errors.saturating_add(1);
        let pause = pause(self.errors, PAUSE, LONGEST_PAUSE);
        self.retry_at = now.checked_add(pause.mul_f64(0.5 + fastrand::f64()));
        self.last_pull = LastPull::Unknown;
        if self.errors.is_power_of_two() {
            tracing::warn!(partition = %id, %error, errors = self.errors, "a pull failed; it will be retried");
        }
    }

    /// Takes the messages that have been held for too long, except the spared one.
    pub(super) fn take_overdue(&mut self, now: Instant, ttl: Duration, spared: Option<usize>) -> Vec<Ready> {
        let overdue = |ready: &Ready| now.saturating_duration_since(ready.claimed_at) >= ttl;
        if !self.first_to_release(spared).is_some_and(overdue) {
            return Vec::new();
        }
        let (mut late, mut in_time) = (Vec::new(), VecDeque::new());
        for (position, ready) in std::mem::take(&mut self.ready).into_iter().enumerate() {
            if overdue(&ready) && spared != Some(position) {
                late.push(ready);
            } else {
                in_time.push_back(ready);
            }
        }
        self.ready = in_time;
        late
    }

    /// How many more messages the partition may be pulled for. If the last pulls brought only messages of
    /// full kinds, no more than may wait for their kind.
    pub(super) fn demand(&self, now: Instant, most_parked: usize) -> usize {
        let pauses = self.probe_at.is_some_and(|at| at > now);
        if pauses { most_parked.saturating_sub(self.parked) } else { usize::MAX }
    }

    /// Takes the parked messages beyond `most`, the newest first.
    pub(super) fn take_overparked(&mut self, routes: &Routes, most: usize, now: Instant) -> Vec<Ready> {
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
            self.blocked_pulls = self.blocked_pulls.saturating_add(1);
            self.probe_at = now.checked_add(pause(self.blocked_pulls, PROBE_PAUSE, LONGEST_PROBE_PAUSE));
        }
        excess
    }
}

/// Whether the limit of its kind keeps the message from starting.
pub(super) fn waits_for_kind(ready: &Ready, routes: &Routes) -> bool {
    routes.of(ready.delivery.message()).is_some_and(|route| !route.has_room())
}
