//! Which messages are served, and in which order. Judged only on messages that could certainly be pulled.

use std::collections::{BTreeMap, HashMap};

use anyqueue::PartitionId;

use super::groups::follows_in_group;
use super::ready_intervals::{QueuePosition, ReadyInterval};
use super::rules::Rejoin;
use super::timeline::{Span, Timeline};
use super::timing::{client_closed, pulls};
use super::verdict::{Verdict, refute};
use crate::clause::Clause;
use crate::history::{Asked, Call, Delivered, OnDuplicate};

/// Clauses 9, 11, 25 and 30: a pull that returns fewer messages than it was asked for leaves none behind that
/// was ready: pushed, released, matured, or freed by the end of a lease, within slack.
pub(super) fn ready_is_served(timeline: &Timeline<'_>) -> Verdict {
    let lines = lines(timeline);
    for (call, got) in pulls(timeline) {
        let Asked::Pull { partition, max, wait, stopped, .. } = &call.op else { continue };
        let span = call.span();
        // A pull that waited had time to see what arrived meanwhile.
        let by = if got.is_empty() && !wait.is_zero() {
            span.from.max(span.to.saturating_sub(timeline.rules.wake))
        } else {
            span.from
        };
        if got.len() >= *max
            || *stopped
            || !timeline.never_paused(partition, span)
            || client_closed(timeline, call)
        {
            continue;
        }
        if others_overfetch(timeline, call, partition) {
            continue;
        }
        let passed_over = lines.get(partition).into_iter().flatten().find(|interval| {
            interval.since <= by
                && interval.until > span.to
                && timeline.leads_group(interval, span)
                && !being_replaced(timeline, interval, span)
                && !being_made_ready(timeline, interval, call)
        });
        let Some(interval) = passed_over else { continue };
        let clause = match interval.queue_position {
            QueuePosition::New if interval.content.delay.is_some() => Clause::Delays,
            QueuePosition::New => Clause::ReadyAtOnce,
            QueuePosition::Moved | QueuePosition::Postponed | QueuePosition::Returned => {
                Clause::SettleActions
            }
        };
        refute(true, clause, &[interval.message], || {
            let expected =
                format!("#{} to be delivered, as it was ready since {:?}", interval.message, interval.since);
            (
                expected,
                format!("a pull of {max} from {:?} to {:?} answered {}", span.from, span.to, got.len()),
            )
        })?;
    }
    Ok(())
}

/// Clauses 11, 18, 25 and 30: a waiting pull ends as soon as it can be served: no message became ready long
/// before its end, whether the pull returned it or left it behind.
pub(super) fn woken_in_time(timeline: &Timeline<'_>) -> Verdict {
    let waited = |(call, got): &(&Call, &Vec<Delivered>)| match &call.op {
        Asked::Pull { wait, stopped, .. } => !got.is_empty() && !wait.is_zero() && !*stopped,
        _ => false,
    };
    let waiters: Vec<_> = pulls(timeline).filter(waited).collect();
    for (number, life) in &timeline.lives {
        for interval in timeline.ready_intervals(*number, life) {
            check_waiters(timeline, &interval, &waiters)?;
        }
    }
    Ok(())
}

/// Judges the pulls that waited while the message was certainly there.
fn check_waiters(
    timeline: &Timeline<'_>,
    interval: &ReadyInterval<'_>,
    waiters: &[(&Call, &Vec<Delivered>)],
) -> Verdict {
    for (call, got) in waiters {
        let Asked::Pull { partition, .. } = &call.op else { continue };
        let span = call.span();
        let ready = interval.since.max(span.from);
        let late = span.to > ready.saturating_add(timeline.rules.wake).saturating_add(timeline.rules.grain);
        if !late || interval.place != partition {
            continue;
        }
        // Until this pull returned it, or beyond the pull's end.
        let answered = got.iter().any(|one| one.message == interval.message);
        let there = if answered { interval.until == span.from } else { interval.until > span.to };
        let alone = !answered || interval.until_second > span.to;
        let while_ready = Span { from: ready, to: span.to };
        if !there
            || !alone
            || !timeline.never_paused(partition, while_ready)
            || !timeline.leads_group(interval, while_ready)
            || being_replaced(timeline, interval, while_ready)
            || client_closed(timeline, call)
            || others_overfetch(timeline, call, partition)
        {
            continue;
        }
        let clause = if interval.queue_position == QueuePosition::New && interval.content.delay.is_none() {
            Clause::PushWakes
        } else {
            Clause::AllWaitersWake
        };
        refute(true, clause, &[interval.message], || {
            let expected =
                format!("a waiting pull to end soon after {ready:?}, when #{} was ready", interval.message);
            (expected, format!("it ended at {:?}", span.to))
        })?;
    }
    Ok(())
}

