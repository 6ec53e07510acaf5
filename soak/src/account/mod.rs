//! The history of each message, and whether it is allowed.

mod ledger;
mod life;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Capabilities, MoveGuarantee, SettleConfirm};
use anyqueue::{EndState, MessageId};
use serde_json::{Value, json};

pub(crate) use ledger::{EndedTask, Found, Keeping};

use life::{Life, Saying};

#[derive(Debug)]
pub(crate) struct Account {
    moves: MoveGuarantee,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    lives: HashMap<MessageId, Life>,
    unsettled: usize,
    /// How many statements consumers have made of how a task ends.
    sayings: u64,
    hung: u32,
    dead_twice: u32,
    last_delivery: Option<Instant>,
}

/// What a settlement should do permanently, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Removal,
    Death,
}

impl Account {
    pub(crate) fn new(moves: MoveGuarantee) -> Self {
        Self { moves, record: Mutex::default() }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: MessageId, change: impl FnOnce(&mut Life)) {
        let mut record = self.record();
        let life = record.lives.entry(id).or_default();
        let before = usize::from(life.is_unsettled());
        change(life);
        let after = usize::from(life.is_unsettled());
        record.unsettled = record.unsettled + after - before;
    }

    /// Returns how many messages are known to be in the queue.
    pub(crate) fn unsettled(&self) -> usize {
        self.record().unsettled
    }

    /// Notes that the message is about to be pushed, perhaps for another time.
    pub(crate) fn attempt(&self, id: MessageId) {
        self.change(id, |life| {
            life.attempted = true;
            life.doubtful |= life.unanswered;
        });
    }

    pub(crate) fn pushed(&self, id: MessageId, is_acknowledged: bool) {
        self.change(id, |life| {
            life.acknowledged |= is_acknowledged;
            life.unanswered |= !is_acknowledged;
        });
    }

    /// Notes that the message is not due before the run is over.
    pub(crate) fn park(&self, id: MessageId) {
        self.change(id, |life| life.is_parked = true);
    }

    /// Notes how the task must end: as a dead letter if it is to fail.
    pub(crate) fn bind(&self, id: MessageId, end: EndState) {
        self.change(id, |life| life.bound = Some(end));
    }

    /// Returns the messages that were acknowledged.
    pub(crate) fn acknowledged(&self) -> Vec<MessageId> {
        let record = self.record();
        record.lives.iter().filter(|(_, life)| life.acknowledged).map(|(id, _)| *id).collect()
    }

    /// Returns for how long nothing has been delivered.
    pub(crate) fn quiet(&self) -> Duration {
        self.record().last_delivery.get_or_insert_with(Instant::now).elapsed()
    }

    pub(crate) fn delivered(&self, id: MessageId) {
        self.record().last_delivery = Some(Instant::now());
        self.change(id, |life| {
            life.deliveries += 1;
            life.ghost |= life.removals + life.deaths > 0;
        });
    }

    /// Notes that a consumer is about to say that the task ends like this. Returns the number by which the
    /// ledger's entry will name this statement.
    pub(crate) fn say(&self, id: MessageId, delivery: Option<u32>, state: EndState) -> u64 {
        let number = {
            let mut record = self.record();
            record.sayings += 1;
            record.sayings
        };
        self.change(id, |life| life.said.push(Saying { number, state, delivery, is_confirmed: false }));
        number
    }

    /// Notes that the settlement with this statement was confirmed.
    pub(crate) fn confirmed(&self, id: MessageId, number: u64) {
        self.change(id, |life| {
            let saying = life.said.iter_mut().find(|saying| saying.number == number);
            if let Some(saying) = saying {
                saying.is_confirmed = true;
            }
        });
    }

    /// Notes that a settlement was confirmed.
    pub(crate) fn ended(&self, id: MessageId, end: End) {
        self.change(id, |life| match end {
            End::Removal => life.removals += 1,
            End::Death => life.deaths += 1,
        });
    }

