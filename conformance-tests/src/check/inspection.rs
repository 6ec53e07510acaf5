//! Counts, pages, deletions and purges within what the history allows.

use anyqueue::PartitionId;

use super::timeline::{Span, Timeline};
use super::verdict::{Verdict, refute};
use crate::clause::Clause;
use crate::history::{Answer, Asked, Cancellation, Deletion, State};

/// Returns the state that a message certainly had throughout a span; `None` if that is not certain.
fn state(timeline: &Timeline<'_>, message: usize, place: &PartitionId, span: Span) -> Option<State> {
    let life = timeline.lives.get(&message)?;
    if !timeline.certainly_in(life, place, span) {
        return None;
    }
    if held(timeline, message, place, span) {
        return Some(State::Leased);
    }
    let intervals = timeline.ready_intervals(message, life);
    let here = || intervals.iter().filter(|interval| interval.place == place && interval.until > span.to);
    if here().any(|interval| interval.since <= span.from) {
        return Some(State::Ready);
    }
    let put_off = here().any(|interval| interval.begun.before(span) && interval.joined.from > span.to);
    put_off.then_some(State::Delayed)
}

/// Returns whether somebody certainly held the message throughout a span.
fn held(timeline: &Timeline<'_>, message: usize, place: &PartitionId, span: Span) -> bool {
    let sure = span.to.saturating_add(timeline.rules.grain);
    timeline.lives.get(&message).is_some_and(|life| {
        timeline
            .holds_of(life)
            .any(|hold| hold.place == place && hold.span.before(span) && hold.sure_until > sure)
    })
}

/// Clause 35: each count lies between how many are certainly in that state and how many may be.
pub(super) fn counts_possible(timeline: &Timeline<'_>) -> Verdict {
    for call in timeline.trace.events.iter().filter(|_| timeline.rules.inspect_now) {
        let Asked::Counts { partition, answer: Answer::Ok(counts) } = &call.op else { continue };
        let dead = partition.dead_letters();
        let (least, most) = bounds(timeline, partition, call.span());
        let (dead_least, dead_most) = bounds(timeline, &dead, call.span());
        let sum = |all: [u64; 3]| all.iter().sum::<u64>();
        for (name, count, least, most) in [
            ("ready", counts.ready, least[0], most[0]),
            ("delayed", counts.delayed, least[1], most[1]),
            ("leased", counts.leased, least[2], most[2]),
            ("dead", counts.dead, sum(dead_least), sum(dead_most)),
        ] {
            let wrong = count.is_some_and(|count| count < least || count > most);
            refute(wrong, Clause::Inspection, &[], || {
                (format!("{least} to {most} {name} in {partition}"), format!("{}", count.unwrap_or_default()))
            })?;
        }
    }
    Ok(())
}

/// Returns how many are certainly, and how many may be, ready, delayed and leased.
fn bounds(timeline: &Timeline<'_>, place: &PartitionId, span: Span) -> ([u64; 3], [u64; 3]) {
    let (mut least, mut most) = ([0; 3], [0; 3]);
    for (number, life) in &timeline.lives {
        if !life.possibly_in(place, span) {
            continue;
        }
        let is = state(timeline, *number, place, span);
        for (at, kind) in [State::Ready, State::Delayed, State::Leased].into_iter().enumerate() {
            if let (Some(least), Some(most)) = (least.get_mut(at), most.get_mut(at)) {
                *least += u64::from(is == Some(kind));
                *most += u64::from(is.is_none_or(|is| is == kind));
            }
        }
    }
    (least, most)
}

