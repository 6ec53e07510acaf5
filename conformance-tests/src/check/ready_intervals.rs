//! When a message could certainly be pulled, and when it may have been anywhere at all.

use std::time::Duration;

use anyqueue::PartitionId;

use super::timeline::{Arrival, Departure, Fate, Hold, Life, NEVER, Span, Timeline};
use crate::history::{Act, Content};

/// A time during which a message waited to be pulled.
#[derive(Clone, Debug)]
pub(crate) struct ReadyInterval<'a> {
    pub(crate) message: usize,
    pub(crate) content: &'a Content,
    pub(crate) place: &'a PartitionId,
    pub(crate) queue_position: QueuePosition,
    /// When the message was pushed or released.
    pub(crate) begun: Span,
    /// When the message took its place in the line: later than that if it was deferred.
    pub(crate) joined: Span,
    /// The message's number among those that joined in one call.
    pub(crate) nth: usize,
    /// Whether only time made it ready: a lease ran out, or a delay was over.
    pub(crate) by_time: bool,
    /// The message can certainly be pulled from this moment on.
    pub(crate) since: Duration,
    /// Until this moment nobody can have taken the message.
    pub(crate) until: Duration,
    /// Until this moment nobody can have taken it except the first one who may have.
    pub(crate) until_second: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueuePosition {
    /// Pushed, and never delivered.
    New,
    /// Moved here: at the end of its priority.
    Moved,
    /// Postponed: where the backend declares that such messages go.
    Postponed,
    /// Released: ahead of new messages.
    Returned,
}

impl ReadyInterval<'_> {
    /// Returns whether it has its place because a delay was over, or because it was postponed.
    pub(crate) fn rejoined(&self) -> bool {
        let matured = self.queue_position == QueuePosition::New && self.content.delay.is_some();
        matured || self.queue_position == QueuePosition::Postponed
    }
}

/// Returns when a hold ends.
fn end_of(hold: &Hold<'_>) -> Span {
    match hold.fate {
        Fate::Settled(_, span) => span,
        Fate::Lapsed | Fate::Unknown => Span { from: hold.sure_until, to: hold.over_by },
    }
}