/// Clauses 15 and 19: highest priority first; then released messages; then in the order of joining the line.
pub(super) fn in_order(timeline: &Timeline<'_>) -> Verdict {
    let lines = lines(timeline);
    for (call, got) in pulls(timeline) {
        let Asked::Pull { partition, .. } = &call.op else { continue };
        let Some(line) = lines.get(partition).filter(|_| !others_overfetch(timeline, call, partition)) else {
            continue;
        };
        let answered: HashMap<usize, &Delivered> = got.iter().map(|one| (one.message, one)).collect();
        let (mut later, mut front) = (HashMap::new(), Front::default());
        for interval in line
            .iter()
            .filter(|interval| waited(interval, answered.contains_key(&interval.message), call.span()))
            .filter(|interval| !being_replaced(timeline, interval, call.span()))
            .filter(|interval| !being_made_ready(timeline, interval, call))
        {
            if answered.contains_key(&interval.message) {
                later.insert(interval.message, interval);
            } else {
                front.admit(interval);
            }
        }
        // From the last to the first: so each is compared with those that were left waiting, and those that
        // were returned after it.
        for (at, delivered) in got.iter().enumerate().rev() {
            if follows_in_group(partition, got, at) {
                continue; // it came with the first of its group, whatever its own priority
            }
            let queue_position =
                timeline.hold(delivered.delivery).and_then(|hold| timeline.queue_position_before(hold));
            let overtaken = queue_position.and_then(|interval| front.ahead_of(timeline, &interval));
            if let Some(first) = overtaken {
                refute(true, Clause::Order, &[first.message, delivered.message], || told(first, delivered))?;
            }
            if let Some(interval) = later.get(&delivered.message) {
                front.admit(interval);
            }
        }
    }
    Ok(())
}

/// The first waiting message of each priority and position.
#[derive(Default)]
struct Front<'b, 'a>(BTreeMap<(u8, QueuePosition), &'b ReadyInterval<'a>>);

impl<'b, 'a> Front<'b, 'a> {
    fn admit(&mut self, interval: &'b ReadyInterval<'a>) {
        let turn = |interval: &ReadyInterval<'_>| (interval.joined.to, interval.joined.from, interval.nth);
        let first = self.0.entry((interval.content.priority, interval.queue_position)).or_insert(interval);
        if turn(interval) < turn(first) {
            *first = interval;
        }
    }

    fn ahead_of(
        &self,
        timeline: &Timeline<'_>,
        interval: &ReadyInterval<'_>,
    ) -> Option<&'b ReadyInterval<'a>> {
        self.0.values().find(|first| goes_first(timeline, first, interval)).copied()
    }
}

fn told(first: &ReadyInterval<'_>, delivered: &Delivered) -> (String, String) {
    let expected = format!("#{} first, which had waited since {:?}", first.message, first.since);
    (expected, format!("#{} went ahead of it", delivered.message))
}

/// Returns whether another client's pull may briefly hold more than it returned: this pull cannot have those
/// messages.
fn others_overfetch(timeline: &Timeline<'_>, call: &Call, partition: &PartitionId) -> bool {
    let span = call.span();
    let holds = |other: &Call| match &other.op {
        Asked::Pull { partition: place, .. } => {
            let over = other.span().to.saturating_add(timeline.rules.slack);
            place == partition
                && other.client() != call.client()
                && other.span().from < span.to
                && over > span.from
        }
        _ => false,
    };
    timeline.rules.overfetch && timeline.trace.events.iter().any(holds)
}

