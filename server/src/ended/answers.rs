//! What is known of all queues, or of all kinds, that somebody looks at; and which of them to ask about
//! again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::known::{Known, Question};
use crate::span::Grain;

/// The shortest pause between two questions about the same queue or kind.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// Questions about what was asked for before take at most this share of the time.
const SHARE: u32 = 10;
/// The same for questions about what nobody has asked for yet. Somebody waits for them, but anybody can ask
/// for things that do not exist.
const SHARE_OF_NEW: u32 = 4;

/// What an answer is about: a queue, or one kind of its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Of {
    pub(super) partition: String,
    pub(super) kind: Option<String>,
    pub(super) grain: Grain,
}

/// What to ask about.
pub(super) struct Due {
    pub(super) of: Of,
    /// Whether it is asked about for the first time, or for a longer time than before.
    pub(super) is_new: bool,
}

pub(super) struct Answers {
    pub(super) known: HashMap<Of, Known>,
    room: usize,
    /// Until these times nothing is asked about again, and nothing new: questions have taken long.
    rest: Instant,
    rest_of_new: Instant,
}

impl Answers {
    pub(super) fn new(room: usize, at: Instant) -> Self {
        Self { known: HashMap::new(), room, rest: at, rest_of_new: at }
    }

    /// Records that somebody looks at these.
    pub(super) fn look_at(&mut self, all: &[Of], now: u64, at: Instant) {
        for of in all {
            self.make_room(of, at);
            let known = self.known.entry(of.clone()).or_insert_with(|| Known::new(of.grain, now, at));
            known.looked = at;
        }
    }

    /// Forgets one, if there is no room: first those in which no task ended, which may be made up; among them
    /// the one that nobody has looked at for the longest time.
    fn make_room(&mut self, of: &Of, at: Instant) {
        if self.known.len() < self.room || self.known.contains_key(of) {
            return;
        }
        // Those that are looked at just now have not been asked about yet.
        let worth = |known: &Known| (known.looked == at, known.has_any(), known.looked);
        let least = self.known.iter().min_by_key(|(_, known)| worth(known)).map(|(of, _)| of.clone());
        if let Some(least) = least {
            self.known.remove(&least);
        }
    }

    /// Returns those that are due to be asked about, the one that was asked about longest ago first.
    pub(super) fn due(&self, all: &[Of], wanted: u64, at: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        for of in all {
            let Some(known) = self.known.get(of) else { continue };
            let is_new = known.is_new(wanted);
            let has_paused = known.tried.is_none_or(|tried| at >= tried + EVERY);
            let is_due = if is_new { at >= self.rest_of_new } else { has_paused && at >= self.rest };
            if is_due {
                due.push((known.tried, Due { of: of.clone(), is_new }));
            }
        }
        due.sort_by_key(|(tried, _)| *tried);
        due.into_iter().map(|(_, due)| due).collect()
    }

    /// A question took from `begun` to `now`.
    pub(super) fn spent(&mut self, is_new: bool, begun: Instant, now: Instant) {
        let (rest, share) =
            if is_new { (&mut self.rest_of_new, SHARE_OF_NEW) } else { (&mut self.rest, SHARE) };
        *rest = begun.max(*rest) + now.saturating_duration_since(begun) * share;
    }

    pub(super) fn of(&mut self, of: &Of) -> Option<&mut Known> {
        self.known.get_mut(of)
    }

    /// Its turn has come.
    pub(super) fn begin(&mut self, of: &Of, wanted: u64, now: u64, at: Instant) {
        if let Some(known) = self.of(of) {
            known.begin(wanted, now, at);
        }
    }

    /// What to ask about it next.
    pub(super) fn question(&mut self, of: &Of, wanted: u64, now: u64) -> Option<Question> {
        self.of(of)?.question(wanted, now)
    }
}
