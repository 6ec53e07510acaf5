//! The history checker: what must be true of every history, whatever was done.
//!
//! Each invariant is one function over the [`Timeline`]; it names the clause of the contract that it checks.
//! `corpus/` has small histories that satisfy all invariants, and for each invariant one that breaks it.

mod amended;
mod content;
mod groups;
mod holding;
mod inspection;
mod life;
mod line;
mod lives;
mod ready_intervals;
mod rules;
mod span;
mod timeline;
mod timing;
mod verdict;

pub(crate) use rules::Rules;
pub(crate) use timeline::{Fate, Timeline};
use verdict::{Broken, Verdict};

use crate::clause::Clause;
use crate::history::{Amendment, Answer, Asked, Push, Settled, Settling, Trace};

/// What is wrong according to an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The invariant's name.
    pub invariant: &'static str,
    /// The clause of the contract.
    pub clause: Clause,
    /// The numbers of the messages concerned.
    pub about: Vec<usize>,
    /// What the clause requires in this situation.
    pub expected: String,
    /// What happened instead.
    pub seen: String,
    /// Whether something came late and nothing else is wrong, as may happen once on a busy machine.
    pub late: bool,
}

/// Something that is true of every correct history.
struct Invariant {
    name: &'static str,
    check: fn(&Timeline<'_>) -> Verdict,
}

macro_rules! invariants {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($(Invariant { name: stringify!($name), check: $module::$name }),+),+]
    };
}

/// In the order in which they are checked: the first broken one says most about the fault.
const INVARIANTS: &[Invariant] = invariants! {
    content: one_answer_each, no_ghosts, content_intact, labels_agree;
    life: refused_is_not_stored, one_place, final_removal, dedup, ended_with_successors, nothing_lost;
    holding: exclusive, lease_until, fenced, held_settles, deliveries_counted, cancellation_told;
    timing: at_most_max, wait_kept, not_early, paused;
    amended: disabled_stays, amended_moment;
    line: ready_is_served, woken_in_time, in_order;
    groups: groups_apart, groups_whole, groups_in_order;
    inspection: counts_possible, pages_possible, deletions_true, purge_within_limit;
};

/// Checked after all others: a history that breaks only this one was merely slow.
const IN_TIME: Invariant = Invariant { name: "wait_over", check: timing::wait_over };

/// Returns the names of all invariants that a [`Trace`] must satisfy.
pub fn invariants() -> impl Iterator<Item = &'static str> {
    INVARIANTS.iter().map(|invariant| invariant.name).chain([IN_TIME.name, NOT_VACUOUS])
}

const NOT_VACUOUS: &str = "not_vacuous";

impl Trace {
    /// Judges the history.
    ///
    /// # Errors
    /// Returns the first invariant that the history breaks.
    pub fn check(&self) -> Result<(), Violation> {
        Timeline::of(self).check()?;
        self.check_not_vacuous()
    }

    /// Checks that each planned kind of operation succeeded at least once, so that the history proves
    /// something about it.
    fn check_not_vacuous(&self) -> Result<(), Violation> {
        let missing = self.head.planned.iter().find(|kind| !self.succeeded(kind));
        let Some(kind) = missing else { return Ok(()) };
        Err(Violation {
            invariant: NOT_VACUOUS,
            clause: Clause::Stored,
            about: Vec::new(),
            expected: format!("at least one {kind} to succeed"),
            seen: "none did".to_owned(),
            late: false,
        })
    }

    /// Returns how many settlements of this kind were sent; `None` if it is not a kind of settlement.
    pub(crate) fn settlements(&self, kind: &str) -> Option<usize> {
        let of_settlements = ["remove", "release", "retry", "postpone", "move", "successors"];
        of_settlements.contains(&kind).then(|| {
            let items = self.events.iter().flat_map(|call| match &call.op {
                Asked::Settle { items } => items.as_slice(),
                _ => &[],
            });
            items.filter(|item| is_of(item, kind)).count()
        })
    }

    pub(crate) fn succeeded(&self, kind: &str) -> bool {
        self.events.iter().any(|call| match &call.op {
            Asked::Push { items, .. } => {
                kind == "push" && items.iter().any(|item| item.answer.ok() == Some(&Push::Stored))
            }
            Asked::Pull { answer, .. } => kind == "pull" && answer.ok().is_some_and(|got| !got.is_empty()),
            Asked::Settle { items } => {
                let settled = items.iter().filter(|item| item.answer.ok() == Some(&Settling::Settled));
                settled.into_iter().any(|item| is_of(item, kind))
            }
            Asked::Extend { items } => {
                kind == "extend" && items.iter().any(|item| item.answer.ok().is_some())
            }
            Asked::Delete { items, .. } => {
                kind == "delete" && items.iter().any(|item| item.answer.ok().is_some())
            }
            Asked::Cancel { items, .. } => {
                kind == "cancel" && items.iter().any(|item| item.answer.ok().is_some())
            }
            Asked::Amend { items, .. } => {
                kind == "amend" && items.iter().any(|item| item.answer.ok() == Some(&Amendment::Amended))
            }
            Asked::Purge { answer, .. } => kind == "purge" && answer.ok().is_some(),
            Asked::Counts { answer, .. } => kind == "counts" && answer.ok().is_some(),
            Asked::Browse { answer, .. } => kind == "browse" && answer.ok().is_some(),
            Asked::Pause { paused, .. } => kind == if *paused { "pause" } else { "resume" },
            Asked::Close => kind == "close",
            Asked::Crash => kind == "crash" && self.struck(call),
            _ => false,
        })
    }

    /// A crash proves something if its process held a message then, or another process was at work.
    fn struck(&self, crash: &crate::history::Call) -> bool {
        let overlaps = |call: &&crate::history::Call| {
            call.invoked < crash.invoked && call.returned.is_none_or(|returned| returned > crash.invoked)
        };
        let held = |call: &&crate::history::Call| {
            let mine = call.process == crash.process && call.instance == crash.instance;
            mine && matches!(&call.op, Asked::Pull { answer: Answer::Ok(got), .. } if !got.is_empty())
        };
        self.events.iter().any(|call| overlaps(&call) || held(&call))
    }
}

/// Returns whether a settlement does this, or brings successors.
fn is_of(item: &Settled, kind: &str) -> bool {
    item.action.name() == kind || (kind == "successors" && !item.then.is_empty())
}

impl Timeline<'_> {
    pub(crate) fn check(&self) -> Result<(), Violation> {
        INVARIANTS.iter().try_for_each(|invariant| self.hold_to(invariant, false))?;
        self.hold_to(&IN_TIME, true)
    }

    fn hold_to(&self, invariant: &Invariant, late: bool) -> Result<(), Violation> {
        (invariant.check)(self).map_err(|broken| {
            let Broken { clause, about, expected, seen } = *broken;
            Violation { invariant: invariant.name, clause, about, expected, seen, late }
        })
    }
}