impl<'a> Timeline<'a> {
    /// Returns all intervals of a message that are certain.
    pub(crate) fn ready_intervals(&self, message: usize, life: &Life<'a>) -> Vec<ReadyInterval<'a>> {
        if self.others_at_work || !life.amendments.is_empty() {
            return Vec::new(); // what was amended is judged by invariants of its own
        }
        let mut intervals: Vec<_> =
            life.arrivals.iter().filter_map(|arrival| self.after_push(message, arrival)).collect();
        let alone = self.holds_of(life).filter(|hold| !self.is_shared(hold, life));
        intervals.extend(alone.filter_map(|hold| self.after_hold(hold, life.content()?)));
        for (interval, after) in &mut intervals {
            (interval.until, interval.until_second) = self.first_takings(life, interval, *after);
        }
        intervals.into_iter().map(|(interval, _)| interval).collect()
    }

    /// Returns how the message came to stand where this hold's pull found it; `None` if that is not certain.
    pub(crate) fn queue_position_before(&self, hold: &Hold<'a>) -> Option<ReadyInterval<'a>> {
        let life = self.life_of(hold)?;
        let previous = self.previous(hold, life);
        let arrival = life.last_push(hold).filter(|arrival| arrival.place == hold.place);
        let begun = previous.map(|previous| previous.span).or(arrival.map(|arrival| arrival.span))?;
        if self.order_is_unsure(hold, life) || !life.amendments.is_empty() {
            return None;
        }
        if !life.departures.iter().all(|departure| departure.certain) || self.claimed_unseen(hold, begun) {
            return None;
        }
        let (interval, _) = match (previous, arrival) {
            (Some(previous), _) if !matches!(previous.fate, Fate::Settled(Act::Remove, _)) => {
                self.after_hold(previous, life.content()?)?
            }
            (Some(_), _) if !self.rules.moves_once => return None, // that was the other one, which a move has left
            (_, Some(arrival)) => self.after_push(hold.delivered.message, arrival)?,
            _ => return None,
        };
        (interval.place == hold.place).then_some(interval)
    }

    /// Returns the last delivery of the same message before this one, since it was last pushed.
    pub(crate) fn previous<'b>(&'b self, hold: &Hold<'a>, life: &'b Life<'a>) -> Option<&'b Hold<'a>> {
        let pushed = life.last_push(hold).map(|arrival| arrival.span.from);
        let earlier = self.holds_of(life).filter(|other| other.span.to < hold.span.to);
        earlier.filter(|other| pushed.is_none_or(|pushed| other.span.to > pushed)).last()
    }

    /// Returns whether another delivery may have come between this one and the previous one, or taken its
    /// place: claims happen in the order of their answers, except where [`Self::may_be_swapped`] says that
    /// they may not.
    pub(crate) fn order_is_unsure(&self, hold: &Hold<'a>, life: &Life<'a>) -> bool {
        let previous = self.previous(hold, life);
        self.holds_of(life).any(|other| {
            self.may_be_swapped(hold, other)
                || previous.is_some_and(|previous| self.may_be_swapped(previous, other))
        })
    }

    /// Returns whether, of two concurrent pulls, the one that answered last may have claimed first: its lease
    /// was over, or released by the end of its client, when the other answered.
    pub(crate) fn may_be_swapped(&self, one: &Hold<'a>, other: &Hold<'a>) -> bool {
        let claimed_first = |last: &Hold<'a>, first: &Hold<'a>| {
            let over = last.sure_until <= first.span.to.saturating_add(self.rules.grain);
            last.span.from < first.span.to && first.span.to <= last.span.to && (over || !self.rules.exclusive)
        };
        one.delivered.delivery != other.delivered.delivery
            && (claimed_first(one, other) || claimed_first(other, one))
    }

    /// Returns whether a pull whose answer was lost may have held the message since `begun`.
    pub(crate) fn claimed_unseen(&self, hold: &Hold<'a>, begun: Span) -> bool {
        let claimed = |(place, open): &(&PartitionId, Span)| {
            *place == hold.place && open.from < hold.span.to && open.to > begun.from
        };
        self.others_at_work || self.open_pulls.iter().any(claimed)
    }

    /// Returns whether another consumer may hold the message when this one releases it, and keep holding it.
    fn is_shared(&self, hold: &Hold<'a>, life: &Life<'a>) -> bool {
        let (mine, end) = (hold.delivered.delivery, end_of(hold));
        let mut others = self.holds_of(life).filter(|other| other.delivered.delivery != mine);
        !self.rules.exclusive && others.any(|other| other.span.from <= end.to && end_of(other).to >= end.from)
    }

    fn after_push(&self, message: usize, arrival: &Arrival<'a>) -> Option<(ReadyInterval<'a>, Duration)> {
        let (pushed, nth) = arrival.pushed.filter(|_| arrival.certain)?;
        let delay = pushed.content.delay.unwrap_or_default();
        let (joined, since) = self.matured(arrival.span, delay);
        let (content, place) = (&pushed.content, arrival.place);
        let (queue_position, until) = (QueuePosition::New, NEVER);
        let begun = arrival.span;
        Some((
            ReadyInterval {
                message,
                content,
                place,
                queue_position,
                begun,
                joined,
                nth,
                by_time: !delay.is_zero(),
                since,
                until,
                until_second: until,
            },
            begun.from,
        ))
    }

    fn after_hold(&self, hold: &Hold<'a>, content: &'a Content) -> Option<(ReadyInterval<'a>, Duration)> {
        let (queue_position, place, begun, (joined, since), after) = match hold.fate {
            Fate::Settled(Act::Release | Act::Retry, span) => {
                (QueuePosition::Returned, hold.place, span, (span, span.to), span.from)
            }
            Fate::Settled(Act::Postpone { delay, .. }, span) => {
                (QueuePosition::Postponed, hold.place, span, self.matured(span, *delay), span.from)
            }
            Fate::Settled(Act::Move { to, .. }, span) => {
                (QueuePosition::Moved, to, span, (span, span.to), span.from)
            }
            Fate::Lapsed => {
                let over = hold.over_by.saturating_add(self.rules.slack);
                let joined = Span { from: hold.sure_until, to: over };
                // A lease can be over before the pull returns: then somebody may have taken it in between.
                let after = hold.span.to.min(hold.sure_until);
                (QueuePosition::Returned, hold.place, joined, (joined, over), after)
            }
            Fate::Settled(Act::Remove, _) | Fate::Unknown => return None,
        };
        let by_time = match hold.fate {
            Fate::Settled(Act::Postpone { delay, .. }, _) => !delay.is_zero(),
            Fate::Settled(..) => false,
            Fate::Lapsed | Fate::Unknown => true,
        };
        let message = hold.delivered.message;
        let interval = ReadyInterval {
            message,
            content,
            place,
            queue_position,
            begun,
            joined,
            nth: 0,
            by_time,
            since,
            until: NEVER,
            until_second: NEVER,
        };
        Some((interval, after))
    }

    /// Returns when a message deferred at `span` joins the line, and from when on it certainly stands there.
    fn matured(&self, span: Span, delay: Duration) -> (Span, Duration) {
        if delay.is_zero() {
            return (span, span.to);
        }
        let due = span.later(delay);
        let to = due.to.saturating_add(self.rules.slack);
        (Span { from: due.from.saturating_sub(self.rules.grain), to }, to)
    }

    /// Returns the two earliest moments at which somebody may have taken the message out of the interval.
    /// Pulls that had ended by `after` cannot have taken it.
    fn first_takings(
        &self,
        life: &Life<'a>,
        interval: &ReadyInterval<'a>,
        after: Duration,
    ) -> (Duration, Duration) {
        let holds = self.holds_of(life).map(|hold| hold.span);
        let departures = life.departures.iter().filter(|gone| gone.place == *interval.place);
        let purges =
            self.purges.iter().filter(|(place, _, took)| *place == interval.place && *took != Some(0));
        let open = self.open_pulls.iter().filter(|(place, _)| *place == interval.place);
        let takings = holds
            .chain(departures.map(|gone| gone.span))
            .chain(purges.map(|(_, span, _)| *span))
            .chain(open.map(|(_, span)| *span));
        let possible = takings.filter(|span| span.to > after).map(|span| span.from);
        possible.fold((NEVER, NEVER), |(first, second), at| (first.min(at), second.min(first.max(at))))
    }

    /// Returns whether the message was there throughout the span, waiting, delayed or held.
    pub(crate) fn certainly_in(&self, life: &Life<'a>, place: &PartitionId, span: Span) -> bool {
        let there =
            |arrival: &&Arrival<'a>| arrival.certain && arrival.place == place && arrival.span.before(span);
        let Some(arrived) = life.arrivals.iter().filter(there).map(|arrival| arrival.span.from).max() else {
            return false;
        };
        let left =
            |gone: &Departure| gone.place == *place && gone.span.to > arrived && gone.span.from < span.to;
        let purged = |(from, purge, took): &(&PartitionId, Span, Option<usize>)| {
            *from == place && *took != Some(0) && purge.to > arrived && purge.from < span.to
        };
        !self.others_at_work && !life.departures.iter().any(left) && !self.purges.iter().any(purged)
    }

    /// Returns whether no pause can have kept a pull from the partition at any moment of the span.
    pub(crate) fn never_paused(&self, place: &PartitionId, span: Span) -> bool {
        let pauses = || self.pauses.iter().filter(|pause| pause.place == place);
        let resumed =
            |pause: &&super::timeline::Pause<'_>| !pause.paused && pause.certain && pause.span.before(span);
        let resumed = pauses().filter(resumed).map(|pause| pause.span.from).max().unwrap_or_default();
        !pauses().any(|pause| pause.paused && pause.span.to > resumed && pause.span.from < span.to)
    }

    /// Returns whether the message is in no group here, or was the first of its group throughout the span.
    pub(crate) fn leads_group(&self, interval: &ReadyInterval<'a>, span: Span) -> bool {
        let Some(group) = interval.content.group.as_ref().filter(|_| self.rules.groups) else { return true };
        let others = self.lives.iter().filter(|(number, life)| {
            let pushed = life.content().and_then(|content| content.group.as_ref()) == Some(group);
            let joined = || life.amendments.iter().any(|it| it.change.group.as_ref() == Some(group));
            **number != interval.message && (pushed || joined())
        });
        interval.place.is_dead_letters()
            || others.into_iter().all(|(_, life)| !life.possibly_in(interval.place, span))
    }
}

impl<'a> Life<'a> {
    /// Returns the last push of the message before this delivery.
    pub(crate) fn last_push(&self, hold: &Hold<'_>) -> Option<&Arrival<'a>> {
        let pushes = self.arrivals.iter().filter(|arrival| arrival.pushed.is_some());
        pushes.filter(|arrival| arrival.span.from < hold.span.to).max_by_key(|arrival| arrival.span.from)
    }

    /// Returns whether the message may have been there at some moment of the span.
    pub(crate) fn possibly_in(&self, place: &PartitionId, span: Span) -> bool {
        self.arrivals.iter().any(|arrival| {
            let gone = |gone: &Departure| {
                gone.certain
                    && gone.place == *place
                    && gone.span.from >= arrival.span.to
                    && gone.span.before(span)
            };
            arrival.place == place && arrival.span.from < span.to && !self.departures.iter().any(gone)
        })
    }
}
