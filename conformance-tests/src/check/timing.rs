//! How much a pull returns, how long it takes, and what it must not return yet.

use super::timeline::{Fate, Hold, Life, Pause, Span, Timeline};
use super::verdict::{Verdict, refute};
use crate::clause::Clause;
use crate::history::{Act, Answer, Asked, Call, Delivered};

/// Returns the moment from which on the message can have been there, if it was pushed once.
fn pushed_after(timeline: &Timeline<'_>, hold: &Hold<'_>) -> std::time::Duration {
    let arrivals = timeline.life_of(hold).map_or(&[][..], |life| &life.arrivals);
    if let [only] = arrivals { only.span.from } else { std::time::Duration::ZERO }
}

/// Returns the ended pulls of a history, with what they returned.
pub(super) fn pulls<'b>(timeline: &'b Timeline<'_>) -> impl Iterator<Item = (&'b Call, &'b Vec<Delivered>)> {
    timeline.trace.events.iter().filter_map(|call| match &call.op {
        Asked::Pull { answer: Answer::Ok(got), .. } => Some((call, got)),
        _ => None,
    })
}

/// Clause 8: a pull returns no more than it was asked for.
pub(super) fn at_most_max(timeline: &Timeline<'_>) -> Verdict {
    for (call, got) in pulls(timeline) {
        let Asked::Pull { max, .. } = &call.op else { continue };
        let about: Vec<_> = got.iter().map(|one| one.message).collect();
        refute(got.len() > *max, Clause::PullBounds, &about, || {
            (format!("at most {max} deliveries"), format!("{} deliveries", got.len()))
        })?;
    }
    Ok(())
}

/// Clause 10: an empty pull lasts its wait.
pub(super) fn wait_kept(timeline: &Timeline<'_>) -> Verdict {
    for (call, got) in pulls(timeline) {
        let Asked::Pull { wait, stopped, .. } = &call.op else { continue };
        let lasted = lasted(call);
        let may_end_early = !got.is_empty() || *stopped || client_closed(timeline, call);
        refute(!may_end_early && lasted + timeline.rules.grain < *wait, Clause::PullWait, &[], || {
            (format!("an empty pull to last {wait:?}"), format!("it ended after {lasted:?}"))
        })?;
    }
    Ok(())
}

/// Clause 10: no pull lasts longer than its wait.
pub(super) fn wait_over(timeline: &Timeline<'_>) -> Verdict {
    for (call, got) in pulls(timeline) {
        let Asked::Pull { wait, .. } = &call.op else { continue };
        let (lasted, latest) = (lasted(call), wait.saturating_add(timeline.rules.slack));
        refute(lasted.saturating_sub(timeline.rules.grain) > latest, Clause::PullWait, &[], || {
            let seen = format!("after {lasted:?}, with {} deliveries", got.len());
            (format!("a pull to end within {latest:?}"), seen)
        })?;
    }
    Ok(())
}

fn lasted(call: &Call) -> std::time::Duration {
    let Span { from, to } = call.span();
    to.saturating_sub(from)
}

pub(super) fn client_closed(timeline: &Timeline<'_>, pull: &Call) -> bool {
    timeline.ends.iter().any(|(client, at)| *at < pull.span().to && *client == pull.client())
}

/// Clause 30: a delayed or postponed message is not delivered before its time.
pub(super) fn not_early(timeline: &Timeline<'_>) -> Verdict {
    for hold in &timeline.holds {
        let Some((from, delay)) = put_off(timeline, hold) else { continue };
        let due = from.saturating_add(delay);
        refute(hold.span.to + timeline.rules.grain < due, Clause::Delays, &[hold.delivered.message], || {
            (
                format!("nothing before {due:?}, as it was deferred by {delay:?}"),
                format!("delivered by {:?}", hold.span.to),
            )
        })?;
    }
    Ok(())
}

/// Returns the delay that this delivery had to wait for, and from when.
fn put_off(timeline: &Timeline<'_>, hold: &Hold<'_>) -> Option<(std::time::Duration, std::time::Duration)> {
    let judged = |life: &&Life<'_>| !timeline.order_is_unsure(hold, life) && life.amendments.is_empty();
    let life = timeline.life_of(hold).filter(judged)?;
    match timeline.previous(hold, life).map(|previous| (previous.fate, previous.place)) {
        Some((Fate::Settled(Act::Postpone { delay, .. }, span), place)) if place == hold.place => {
            Some((span.from, *delay))
        }
        Some(_) => None,
        None => {
            let arrival = life.last_push(hold).filter(|arrival| arrival.place == hold.place)?;
            let (pushed, _) = arrival.pushed?;
            Some((arrival.span.from, pushed.content.delay?))
        }
    }
}

/// Clause 37: a paused partition delivers nothing, not even to a pull that waited before.
pub(super) fn paused(timeline: &Timeline<'_>) -> Verdict {
    for hold in &timeline.holds {
        let here = || timeline.pauses.iter().filter(|pause| pause.place == hold.place);
        let claimed = Span { from: hold.span.from.max(pushed_after(timeline, hold)), to: hold.span.to };
        let paused = here().filter(|pause| pause.paused && pause.certain).any(|pause| {
            let resumed = |other: &Pause<'_>| {
                !other.paused && other.span.to > pause.span.from && other.span.from < hold.span.to
            };
            pause.span.before(claimed) && !here().any(resumed)
        });
        refute(paused, Clause::Pause, &[hold.delivered.message], || {
            (format!("nothing out of {}, which is paused", hold.place), "it was delivered".to_owned())
        })?;
    }
    Ok(())
}
