//! Groups: who holds their members, and in which order they come.

use std::collections::{BTreeMap, BTreeSet};

use anyqueue::PartitionId;

use super::timeline::{Hold, Life, Span, Timeline};
use super::timing::pulls;
use super::verdict::{Verdict, refute};
use crate::clause::Clause;
use crate::history::{Answer, Asked, Call, Content, Delivered};

/// Clauses 31 and 48: of a group, one member is held at a time, or several that one pull claimed.
pub(super) fn groups_apart(timeline: &Timeline<'_>) -> Verdict {
    if !timeline.rules.groups || !timeline.rules.exclusive {
        return Ok(());
    }
    let mut groups: BTreeMap<(&PartitionId, &str), Vec<_>> = BTreeMap::new();
    for hold in timeline.holds.iter().filter(|hold| !hold.place.is_dead_letters()) {
        if let Some(group) = &hold.delivered.content.group {
            groups.entry((hold.place, group)).or_default().push(hold);
        }
    }
    for ((_, group), mut holds) in groups {
        holds.sort_by_key(|hold| hold.span.to);
        for (at, hold) in holds.iter().enumerate() {
            let others = holds.iter().skip(at + 1).filter(|other| !may_be_held_together(hold, other));
            for other in others {
                let overlap = hold.sure_until.min(other.sure_until).saturating_sub(other.span.to);
                let about = [hold.delivered.message, other.delivered.message];
                refute(overlap > timeline.rules.grain, Clause::Groups, &about, || {
                    let expected = format!("one member of {group} at a time, or several of one pull");
                    (expected, format!("two were held at once, for at least {overlap:?}"))
                })?;
            }
        }
    }
    Ok(())
}

/// Two deliveries of the same message are judged elsewhere.
fn may_be_held_together(hold: &Hold<'_>, other: &Hold<'_>) -> bool {
    let claimed_whole = std::ptr::eq(hold.call, other.call) && group_members(hold.call) > 1;
    claimed_whole || hold.delivered.message == other.delivered.message
}

/// Returns how many members of one group a pull asked for.
fn group_members(call: &Call) -> usize {
    if let Asked::Pull { group_members, .. } = &call.op { *group_members } else { 1 }
}

/// Clause 48: the members of a group that one pull claims come one after another, and no more of them than it
/// asked for.
pub(super) fn groups_whole(timeline: &Timeline<'_>) -> Verdict {
    for (call, got) in pulls(timeline).filter(|(call, _)| group_members(call) > 1) {
        let Asked::Pull { partition, .. } = &call.op else { continue };
        if partition.is_dead_letters() || !timeline.rules.groups {
            continue;
        }
        let mut seen = BTreeSet::new();
        for run in got.chunk_by(|one, next| one.content.group == next.content.group) {
            let Some(group) = run.first().and_then(|one| one.content.group.as_ref()) else { continue };
            let about: Vec<_> = run.iter().map(|one| one.message).collect();
            refute(!seen.insert(group), Clause::WholeGroups, &about, || {
                let expected = format!("the members of {group} one after the other");
                (expected, "others stood between them".to_owned())
            })?;
            let most = group_members(call);
            refute(run.len() > most, Clause::WholeGroups, &about, || {
                (format!("at most {most} members of {group}"), format!("{} of them", run.len()))
            })?;
        }
    }
    Ok(())
}

/// Returns whether the delivery at this position came with the one before it, as a member of the same group.
pub(super) fn follows_in_group(place: &PartitionId, got: &[Delivered], at: usize) -> bool {
    let group = |at: usize| got.get(at).and_then(|one| one.content.group.as_ref());
    let before = at.checked_sub(1).and_then(group);
    !place.is_dead_letters() && before.is_some() && before == group(at)
}

/// Clause 31: no member of a group overtakes one that joined it earlier and is still there.
pub(super) fn groups_in_order(timeline: &Timeline<'_>) -> Verdict {
    if !timeline.rules.groups {
        return Ok(());
    }
    for hold in timeline.holds.iter().filter(|hold| !hold.place.is_dead_letters()) {
        let Some(group) = &hold.delivered.content.group else { continue };
        let Some(joined) = timeline.life_of(hold).and_then(|life| joined(timeline, life, hold.place)) else {
            continue;
        };
        let ahead = timeline.lives.iter().find(|(number, life)| {
            **number != hold.delivered.message
                && life.content().and_then(|content: &Content| content.group.as_ref()) == Some(group)
                && self::joined(timeline, life, hold.place).is_some_and(|first| earlier(&first, &joined))
                && timeline.certainly_in(life, hold.place, hold.span)
                && !came_before(**number, hold)
        });
        let Some((first, _)) = ahead else { continue };
        refute(true, Clause::Groups, &[*first, hold.delivered.message], || {
            let expected = format!("#{first} first, which is ahead in {group}");
            (expected, format!("#{} was delivered", hold.delivered.message))
        })?;
    }
    Ok(())
}

/// Returns whether the same pull claimed that message ahead of this one.
fn came_before(first: usize, hold: &Hold<'_>) -> bool {
    let Asked::Pull { answer: Answer::Ok(got), .. } = &hold.call.op else { return false };
    let ahead = got.iter().take_while(|one| one.delivery != hold.delivered.delivery);
    group_members(hold.call) > 1 && ahead.into_iter().any(|one| one.message == first)
}

/// How a message joined its group.
struct Joined {
    /// The push.
    pushed: Span,
    /// The end of its delay.
    at: Span,
    /// Its place in that push.
    nth: usize,
}

/// Returns when a message certainly joined its group, if it came by its only push and was never moved.
fn joined(timeline: &Timeline<'_>, life: &Life<'_>, place: &PartitionId) -> Option<Joined> {
    if !life.amendments.is_empty() {
        return None;
    }
    let [arrival] = life.arrivals.as_slice() else { return None };
    let (pushed, nth) = arrival.pushed?;
    let delay = pushed.content.delay.unwrap_or_default();
    let late = if delay.is_zero() { delay } else { timeline.rules.slack + timeline.rules.grain };
    let span = arrival.span.later(delay);
    let at = Span { from: span.from.saturating_sub(late), to: span.to.saturating_add(late) };
    (arrival.certain && arrival.place == place).then_some(Joined { pushed: arrival.span, at, nth })
}

/// Two messages that merely happen to be due at the same moment may come in either order; two of one call may
/// not.
fn earlier(a: &Joined, b: &Joined) -> bool {
    a.at.before(b.at) || (a.pushed == b.pushed && a.at == b.at && a.nth < b.nth)
}