/// Clause 35: a page shows what is there, once, in its state.
pub(super) fn pages_possible(timeline: &Timeline<'_>) -> Verdict {
    for call in timeline.trace.events.iter().filter(|_| timeline.rules.inspect_now) {
        let Asked::Browse { partition, from_start, limit, answer: Answer::Ok(page) } = &call.op else {
            continue;
        };
        let span = call.span();
        for (at, shown) in page.iter().enumerate() {
            let message = shown.message;
            let twice = page.iter().skip(at + 1).any(|other| other.message == message);
            refute(twice, Clause::Inspection, &[message], || {
                ("it once on a page".to_owned(), "twice".to_owned())
            })?;
            let there = timeline.lives.get(&message).is_some_and(|life| life.possibly_in(partition, span));
            refute(!there, Clause::Inspection, &[message], || {
                (format!("only messages of {partition}"), format!("#{message} on the page"))
            })?;
            let is = state(timeline, message, partition, span);
            refute(is.is_some_and(|is| is != shown.state), Clause::Inspection, &[message], || {
                (format!("it shown as {is:?}"), format!("{:?}", shown.state))
            })?;
        }
        let whole = *from_start && page.len() < *limit;
        let left_out = timeline.lives.iter().find(|(number, life)| {
            whole
                && timeline.certainly_in(life, partition, span)
                && page.iter().all(|shown| shown.message != **number)
        });
        refute(
            left_out.is_some(),
            Clause::Inspection,
            &left_out.map(|(number, _)| *number).into_iter().collect::<Vec<_>>(),
            || ("it on the page".to_owned(), "left out".to_owned()),
        )?;
    }
    Ok(())
}

/// Clause 36: deletion and cancellation take waiting messages, leave held ones, and know what is there.
pub(super) fn deletions_true(timeline: &Timeline<'_>) -> Verdict {
    for call in &timeline.trace.events {
        let (partition, answers): (_, Vec<_>) = match &call.op {
            Asked::Delete { partition, items } => {
                let took = |answer| match answer {
                    Deletion::Deleted => Some(true),
                    Deletion::Leased => Some(false),
                    Deletion::NotFound => None,
                };
                (partition, items.iter().filter_map(|i| Some((i.message, took(*i.answer.ok()?)))).collect())
            }
            Asked::Cancel { partition, items } => {
                let took = |answer| match answer {
                    Cancellation::Removed => Some(true),
                    Cancellation::Requested => Some(false),
                    Cancellation::NotFound => None,
                };
                (partition, items.iter().filter_map(|i| Some((i.message, took(*i.answer.ok()?)))).collect())
            }
            _ => continue,
        };
        for (message, took) in answers {
            judge_deletion(timeline, message, partition, call.span(), took)?;
        }
    }
    Ok(())
}

/// `took` is `None` for a message that was not found.
fn judge_deletion(
    timeline: &Timeline<'_>,
    message: usize,
    partition: &PartitionId,
    span: Span,
    took: Option<bool>,
) -> Verdict {
    let life = timeline.lives.get(&message);
    let held = held(timeline, message, partition, span);
    let certain = life.is_some_and(|life| timeline.certainly_in(life, partition, span));
    let possible = life.is_some_and(|life| life.possibly_in(partition, span));
    let waits = matches!(state(timeline, message, partition, span), Some(State::Ready | State::Delayed));
    let (wrong, expected) = match took {
        Some(true) => (held || !possible, if held { "it left alone, as it is held" } else { "it not found" }),
        Some(false) => (waits || !possible, "it taken, as nobody holds it"),
        None => (certain, "it found"),
    };
    refute(wrong, Clause::Deletion, &[message], || {
        let seen = ["not found", "said to be held", "taken"];
        let seen = seen.get(took.map_or(0, |took| 1 + usize::from(took))).copied().unwrap_or_default();
        (format!("{expected} in {partition}"), seen.to_owned())
    })
}

/// Clause 36: a purge takes no more than its limit, and leaves no waiting message if it takes fewer.
pub(super) fn purge_within_limit(timeline: &Timeline<'_>) -> Verdict {
    for call in &timeline.trace.events {
        let Asked::Purge { partition, limit, answer: Answer::Ok(took) } = &call.op else { continue };
        let span = call.span();
        let (_, most) = bounds(timeline, partition, span);
        let most_waiting = most[0] + most[1];
        let wrong = took > limit || u64::try_from(*took).is_ok_and(|took| took > most_waiting);
        refute(wrong, Clause::Deletion, &[], || {
            let expected =
                format!("at most {limit} taken out of {partition}, where at most {most_waiting} wait");
            (expected, format!("{took}"))
        })?;
    }
    Ok(())
}
