//! The history of each message, and whether it is allowed.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::MessageId;
use anyqueue::adapter::{Capabilities, MoveGuarantee, SettleConfirm};
use serde_json::{Value, json};

/// The history of one message, as its pushers and consumers saw it.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Life {
    attempted: bool,
    acknowledged: bool,
    /// A push got no reply and was repeated, or a move that is not atomic got none: there may be a second copy.
    doubtful: bool,
    deliveries: u32,
    removals: u32,
    deaths: u32,
    /// The result of a settlement that removes it or makes it a dead letter is unknown.
    end_unknown: bool,
    /// Delivered again after its removal was confirmed.
    ghost: bool,
    found_dead: bool,
}

impl Life {
    /// Whether it is known to be in the queue.
    fn is_unsettled(&self) -> bool {
        self.acknowledged && self.removals + self.deaths == 0 && !self.end_unknown
    }
}

#[derive(Debug)]
pub(crate) struct Account {
    moves: MoveGuarantee,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    lives: HashMap<MessageId, Life>,
    unsettled: usize,
    hung: u32,
    dead_twice: u32,
    last_delivery: Option<Instant>,
}

/// What a settlement was to do permanently, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Removal,
    Death,
}

impl Account {
    pub(crate) fn new(moves: MoveGuarantee) -> Self {
        Self { moves, book: Mutex::default() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: MessageId, change: impl FnOnce(&mut Life)) {
        let mut book = self.book();
        let life = book.lives.entry(id).or_default();
        let before = usize::from(life.is_unsettled());
        change(life);
        let after = usize::from(life.is_unsettled());
        book.unsettled = book.unsettled + after - before;
    }

    /// How many messages are known to be in the queue.
    pub(crate) fn unsettled(&self) -> usize {
        self.book().unsettled
    }

    pub(crate) fn attempt(&self, id: MessageId) {
        self.change(id, |life| life.attempted = true);
    }

    pub(crate) fn pushed(&self, id: MessageId, is_acknowledged: bool) {
        self.change(id, |life| {
            life.acknowledged |= is_acknowledged;
            life.doubtful |= !is_acknowledged;
        });
    }

    /// How long nothing has been delivered.
    pub(crate) fn quiet(&self) -> Duration {
        self.book().last_delivery.get_or_insert_with(Instant::now).elapsed()
    }

    pub(crate) fn delivered(&self, id: MessageId) {
        self.book().last_delivery = Some(Instant::now());
        self.change(id, |life| {
            life.deliveries += 1;
            life.ghost |= life.removals + life.deaths > 0;
        });
    }

    /// A settlement was confirmed.
    pub(crate) fn ended(&self, id: MessageId, end: End) {
        self.change(id, |life| match end {
            End::Removal => life.removals += 1,
            End::Death => life.deaths += 1,
        });
    }

    pub(crate) fn end_unknown(&self, id: MessageId, end: End) {
        // Where a move is a copy and a deletion, the copy may be there and the message too.
        let is_two = end == End::Death && self.moves == MoveGuarantee::AtLeastOnce;
        self.change(id, |life| {
            life.end_unknown = true;
            life.doubtful |= is_two;
        });
    }

    pub(crate) fn hung(&self) {
        self.book().hung += 1;
    }

    /// The dead letters at the end.
    pub(crate) fn close(&self, dead: Vec<MessageId>) {
        let mut seen = HashSet::new();
        let twice = dead.iter().filter(|id| !seen.insert(**id)).count();
        self.book().dead_twice = u32::try_from(twice).unwrap_or(u32::MAX);
        for id in dead {
            self.change(id, |life| life.found_dead = true);
        }
    }

    /// The violations, as sentences: acknowledged ⊆ removed ∪ dead ⊆ attempted, each once where the backend declares it.
    pub(crate) fn violations(&self, is_empty: bool, can: &Capabilities) -> Vec<String> {
        // A settlement that the server does not confirm can be lost with its connection, and the message comes again.
        let ends_once = can.settle_confirm == SettleConfirm::Confirmed;
        let dies_once = ends_once && can.moves == MoveGuarantee::Atomic;
        let book = self.book();
        let count = |wrong: &dyn Fn(&Life) -> bool| book.lives.values().filter(|life| wrong(life)).count();
        let certain = |life: &Life| !life.doubtful;
        let unless = |is_kept: bool, count: usize| if is_kept { count } else { 0 };
        let rules: [(&str, usize); 8] = [
            (
                "acknowledged messages were lost",
                count(&|life| {
                    life.acknowledged && life.removals == 0 && !life.found_dead && !life.end_unknown
                }),
            ),
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
                unless(dies_once, usize::try_from(book.dead_twice).unwrap_or(usize::MAX)),
            ),
            ("calls hung", usize::try_from(book.hung).unwrap_or(usize::MAX)),
        ];
        let broken = rules.into_iter().filter(|(_, count)| *count > 0);
        let mut violations: Vec<_> = broken.map(|(what, count)| format!("{count} {what}")).collect();
        if !is_empty {
            violations.push("the queue did not become empty".to_owned());
        }
        violations
    }

    pub(crate) fn totals(&self) -> Value {
        let book = self.book();
        let count = |is: &dyn Fn(&Life) -> bool| book.lives.values().filter(|life| is(life)).count();
        json!({
            "attempted": count(&|life| life.attempted),
            "acknowledged": count(&|life| life.acknowledged),
            "delivered": count(&|life| life.deliveries > 0),
            "redelivered": count(&|life| life.deliveries > 1),
            "removed": count(&|life| life.removals > 0),
            "dead": count(&|life| life.found_dead),
            "end_unknown": count(&|life| life.end_unknown),
            "came_again_after_their_end": count(&|life| life.ghost),
            "dead_twice": book.dead_twice,
            "duplicates_of_doubtful_pushes": count(&|life| life.doubtful && life.removals + life.deaths > 1),
        })
    }
}
