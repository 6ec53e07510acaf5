//! Messages that were amended while they waited: a disabled one is given to nobody, and others come no
//! earlier than their new due time, with their new priority and group.

use super::timeline::{Amended, Hold, Life, Span, Timeline};
use super::verdict::{Verdict, refute};
use crate::clause::Clause;
use crate::history::{Change, Content};

/// Clause 46: a message that is disabled is delivered to nobody.
pub(super) fn disabled_stays(timeline: &Timeline<'_>) -> Verdict {
    for (hold, life) in judged(timeline) {
        let disabled = |change: &Change| change.disabled;
        let set_aside = last(life, hold, disabled).filter(|it| it.change.disabled == Some(true));
        refute(set_aside.is_some(), Clause::Amendments, &[hold.delivered.message], || {
            ("nothing of it, as it is disabled".to_owned(), "it was delivered".to_owned())
        })?;
    }
    Ok(())
}

/// Clause 46: a message that was made due later is not delivered before then.
pub(super) fn amended_moment(timeline: &Timeline<'_>) -> Verdict {
    for (hold, life) in judged(timeline) {
        let Some(amended) = last(life, hold, |change| change.due) else { continue };
        let Some(delay) = amended.change.due else { continue };
        let due = amended.span.from.saturating_add(delay);
        let early = hold.span.to.saturating_add(timeline.rules.grain) < due;
        refute(early, Clause::Amendments, &[hold.delivered.message], || {
            (format!("nothing before {due:?}, as it was made due then"), format!("by {:?}", hold.span.to))
        })?;
    }
    Ok(())
}

/// First deliveries of messages that arrived once.
fn judged<'b, 'a>(timeline: &'b Timeline<'a>) -> impl Iterator<Item = (&'b Hold<'a>, &'b Life<'a>)> {
    let first = |hold: &'b Hold<'a>| {
        let life = timeline.life_of(hold).filter(|life| life.arrivals.len() == 1)?;
        let is_first = timeline.previous(hold, life).is_none() && !timeline.order_is_unsure(hold, life);
        is_first.then_some((hold, life))
    };
    timeline.holds.iter().filter_map(first)
}

/// Returns the last amendment of this kind before the delivery, if it is certain which was the last.
fn last<'b, 'a, T>(
    life: &'b Life<'a>,
    hold: &Hold<'_>,
    what: impl Fn(&Change) -> Option<T>,
) -> Option<&'b Amended<'a>> {
    let concerned =
        || life.amendments.iter().filter(|it| it.place == hold.place && what(it.change).is_some());
    let mut before = concerned().filter(|it| it.certain && it.span.before(hold.span));
    before.find(|it| {
        let overtaken = |other: &Amended<'_>| {
            other.span != it.span && other.span.to > it.span.from && other.span.from < hold.span.to
        };
        !concerned().any(overtaken)
    })
}

/// Returns the content that was pushed, with the priority and the group that amendments may have given it, if
/// those are what was delivered.
pub(super) fn with_amendments(pushed: Content, life: &Life<'_>, hold: &Hold<'_>) -> Content {
    let got = &hold.delivered.content;
    let priority = given(life, hold, pushed.priority, |change| change.priority, got.priority);
    let regrouped = |change: &Change| {
        change.group.is_some().then(|| change.group.clone()).or_else(|| change.ungroup.then_some(None))
    };
    let group = given(life, hold, pushed.group.clone(), regrouped, got.group.clone());
    Content { priority, group, ..pushed }
}

/// Returns what was delivered if that is allowed, otherwise what was pushed.
fn given<T: PartialEq>(
    life: &Life<'_>,
    hold: &Hold<'_>,
    pushed: T,
    what: impl Fn(&Change) -> Option<T>,
    got: T,
) -> T {
    let changes = || life.amendments.iter().filter(|it| what(it.change).is_some());
    let overwritten = |since: Option<Span>| {
        changes().any(|it| {
            let later = since.is_none_or(|since| since != it.span && since.before(it.span));
            it.certain && later && it.span.before(hold.span)
        })
    };
    let begun = changes().filter(|it| it.span.from < hold.span.to);
    let mut candidates = begun.filter(|it| !overwritten(Some(it.span)));
    if candidates.any(|it| what(it.change).as_ref() == Some(&got)) {
        return got;
    }
    // A message that has ended can be pushed anew, as it was.
    let arrivals = life.arrivals.iter().filter(|arrival| arrival.pushed.is_some()).count();
    let anew = life.last_push(hold).filter(|_| arrivals > 1).map(|arrival| arrival.span);
    if overwritten(anew) { last_given(life, what).unwrap_or(pushed) } else { pushed }
}

/// Returns what the last amendment gave, to report as what was expected.
fn last_given<T>(life: &Life<'_>, what: impl Fn(&Change) -> Option<T>) -> Option<T> {
    life.amendments.iter().rev().find_map(|it| what(it.change))
}
