//! Generates plans from seeds, within what a backend declares.

use std::time::Duration;

use anyqueue::OnDuplicate;
use anyqueue::adapter::{Capabilities, Dedup};
use fastrand::Rng;

use super::plan::{Act, Change, End, Fate, Message, Payload, Place, Plan, Pull, Settle, Step, Whose};

/// All times of a plan are multiples of this, or of the backend's own step.
pub(crate) const BEAT: Duration = Duration::from_millis(50);

pub(crate) const PARTITIONS: usize = 2;
const GROUPS: u8 = 2;
const KEYS: u8 = 3;

/// The size and kind of plans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) processes: usize,
    pub(crate) steps: usize,
    /// Whether pulls may wait.
    pub(crate) waits: bool,
}

/// Returns the plan of this seed. The same seed, shape and capabilities give the same plan.
pub(crate) fn plan(seed: u64, shape: Shape, capabilities: &Capabilities) -> Plan {
    let (random, beat) = (Rng::with_seed(seed), beat(capabilities));
    let (wanders, grouped) = (false, 25);
    let mut maker = Maker { random, capabilities: capabilities.clone(), shape, beat, wanders, grouped };
    maker.wanders = maker.often(50);
    if capabilities.whole_groups && maker.often(50) {
        maker.grouped = 70;
    }
    let step = |_| Step { process: maker.random.usize(..shape.processes), act: maker.act() };
    Plan { seed, processes: shape.processes, steps: (0..shape.steps).map(step).collect() }
}

/// Returns the step in which a plan counts time.
fn beat(capabilities: &Capabilities) -> Duration {
    let coarsest = [capabilities.push_delay, capabilities.postpone_delay];
    let coarsest = coarsest.into_iter().flatten().map(|delay| delay.granularity).max().unwrap_or_default();
    coarsest.max(capabilities.lease.min / 2).max(BEAT)
}

/// Returns whether plans take much longer than those that count in beats.
pub(crate) fn is_coarse(capabilities: &Capabilities) -> bool {
    beat(capabilities) > 4 * BEAT
}

struct Maker {
    random: Rng,
    capabilities: Capabilities,
    shape: Shape,
    beat: Duration,
    /// Whether messages move to other partitions. If they do, none is pushed again: whether an id that lives
    /// elsewhere is a duplicate is up to the backend.
    wanders: bool,
    /// How many of a hundred messages belong to a group, and how many of a hundred pulls are for whole
    /// groups, if the backend has them. In some plans most do, so that several members come together.
    grouped: u8,
}

/// A kind of step: how often it occurs, whether it is declared, and how it is generated.
type Kind = (usize, fn(&Capabilities) -> bool, fn(&mut Maker) -> Act);

const KINDS: &[Kind] = &[
    (22, |_| true, Maker::push),
    (3, |c| c.unique_ids, Maker::push_again),
    (30, |_| true, |maker| Act::Pull(maker.pull())),
    (24, |_| true, |maker| Act::Settle(maker.settlements())),
    (4, |_| true, |maker| Act::Exchange(maker.settlements(), maker.pull())),
    (6, |_| true, Maker::extend),
    (2, |c| c.inspect.delete, |maker| Act::Delete { place: maker.place(), nth: maker.random.usize(..64) }),
    (2, |c| c.inspect.cancel, |maker| Act::Cancel { place: maker.place(), nth: maker.random.usize(..64) }),
    (6, |c| c.amend, Maker::amend),
    (1, |c| c.inspect.purge, |maker| Act::Purge { place: maker.place(), limit: maker.random.usize(1..3) }),
    (4, |c| c.inspect.ready || c.inspect.leased, |maker| Act::Counts { place: maker.number() }),
    (3, |c| c.inspect.browse, |maker| Act::Browse { place: maker.place() }),
    (2, |c| c.pause, |maker| Act::Pause { place: maker.number(), paused: true }),
    (4, |c| c.pause, |maker| Act::Pause { place: maker.number(), paused: false }),
    (1, |_| true, |_| Act::Close),
    (2, |_| true, |_| Act::Crash),
    (12, |_| true, |maker| Act::Sleep(maker.time(1, 6))),
];

impl Maker {
    fn act(&mut self) -> Act {
        let declared = KINDS.iter().filter(|(_, declared, _)| declared(&self.capabilities));
        let kinds = declared.flat_map(|kind| std::iter::repeat_n(kind, kind.0));
        let kind = self.random.choice(kinds.collect::<Vec<_>>());
        kind.map_or(Act::Crash, |(_, _, make)| make(self))
    }

    fn often(&mut self, percent: u8) -> bool {
        self.random.u8(..100) < percent
    }

    /// Returns a time from `least` to `most` beats.
    fn time(&mut self, least: u32, most: u32) -> Duration {
        self.beat * self.random.u32(least..=most)
    }

    fn number(&mut self) -> usize {
        self.random.usize(..PARTITIONS)
    }

    fn place(&mut self) -> Place {
        Place { number: self.number(), dead: self.often(15) }
    }

