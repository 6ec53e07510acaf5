//! What is stored, where, and for how long.

use std::time::Duration;

use super::rules::Dedup;
use super::timeline::{Arrival, Departure, Hold, Life, NEVER, Span, Timeline};
use super::verdict::{Verdict, refute};
use crate::clause::Clause;
use crate::history::{Act, Answer, Asked, Call, OnDuplicate, Push, Pushed};

/// Clauses 43 and 32: a push that was refused, or answered `Duplicate`, stored nothing.
pub(super) fn refused_is_not_stored(timeline: &Timeline<'_>) -> Verdict {
    for hold in &timeline.holds {
        let Some(life) = timeline.life_of(hold) else { continue };
        let stored = life.arrivals.iter().any(|arrival| arrival.span.from < hold.span.to);
        let is_duplicate =
            |answer: &Answer<Push>| matches!(answer.ok(), Some(Push::Duplicate | Push::Replaced(_)));
        let duplicate = life.pushes.iter().any(|(_, pushed)| is_duplicate(&pushed.answer));
        let followed = life.pushes.iter().any(|(call, _)| matches!(call.op, Asked::Settle { .. }));
        let clause = match (duplicate, followed) {
            (true, _) => Clause::Deduplication,
            (false, true) => Clause::Successors,
            (false, false) => Clause::Unsupported,
        };
        refute(!stored, clause, &[hold.delivered.message], || {
            let answers: Vec<_> = life.pushes.iter().map(|(_, pushed)| &pushed.answer).collect();
            (format!("nothing stored, as the push answered {answers:?}"), "it was delivered".to_owned())
        })?;
    }
    Ok(())
}

/// Clause 33: a message that was moved is in its new place, and no longer in the old one.
pub(super) fn one_place(timeline: &Timeline<'_>) -> Verdict {
    for hold in &timeline.holds {
        let forgotten =
            !timeline.rules.settlements_last && timeline.deaths.iter().any(|death| *death < hold.span.to);
        refute(
            !forgotten && returned_from(timeline, hold, true),
            Clause::DeadLetters,
            &[hold.delivered.message],
            || {
                let expected = format!("nothing of it in {} after it was moved away", hold.place);
                (expected, "it was delivered there".to_owned())
            },
        )?;
    }
    Ok(())
}

/// Clauses 20 and 22: nothing is delivered after its confirmed removal, except where a server that declares
/// to survive nothing forgets the removal.
pub(super) fn final_removal(timeline: &Timeline<'_>) -> Verdict {
    for hold in &timeline.holds {
        let forgotten =
            !timeline.rules.settlements_last && timeline.deaths.iter().any(|death| *death < hold.span.to);
        let broken = timeline.rules.confirmed && !forgotten && returned_from(timeline, hold, false);
        refute(broken, Clause::SettleTwice, &[hold.delivered.message], || {
            ("nothing delivered after its confirmed removal".to_owned(), "it came back".to_owned())
        })?;
    }
    Ok(())
}

/// Returns whether the message was pulled from a place that it had certainly left, and to which it cannot
/// have come again.
fn returned_from(timeline: &Timeline<'_>, hold: &Hold<'_>, moved: bool) -> bool {
    let Some(life) = timeline.life_of(hold) else { return false };
    // If ids are not unique, a repeated push may have stored the message twice.
    let pushes = life.arrivals.iter().filter(|arrival| arrival.pushed.is_some()).count();
    if (pushes > 1 && !timeline.rules.unique_ids) || timeline.may_be_half_copied(life) {
        return false;
    }
    let left = |gone: &Departure| {
        let again = life.arrivals.iter().any(|arrival| {
            arrival.place == hold.place
                && arrival.span.to > gone.span.from
                && arrival.span.from < hold.span.to
        });
        gone.certain
            && gone.moved == moved
            && gone.place == *hold.place
            && gone.span.before(hold.span)
            && !again
    };
    life.departures.iter().any(left)
}

