//! Leases: one owner at a time, and settlements whose answers are true.

use super::rules::Counting;
use super::timeline::{Fate, Hold, Life, Timeline, Try};
use super::verdict::{Verdict, refute};
use crate::clause::Clause;
use crate::history::Act;

/// Clause 14: the times at which owners certainly held a message never overlap.
pub(super) fn exclusive(timeline: &Timeline<'_>) -> Verdict {
    if !timeline.rules.exclusive {
        return Ok(());
    }
    for (number, life) in &timeline.lives {
        if may_be_twice(timeline, life) {
            continue;
        }
        let mut holds = timeline.holds_of(life);
        let Some(mut owner) = holds.next() else { continue };
        for next in holds {
            let both_until = owner.sure_until.min(next.sure_until);
            let overlap = both_until.saturating_sub(next.span.to);
            refute(overlap > timeline.rules.grain, Clause::Exclusive, &[*number], || {
                let (one, other) = (&owner.call.process, &next.call.process);
                (
                    "one owner at a time".to_owned(),
                    format!("{one} and {other} both had it, for at least {overlap:?}"),
                )
            })?;
            if next.sure_until > owner.sure_until {
                owner = next;
            }
        }
    }
    Ok(())
}

/// If ids are not unique, a push that is repeated because its first answer was lost stores a second copy,
/// with its own owner; if moves are at least once, so does a move that was cut off.
fn may_be_twice(timeline: &Timeline<'_>, life: &Life<'_>) -> bool {
    (!timeline.rules.unique_ids && life.pushes.len() > 1) || timeline.may_be_half_copied(life)
}

/// Clause 25: `lease_until` counts from before the claim was sent, and is neither too long nor uselessly
/// short: nobody else has the message before it.
pub(super) fn lease_until(timeline: &Timeline<'_>) -> Verdict {
    if !timeline.rules.timed_leases {
        return Ok(());
    }
    for hold in &timeline.holds {
        let (from, to) = (hold.span.from + hold.lease, hold.span.to + hold.lease);
        let grain = timeline.rules.grain;
        let until = hold.delivered.lease_until;
        let right = until.is_some_and(|until| until + grain >= from && until <= to + grain);
        refute(!right, Clause::LeaseEnd, &[hold.delivered.message], || {
            (format!("`lease_until` from {from:?} to {to:?}"), format!("{until:?}"))
        })?;
        let next = timeline.next_by_lease_end(hold).map(|next| next.span.to);
        let outlived = until.zip(next).is_some_and(|(until, next)| until > next + grain);
        refute(outlived && timeline.rules.exclusive, Clause::LeaseEnd, &[hold.delivered.message], || {
            let told = format!("`lease_until` no later than {next:?}, when somebody else had the message");
            (told, format!("{until:?}"))
        })?;
    }
    Ok(())
}

impl<'a> Timeline<'a> {
    /// Returns the next delivery of the same message, if only the end of the requested lease can have led to
    /// it.
    fn next_by_lease_end(&self, hold: &Hold<'a>) -> Option<&Hold<'a>> {
        let untouched = matches!(hold.fate, Fate::Lapsed)
            && hold.tried.is_empty()
            && hold.sure_until == hold.span.from.saturating_add(hold.lease);
        let life = self.life_of(hold).filter(|life| untouched && !may_be_twice(self, life))?;
        let later = |other: &&Hold<'a>| other.span.to > hold.span.to && !self.may_be_swapped(hold, other);
        let next = self.holds_of(life).find(later)?;
        let again = life.arrivals.iter().any(|arrival| arrival.span.to > hold.span.from);
        (next.place == hold.place && !again).then_some(next)
    }
}

/// Clauses 21, 22 and 25: nothing is settled or extended under a lease that is over because it was settled
/// before, ended by its time, or taken over by another owner.
pub(super) fn fenced(timeline: &Timeline<'_>) -> Verdict {
    for (hold, at, attempt) in tries(timeline) {
        if attempt.held != Some(true) {
            continue;
        }
        let settled = hold.tried.iter().take(at).any(|earlier| {
            earlier.action.is_some()
                && earlier.held == Some(true)
                && (earlier.span.before(attempt.span) || earlier.span == attempt.span)
        });
        let taken = timeline.life_of(hold).is_some_and(|life| {
            let mut later = timeline.holds_of(life);
            later.any(|other| hold.span.to <= other.span.from && other.span.before(attempt.span))
                && !may_be_twice(timeline, life)
        });
        let over = attempt.over_by.saturating_add(timeline.rules.slack) < attempt.span.from;
        let (clause, why) = match (settled, taken, over) {
            (true, _, _) => (Clause::SettleTwice, "it was settled before"),
            (_, true, _) if timeline.rules.fencing => (Clause::Fencing, "somebody else has had it since"),
            (_, _, true) => (Clause::LeaseEnd, "its lease had ended"),
            _ => continue,
        };
        refute(true, clause, &[hold.delivered.message], || {
            (format!("Lost, as {why}"), format!("{} succeeded", attempt.name()))
        })?;
    }
    Ok(())
}

/// Clauses 20, 25 and 26: an owner that certainly holds a message, or was told so by `lease_until`, can
/// settle and extend it.
pub(super) fn held_settles(timeline: &Timeline<'_>) -> Verdict {
    for (hold, at, attempt) in tries(timeline) {
        let contested = hold.tried.iter().enumerate().any(|(other, earlier)| {
            other != at
                && earlier.action.is_some()
                && earlier.span.from <= attempt.span.to
                && (other < at || earlier.span != attempt.span)
        }) || may_be_ended_by_another(timeline, hold, attempt);
        let extended = hold.tried.iter().take(at).any(|earlier| earlier.action.is_none());
        let untouched = !extended && attempt.sure_until == hold.span.from.saturating_add(hold.lease);
        // `lease_until` told the holder that it can trust the lease until then.
        let told = hold.delivered.lease_until.filter(|_| untouched && timeline.rules.timed_leases);
        let sure_until = attempt.sure_until.max(told.unwrap_or_default());
        let sure = sure_until.saturating_sub(timeline.rules.grain) > attempt.span.to;
        let clause = if attempt.action.is_some() { Clause::SettleOutcomes } else { Clause::Extend };
        refute(attempt.held == Some(false) && sure && !contested, clause, &[hold.delivered.message], || {
            (format!("{} to succeed, as the lease is valid", attempt.name()), "Lost".to_owned())
        })?;
    }
    Ok(())
}

/// Returns whether another of two consumers that got the message at once, as the backend may allow, ended it
/// for both.
fn may_be_ended_by_another(timeline: &Timeline<'_>, hold: &Hold<'_>, attempt: &Try<'_>) -> bool {
    let ended = |other: &Hold<'_>| {
        let mut tried = other.tried.iter();
        tried.any(|it| it.action.is_some() && it.held != Some(false) && it.span.from <= attempt.span.to)
    };
    let others = timeline.life_of(hold).map(|life| timeline.holds_of(life));
    !timeline.rules.exclusive
        && others.is_some_and(|mut others| others.any(|it| !std::ptr::eq(it, hold) && ended(it)))
}