    fn push(&mut self) -> Act {
        let size = if self.often(8) { self.random.usize(11..14) } else { self.random.usize(1..5) };
        let size = size.min(self.capabilities.limits.push_batch);
        Act::Push { place: self.number(), messages: (0..size).map(|_| self.message()).collect() }
    }

    fn push_again(&mut self) -> Act {
        if self.wanders { self.push() } else { Act::PushAgain { nth: self.random.usize(..64) } }
    }

    fn message(&mut self) -> Message {
        let levels = self.capabilities.priority_levels.min(3);
        let key =
            (self.capabilities.dedup == Dedup::WhileLive && self.often(20)).then(|| self.random.u8(..KEYS));
        let on_duplicate = if key.is_some() { self.on_duplicate() } else { OnDuplicate::Keep };
        let payloads = [Payload::Padded, Payload::WithNul, Payload::NoUtf8, Payload::Long];
        Message {
            priority: if levels > 1 && self.often(50) { self.random.u8(..levels) } else { 0 },
            delay: (self.capabilities.push_delay.is_some() && self.often(20)).then(|| self.time(0, 5)),
            group: (self.capabilities.groups && self.often(self.grouped)).then(|| self.random.u8(..GROUPS)),
            key,
            on_duplicate,
            urgent_after: (self.capabilities.urgent_after && self.often(10)).then(|| self.time(0, 6)),
            payload: if self.often(12) {
                self.random.choice(payloads).unwrap_or_default()
            } else {
                Payload::Plain
            },
            headers: self.often(20),
            fields: self.often(50),
        }
    }

    /// Never `Earlier`: nobody knows when a message is due that it may have brought forward.
    fn on_duplicate(&mut self) -> OnDuplicate {
        match self.random.u8(..4) {
            0 if self.capabilities.on_duplicate => OnDuplicate::Replace,
            1 if self.capabilities.on_duplicate => OnDuplicate::Behind,
            _ => OnDuplicate::Keep,
        }
    }

    fn pull(&mut self) -> Pull {
        let wait = if self.shape.waits && self.often(40) { self.time(2, 8) } else { Duration::ZERO };
        let lease = if self.often(40) { self.time(3, 6) } else { self.time(12, 30) };
        let end = match self.random.u8(..10) {
            0 if !wait.is_zero() => End::Stop(self.time(0, 4)),
            1 if !wait.is_zero() => End::Drop(self.time(0, 4)),
            _ => End::None,
        };
        let max = if self.often(15) { 12 } else { self.random.usize(1..5) };
        let whole = self.capabilities.whole_groups && self.often(self.grouped);
        let group_members = if whole { self.random.usize(2..6) } else { 1 };
        let max = max.min(self.capabilities.limits.pull_batch);
        Pull { place: self.place(), max, wait, lease, group_members, end }
    }

    fn settlements(&mut self) -> Vec<Settle> {
        let size = if self.often(70) { 1 } else { self.random.usize(2..4) };
        (0..size.min(self.capabilities.limits.settle_batch)).map(|_| self.settlement()).collect()
    }

    fn settlement(&mut self) -> Settle {
        let whose = if self.often(10) { Whose::Settled } else { Whose::Held };
        let headers = self.often(40);
        let fate = match self.random.u8(..100) {
            0..40 => Fate::Remove,
            40..55 => Fate::Release,
            55..72 => Fate::Retry,
            72..84 => {
                let headers = headers && self.capabilities.postpone_headers;
                let delayed = self.capabilities.postpone_delay.is_some() && self.often(70);
                Fate::Postpone { delay: if delayed { self.time(1, 5) } else { Duration::ZERO }, headers }
            }
            _ if !self.wanders => Fate::Bury { headers },
            _ => Fate::Move { to: Place { number: self.number(), dead: self.often(65) }, headers },
        };
        Settle { whose, nth: self.random.usize(..16), fate, then: self.successors() }
    }

    fn successors(&mut self) -> Vec<(usize, Message)> {
        if self.capabilities.successors.is_none() || !self.often(25) {
            return Vec::new();
        }
        (0..self.random.usize(1..4)).map(|_| (self.number(), self.message())).collect()
    }

    fn amend(&mut self) -> Act {
        let nths = (0..self.random.usize(1..4)).map(|_| self.random.usize(..64)).collect();
        Act::Amend { place: self.number(), nths, change: self.change() }
    }

    fn change(&mut self) -> Change {
        let levels = self.capabilities.priority_levels.min(3);
        match self.random.u8(..8) {
            0 => Change::Priority(self.random.u8(..levels.max(1))),
            1 if self.capabilities.push_delay.is_some() => Change::Due(self.time(1, 5)),
            2 => Change::Due(Duration::ZERO),
            3 if self.capabilities.groups => Change::Join(self.random.u8(..GROUPS)),
            4 if self.capabilities.groups => Change::Leave,
            5 | 6 => Change::Disable,
            _ => Change::Enable,
        }
    }

    fn extend(&mut self) -> Act {
        let whose = if self.often(15) { Whose::Settled } else { Whose::Held };
        Act::Extend { whose, nth: self.random.usize(..16), duration: self.time(3, 20) }
    }
}