/// Clause 32: there is one message per id and per deduplication key, and `Duplicate` is returned only if
/// there is another.
pub(super) fn dedup(timeline: &Timeline<'_>) -> Verdict {
    for call in &timeline.trace.events {
        let Asked::Push { partition, items } = &call.op else { continue };
        for (at, item) in items.iter().enumerate() {
            let span = call.span();
            let rival = |certain: bool| {
                let same_id = || timeline.lives.get_key_value(&item.message).into_iter().collect();
                let keyed = item.content.dedup_key.is_some();
                let others: Vec<_> = if keyed { timeline.lives.iter().collect() } else { same_id() };
                others.into_iter().find(|(number, life)| {
                    rivals(timeline, call, (item, at), **number, life).any(|place| {
                        let keeps_key = **number == item.message
                            || !timeline.may_have_lost_its_key(**number, life, place);
                        !certain
                            || at_home(place, partition)
                                && keeps_key
                                && certain_rival(timeline, life, place, span)
                    })
                })
            };
            match item.answer {
                Answer::Ok(Push::Stored) if item.on_duplicate != OnDuplicate::Behind => {
                    let first = rival(true).map(|(number, _)| *number);
                    refute(
                        first.is_some(),
                        Clause::Deduplication,
                        &[first.unwrap_or_default(), item.message],
                        || {
                            let expected =
                                format!("Duplicate, as #{} lives in {partition}", first.unwrap_or_default());
                            (expected, "Stored".to_owned())
                        },
                    )?;
                }
                Answer::Ok(Push::Duplicate | Push::Replaced(_)) if timeline.rules.dedup != Dedup::Window => {
                    refute(rival(false).is_none(), Clause::Deduplication, &[item.message], || {
                        (
                            "Stored, as there is no other with its id or key".to_owned(),
                            format!("{:?}", item.answer),
                        )
                    })?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns where a message may have been in the way of this push, by its id or by its key.
fn rivals<'b>(
    timeline: &'b Timeline<'_>,
    call: &'b Call,
    (item, at): (&'b Pushed, usize),
    number: usize,
    life: &'b Life<'_>,
) -> impl Iterator<Item = &'b anyqueue::PartitionId> {
    let key = item.content.dedup_key.as_ref().filter(|_| timeline.rules.dedup == Dedup::WhileLive);
    let target = match &call.op {
        Asked::Push { partition, .. } => Some(partition),
        _ => None,
    };
    life.arrivals
        .iter()
        .filter(move |arrival| {
            let same_id = number == item.message && timeline.rules.unique_ids;
            let same_key = number != item.message
                && target == Some(arrival.place)
                && key.is_some_and(|key| {
                    arrival.pushed.is_some_and(|(p, _)| p.content.dedup_key.as_ref() == Some(key))
                });
            // In one call the earlier of two comes first; it is in the way of the later one, never the
            // reverse.
            let earlier = arrival.span != call.span() || arrival.pushed.is_some_and(|(_, nth)| nth < at);
            (same_id || same_key) && earlier && life.possibly_in(arrival.place, call.span())
        })
        .map(|arrival| arrival.place)
}

/// Returns whether an id in one of these partitions must not be pushed to the other. Elsewhere it may be a
/// duplicate, or another message.
fn at_home(one: &anyqueue::PartitionId, other: &anyqueue::PartitionId) -> bool {
    one.name() == other.name()
}

/// Returns whether it certainly was there all the time, with its key.
fn certain_rival(
    timeline: &Timeline<'_>,
    life: &Life<'_>,
    place: &anyqueue::PartitionId,
    span: Span,
) -> bool {
    timeline.certainly_in(life, place, span) && !life.departures.iter().any(|gone| gone.moved)
}

/// Clause 44: if storing a successor and ending the delivery are one step, nobody gets a message whose
/// successor is already there.
pub(super) fn ended_with_successors(timeline: &Timeline<'_>) -> Verdict {
    if !timeline.rules.successors_once || !timeline.rules.settlements_last {
        return Ok(());
    }
    for call in &timeline.trace.events {
        let Asked::Settle { items } = &call.op else { continue };
        for item in items.iter().filter(|item| item.action == Act::Remove) {
            let seen = item.then.iter().filter_map(|it| timeline.first_seen(it.pushed.message)).min();
            let Some(seen) = seen else { continue };
            let Some(life) = timeline.lives.get(&item.message).filter(|life| life.arrivals.len() == 1) else {
                continue;
            };
            let again = timeline.holds_of(life).any(|hold| hold.span.from > seen);
            refute(again, Clause::Successors, &[item.message], || {
                let expected = "it to have ended, as a successor of it was delivered".to_owned();
                (expected, "it was delivered again after that".to_owned())
            })?;
        }
    }
    Ok(())
}

/// Clauses 1 and 36: once everything is drained, each acknowledged message was removed by somebody, or taken
/// by a purge.
pub(super) fn nothing_lost(timeline: &Timeline<'_>) -> Verdict {
    let forgets = !timeline.rules.pushes_last && !timeline.deaths.is_empty();
    if forgets || !timeline.trace.events.iter().any(|call| call.op == Asked::Drained) {
        return Ok(());
    }
    let owed = timeline.owed();
    let shown = owed.get(..owed.len().min(5)).unwrap_or_default();
    let purged = timeline.purges.iter().map(|(_, _, took)| *took).sum::<Option<usize>>();
    match purged {
        Some(0) => refute(!owed.is_empty(), Clause::Stored, shown, || {
            let expected = "every acknowledged message to be removed by somebody or drained at the end";
            (expected.to_owned(), format!("{} lost", owed.len()))
        }),
        Some(purged) => {
            let at_most = owed.len() + timeline.maybe_owed();
            refute(!(owed.len()..=at_most).contains(&purged), Clause::Deletion, shown, || {
                let expected = format!("{purged} gone, as many as the purges returned");
                (expected, format!("{} gone", owed.len()))
            })
        }
        None => Ok(()),
    }
}

impl Timeline<'_> {
    /// Returns whether a push that was to be stored behind this message may have taken over its key.
    fn may_have_lost_its_key(&self, number: usize, life: &Life<'_>, place: &anyqueue::PartitionId) -> bool {
        let key = life.content().and_then(|content| content.dedup_key.as_ref());
        let takes = |(other, later): (&usize, &Life<'_>)| {
            *other != number
                && later.pushes.iter().any(|(_, pushed)| {
                    pushed.on_duplicate == OnDuplicate::Behind && pushed.content.dedup_key.as_ref() == key
                })
                && later.arrivals.iter().any(|arrival| arrival.place == place)
        };
        key.is_some() && self.lives.iter().any(takes)
    }

    /// Returns when the message was certainly there: at the end of the first pull that returned it. Returns
    /// nothing if it was pushed more than once.
    fn first_seen(&self, message: usize) -> Option<Duration> {
        let life = self.lives.get(&message).filter(|life| life.pushes.len() == 1)?;
        self.holds_of(life).map(|hold| hold.span.to).min()
    }

    /// Returns whether a copy of the message may be left over from a move or a postponement that was cut off.
    pub(crate) fn may_be_half_copied(&self, life: &Life<'_>) -> bool {
        !self.rules.moves_once && life.half_copied
    }

    /// Returns messages that were acknowledged and that nobody can have removed since, once for each time.
    pub(crate) fn owed(&self) -> Vec<usize> {
        let owed = |(number, life): (&usize, &Life<'_>)| std::iter::repeat_n(*number, life.unremoved(true));
        self.lives.iter().flat_map(owed).collect()
    }

    /// Returns how many more may have been stored and not removed.
    fn maybe_owed(&self) -> usize {
        self.lives.values().map(|life| life.unremoved(false)).sum()
    }
}

impl Life<'_> {
    /// A message can be pushed anew once it was removed: each time it has to be removed again.
    fn unremoved(&self, certain: bool) -> usize {
        let pushed =
            || self.arrivals.iter().filter(|arrival| arrival.certain == certain && arrival.pushed.is_some());
        let unremoved = |arrival: &&Arrival<'_>| {
            // A message that may have been removed may also have been pushed anew by a push that is certain.
            let anew =
                self.arrivals.iter().filter(|next| next.pushed.is_some() && (next.certain || !certain));
            let again = anew.map(|next| next.span).find(|next| arrival.span.before(*next));
            let by = again.map_or(NEVER, |again| again.to);
            let removed =
                |gone: &Departure| !gone.moved && gone.span.to > arrival.span.from && gone.span.from < by;
            !self.departures.iter().any(removed)
        };
        pushed().filter(unremoved).count()
    }
}
