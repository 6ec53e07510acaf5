//! What is known of the ends of tasks of a queue, or of one kind of them, and what to ask next.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyqueue::SeriesRow;
use anyqueue::adapter::minute_of;

use crate::span::{Grain, Step};

/// Ends are stored somewhat later than they happen, and by a clock that may be late: after this many minutes
/// a step no longer changes.
const SETTLES_MINUTES: u64 = 10;
/// What was read longer ago than this is no longer shown as complete.
const FRESH: Duration = Duration::from_mins(1);

/// What is asked for: the minutes from `first` on and before `before`, or until now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) first: u64,
    pub(super) before: Option<u64>,
    way: Way,
}

impl Question {
    fn minutes(&self, now: u64) -> u64 {
        self.before.unwrap_or(now + 1).saturating_sub(self.first)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Towards what is new.
    Forward,
    /// Towards the time before all that is known.
    Back,
}

/// What is being read again of the time that may still change.
#[derive(Default)]
struct Round {
    /// The minute in which the round began, and the minute before which everything is read.
    begun: u64,
    until: u64,
    steps: BTreeMap<u64, Step>,
}

/// What is known of one queue or kind.
pub(super) struct Known {
    grain: Grain,
    /// Steps in which any task ended, by the minute in which they begin.
    steps: BTreeMap<u64, Step>,
    /// Everything is known from this minute on, up to what was read last.
    from: u64,
    /// What is before this minute no longer changes.
    settled: u64,
    round: Option<Round>,
    is_round_over: bool,
    is_back_next: bool,
    /// How many minutes are asked for at once: fewer after that was too much, and more again after it was
    /// not.
    at_once: u64,
    was_too_much: bool,
    /// The first minute that was asked for.
    asked: u64,
    /// When it was last asked about, and when everything new was last read.
    pub(super) tried: Option<Instant>,
    read: Option<Instant>,
    /// When somebody last looked.
    pub(super) looked: Instant,
    /// Why the last question was not answered.
    pub(super) problem: Option<String>,
}

impl Known {
    pub(super) fn new(grain: Grain, now: u64, looked: Instant) -> Self {
        let settled = settled(grain, now);
        Self {
            grain,
            steps: BTreeMap::new(),
            from: settled,
            settled,
            round: None,
            is_round_over: false,
            is_back_next: false,
            at_once: grain.asked_minutes(),
            was_too_much: false,
            asked: u64::MAX,
            tried: None,
            read: None,
            looked,
            problem: None,
        }
    }

    /// Whether nobody has asked for so long a time yet.
    pub(super) fn is_new(&self, wanted: u64) -> bool {
        wanted < self.asked
    }

    pub(super) fn has_any(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether everything is known from this minute on, and was read recently.
    pub(super) fn is_whole(&self, wanted: u64, at: Instant) -> bool {
        self.from <= wanted && self.read.is_some_and(|read| at <= read + FRESH)
    }

    pub(super) fn steps_since(&self, first: u64) -> impl Iterator<Item = (&u64, &Step)> {
        self.steps.range(first..)
    }

    /// It is asked about from now on. Called before the answer, since the caller may leave meanwhile.
    pub(super) fn begin(&mut self, wanted: u64, now: u64, at: Instant) {
        (self.tried, self.asked, self.is_round_over) = (Some(at), self.asked.min(wanted), false);
        if !std::mem::take(&mut self.was_too_much) {
            self.at_once = (self.at_once * 2).min(self.grain.asked_minutes());
        }
        let this = now - now % self.grain.minutes();
        let is_old = self.settled.saturating_add(self.grain.asked_minutes()) < this;
        let is_ahead = self.settled > this || self.round.as_ref().is_some_and(|round| round.begun > now);
        // Nobody has looked for a long time, or the clock was set back.
        if is_old || is_ahead {
            *self = Self { tried: self.tried, asked: self.asked, ..Self::new(self.grain, now, self.looked) };
        }
    }

    /// What to ask next: once for what is new, and for what is missing from this minute on; the two alternate
    /// if there is not time for both.
    pub(super) fn question(&mut self, wanted: u64, now: u64) -> Option<Question> {
        let is_missing = self.from > wanted;
        if is_missing && (self.is_round_over || self.is_back_next) {
            let first = self.from.saturating_sub(self.at_once).max(wanted);
            return Some(Question { first, before: Some(self.from), way: Way::Back });
        }
        if self.is_round_over {
            return None;
        }
        let begin = || Round { begun: now, until: self.settled, ..Round::default() };
        let first = self.round.get_or_insert_with(begin).until;
        let end = first + self.at_once;
        Some(Question { first, before: (end <= now).then_some(end), way: Way::Forward })
    }

    /// Records an answer, and returns whether to go on.
    pub(super) fn answered(&mut self, question: Question, rows: &[SeriesRow], now: u64, at: Instant) -> bool {
        self.problem = None;
        self.is_back_next = question.way == Way::Forward;
        // It may have been forgotten since it was asked, and begun anew.
        match question.way {
            Way::Back if question.before == Some(self.from) => {
                add(&mut self.steps, rows, self.grain, now);
                self.from = question.first;
            }
            Way::Back => return false,
            Way::Forward => match self.round.take_if(|round| round.until == question.first) {
                Some(round) => self.go_on(round, question, rows, now, at),
                None => return false,
            },
        }
        let oldest = self.grain.longest().first(now);
        self.steps = self.steps.split_off(&oldest);
        self.from = self.from.max(oldest);
        true
    }

    fn go_on(&mut self, mut round: Round, question: Question, rows: &[SeriesRow], now: u64, at: Instant) {
        add(&mut round.steps, rows, self.grain, now);
        if let Some(before) = question.before {
            self.round = Some(Round { until: before, ..round });
            return;
        }
        // Only now, so that the counts that are shown never shrink.
        self.steps.retain(|at, _| *at < self.settled);
        self.steps.append(&mut round.steps);
        self.settled = self.settled.max(settled(self.grain, round.begun));
        (self.is_round_over, self.read) = (true, Some(at));
    }

    /// Records why there is no answer, and returns whether to go on with fewer minutes at once.
    pub(super) fn failed(&mut self, question: Question, why: String, is_too_much: bool, now: u64) -> bool {
        self.problem = Some(why);
        self.is_back_next = question.way == Way::Forward;
        let minutes = question.minutes(now);
        if !is_too_much || minutes <= 1 {
            return false;
        }
        (self.at_once, self.was_too_much) = (minutes / 2, true);
        true
    }
}

fn settled(grain: Grain, now: u64) -> u64 {
    let before = now.saturating_sub(SETTLES_MINUTES);
    before - before % grain.minutes()
}

fn add(steps: &mut BTreeMap<u64, Step>, rows: &[SeriesRow], grain: Grain, now: u64) {
    let step = grain.minutes();
    for row in rows {
        // The server's clock may be ahead.
        let minute = minute_of(row.at).min(now);
        steps.entry(minute - minute % step).or_default().add(row);
    }
}