/// Clause 28: the delivery count rises by one with each delivery that counts, and starts again with a push or
/// a move.
pub(super) fn deliveries_counted(timeline: &Timeline<'_>) -> Verdict {
    if timeline.rules.counting == Counting::None {
        return Ok(());
    }
    for hold in &timeline.holds {
        let Some(life) = timeline.life_of(hold) else { continue };
        let Some((least, most)) = expected_count(timeline, hold, life) else { continue };
        let seen = hold.delivered.count;
        // A server that pushes messages into connections also counts those that a dying or closing consumer
        // never saw.
        let most = if timeline.rules.timed_leases { most } else { u32::MAX };
        let right = seen.is_some_and(|seen| (least..=most).contains(&seen));
        refute(!right, Clause::DeliveryCount, &[hold.delivered.message], || {
            (format!("a delivery count from {least} to {most}"), format!("{seen:?}"))
        })?;
    }
    Ok(())
}

fn expected_count(timeline: &Timeline<'_>, hold: &Hold<'_>, life: &Life<'_>) -> Option<(u32, u32)> {
    let previous = timeline.previous(hold, life);
    let begun =
        previous.map(|previous| previous.span).or(life.last_push(hold).map(|arrival| arrival.span))?;
    if timeline.claimed_unseen(hold, begun) || timeline.order_is_unsure(hold, life) {
        return None;
    }
    if timeline.may_be_half_copied(life) {
        return None;
    }
    let Some(previous) = previous else { return Some((1, 1)) };
    let count = previous.delivered.count?;
    let taken_off = timeline.rules.counting == Counting::ExceptReleases;
    match previous.fate {
        Fate::Settled(Act::Remove | Act::Move { .. }, _) => Some((1, 1)),
        Fate::Settled(Act::Release | Act::Postpone { .. }, _) if taken_off => Some((count, count)),
        // A client that closes may release what it holds.
        Fate::Lapsed if previous.sure_until < previous.over_by.min(hold.span.from) && taken_off => {
            Some((count, count + 1))
        }
        Fate::Settled(..) | Fate::Lapsed => Some((count + 1, count + 1)),
        Fate::Unknown => None,
    }
}

/// Clauses 26 and 36: an extension tells the holder that the task's cancellation was requested.
pub(super) fn cancellation_told(timeline: &Timeline<'_>) -> Verdict {
    for (hold, _, attempt) in tries(timeline) {
        if attempt.action.is_some() || attempt.held != Some(true) {
            continue;
        }
        let requested = timeline.life_of(hold).is_some_and(|life| {
            let during =
                |cancel: &super::timeline::Span| cancel.from >= hold.span.to && cancel.before(attempt.span);
            life.cancelled.iter().any(during)
        });
        refute(requested && !attempt.told_cancelled, Clause::Extend, &[hold.delivered.message], || {
            ("CancelRequested".to_owned(), "Extended".to_owned())
        })?;
    }
    Ok(())
}

fn tries<'b, 'a>(timeline: &'b Timeline<'a>) -> impl Iterator<Item = (&'b Hold<'a>, usize, &'b Try<'a>)> {
    timeline
        .holds
        .iter()
        .flat_map(|hold| hold.tried.iter().enumerate().map(move |(at, attempt)| (hold, at, attempt)))
}

impl Try<'_> {
    fn name(&self) -> &'static str {
        self.action.map_or("extension", Act::name)
    }
}

impl Act {
    /// Returns the name that plans and histories use.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Release => "release",
            Self::Retry => "retry",
            Self::Postpone { .. } => "postpone",
            Self::Move { .. } => "move",
        }
    }
}