    pub(crate) fn end_unknown(&self, id: MessageId, end: End) {
        // If a move is a copy and a deletion, both the copy and the message may be there.
        let is_two = end == End::Death && self.moves == MoveGuarantee::AtLeastOnce;
        self.change(id, |life| {
            life.end_unknown = true;
            life.doubtful |= is_two;
        });
    }

    pub(crate) fn hung(&self) {
        self.record().hung += 1;
    }

    /// Notes the dead letters at the end.
    pub(crate) fn close(&self, dead: Vec<MessageId>) {
        let mut seen = HashSet::new();
        let twice = dead.iter().filter(|id| !seen.insert(**id)).count();
        self.record().dead_twice = u32::try_from(twice).unwrap_or(u32::MAX);
        for id in dead {
            self.change(id, |life| life.found_dead = true);
        }
    }

    /// Returns the violations, as sentences: acknowledged ⊆ removed ∪ dead ⊆ attempted, each once where the
    /// backend declares it.
    pub(crate) fn violations(&self, is_empty: bool, can: &Capabilities) -> Vec<String> {
        // A settlement that the server does not confirm can be lost with its connection, and the message then
        // comes again.
        let ends_once = can.settle_confirm == SettleConfirm::Confirmed;
        let dies_once = ends_once && can.moves == MoveGuarantee::Atomic;
        let record = self.record();
        let count = |wrong: &dyn Fn(&Life) -> bool| record.lives.values().filter(|life| wrong(life)).count();
        let certain = |life: &Life| !life.doubtful;
        let unless = |is_kept: bool, count: usize| if is_kept { count } else { 0 };
        let rules: [(&str, usize); 8] = [
            ("acknowledged messages were lost", count(&Life::is_lost)),
            ("messages came that nobody pushed", count(&|life| !life.attempted)),
            (
                "messages came again after their end was confirmed",
                unless(ends_once, count(&|life| life.ghost && certain(life))),
            ),
            (
                "messages ended twice",
                unless(ends_once, count(&|life| life.removals + life.deaths > 1 && certain(life))),
            ),
            (
                "messages were confirmed to be dead and are not",
                count(&|life| life.deaths > 0 && !life.found_dead && certain(life)),
            ),
            (
                "messages are removed and dead at once",
                unless(dies_once, count(&|life| life.removals > 0 && life.found_dead && certain(life))),
            ),
            (
                "dead letters are there twice",
                unless(dies_once, usize::try_from(record.dead_twice).unwrap_or(usize::MAX)),
            ),
            ("calls hung", usize::try_from(record.hung).unwrap_or(usize::MAX)),
        ];
        let broken = rules.into_iter().filter(|(_, count)| *count > 0);
        let mut violations: Vec<_> = broken.map(|(what, count)| format!("{count} {what}")).collect();
        if !is_empty {
            violations.push("the queue did not become empty".to_owned());
        }
        violations
    }

    /// Compares what the ledger and the queue have at the end with what was pushed and said: see [`Found`].
    pub(crate) fn ledger_violations(&self, found: &Found, keeping: Keeping) -> Vec<String> {
        ledger::violations(&self.record().lives, found, keeping)
    }

    pub(crate) fn totals(&self) -> Value {
        let record = self.record();
        let count = |is: &dyn Fn(&Life) -> bool| record.lives.values().filter(|life| is(life)).count();
        json!({
            "attempted": count(&|life| life.attempted),
            "acknowledged": count(&|life| life.acknowledged),
            "delivered": count(&|life| life.deliveries > 0),
            "redelivered": count(&|life| life.deliveries > 1),
            "removed": count(&|life| life.removals > 0),
            "dead": count(&|life| life.found_dead),
            "end_unknown": count(&|life| life.end_unknown),
            "came_again_after_their_end": count(&|life| life.ghost),
            "dead_twice": record.dead_twice,
            "duplicates_of_doubtful_pushes": count(&|life| life.doubtful && life.removals + life.deaths > 1),
        })
    }
}