/// Returns whether another pull, under way at the same time, may be the first to find the message since its
/// lease or delay was over, and be working on it: a server may skip what is being changed.
fn being_made_ready(timeline: &Timeline<'_>, interval: &ReadyInterval<'_>, call: &Call) -> bool {
    if !interval.by_time {
        return false;
    }
    let span = call.span();
    let here =
        |other: &&Call| matches!(&other.op, Asked::Pull { partition, .. } if partition == interval.place);
    let beside = |other: &&Call| {
        !std::ptr::eq(*other, call) && other.span().from < span.to && other.span().to > span.from
    };
    let others = || timeline.trace.events.iter().filter(here);
    let Some(first) = others().filter(beside).map(|other| other.span().from).min() else { return false };
    let came_upon_it = |earlier: &Call| {
        let earlier = earlier.span();
        earlier.from >= interval.since
            && earlier.to <= first
            && timeline.never_paused(interval.place, earlier)
    };
    !others().any(came_upon_it)
}

/// Returns whether a push with its deduplication key may be working on it: a server may skip what is being
/// changed.
fn being_replaced(timeline: &Timeline<'_>, interval: &ReadyInterval<'_>, span: Span) -> bool {
    let Some(key) = &interval.content.dedup_key else { return false };
    let pushes = timeline.lives.values().flat_map(|life| &life.pushes);
    pushes.into_iter().any(|(call, pushed)| {
        matches!(pushed.on_duplicate, OnDuplicate::Replace | OnDuplicate::Earlier)
            && pushed.content.dedup_key.as_ref() == Some(key)
            && call.span().from < span.to
            && call.span().to > span.from
    })
}

/// Returns whether the pull could have had the message from the pull's first moment on, and nobody else took
/// it.
fn waited(interval: &ReadyInterval<'_>, answered: bool, pull: Span) -> bool {
    let taken_here = answered && interval.until == pull.from && interval.until_second > pull.to;
    interval.content.group.is_none()
        && interval.since <= pull.from
        && (taken_here || interval.until > pull.to)
}

fn goes_first(timeline: &Timeline<'_>, first: &ReadyInterval<'_>, second: &ReadyInterval<'_>) -> bool {
    if first.content.urgent_after.is_some() || second.content.urgent_after.is_some() {
        return false; // the one may be of another level by now
    }
    let (a, b) = (first.content.priority, second.content.priority);
    if timeline.rules.priority && a != b {
        return a > b;
    }
    let same_level = a == b && second.content.group.is_none();
    // Two messages that merely happen to be due at the same moment may come in either order; two of one call
    // may not.
    let one_call = first.begun == second.begun && first.joined == second.joined;
    let in_turn = first.joined.before(second.joined) || (one_call && first.nth < second.nth);
    same_level
        && match (first.queue_position, second.queue_position) {
            (QueuePosition::Returned, QueuePosition::New) => {
                timeline.rules.requeue_front && (timeline.rules.rejoin == Rejoin::End || !second.rejoined())
            }
            (QueuePosition::Returned, _) | (_, QueuePosition::Returned) => false,
            _ => match (first.rejoined(), second.rejoined(), timeline.rules.rejoin) {
                (false, false, _) | (_, _, Rejoin::End) => timeline.rules.push_order && in_turn,
                (true, false, Rejoin::Front) => second.queue_position == QueuePosition::New,
                _ => false,
            },
        }
}

/// Returns all intervals, by partition.
fn lines<'a>(timeline: &Timeline<'a>) -> BTreeMap<&'a PartitionId, Vec<ReadyInterval<'a>>> {
    let mut lines: BTreeMap<&PartitionId, Vec<ReadyInterval<'_>>> = BTreeMap::new();
    for (number, life) in &timeline.lives {
        for interval in timeline.ready_intervals(*number, life) {
            if interval.since < interval.until {
                lines.entry(interval.place).or_default().push(interval);
            }
        }
    }
    lines
}
