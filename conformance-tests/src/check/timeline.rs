//! A history as a timeline: when each message may have come and gone, and who held it.
//!
//! A call takes effect at one moment between its beginning and its end; nobody knows when. So everything is
//! kept as a [`Span`], and invariants judge only what is true whichever moments these were.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use anyqueue::PartitionId;

pub(crate) use super::lives::{Amended, Arrival, Departure, Fate, Hold, Life, Pause, Try};
use super::rules::{Dedup, Rules};
pub(crate) use super::span::{NEVER, Span};
use crate::fault_target::{DISRUPTED, killed};
use crate::history::{
    Act, Amendment, Answer, Asked, Call, Cancellation, Deletion, Delivered, Extending, OnDuplicate, Push,
    Pushed, Settling, Successor, Trace,
};

/// What became of each message, by its calls.
#[derive(Debug)]
pub(crate) struct Timeline<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) trace: &'a Trace,
    pub(crate) lives: BTreeMap<usize, Life<'a>>,
    pub(crate) holds: Vec<Hold<'a>>,
    pub(crate) partitions: BTreeSet<PartitionId>,
    /// Pauses (`true`) and resumptions, and whether they certainly took effect.
    pub(crate) pauses: Vec<Pause<'a>>,
    /// Purges, and how many messages each took; `None` if that is not known.
    pub(crate) purges: Vec<(&'a PartitionId, Span, Option<usize>)>,
    /// When clients were closed or dropped.
    pub(crate) ends: Vec<((&'a str, u32), Duration)>,
    /// When the server was killed.
    pub(crate) deaths: Vec<Duration>,
    /// Pulls of which nobody knows what they claimed, and until when they may hold it.
    pub(crate) open_pulls: Vec<(&'a PartitionId, Span)>,
    /// Whether other processes took messages, of which the history knows only what they reported later.
    pub(crate) others_at_work: bool,
    /// Until when another process may hold what it reported to have taken.
    taken_until: Option<Duration>,
    by_delivery: HashMap<usize, usize>,
}

impl<'a> Timeline<'a> {
    pub(crate) fn of(trace: &'a Trace) -> Self {
        let mut timeline = Self {
            rules: &trace.head.rules,
            trace,
            lives: BTreeMap::new(),
            holds: Vec::new(),
            partitions: BTreeSet::new(),
            pauses: Vec::new(),
            purges: Vec::new(),
            ends: Vec::new(),
            deaths: Vec::new(),
            open_pulls: Vec::new(),
            others_at_work: false,
            taken_until: None,
            by_delivery: HashMap::new(),
        };
        for call in &trace.events {
            timeline.enter(call);
        }
        for call in &trace.events {
            if let Asked::Removed { message } = &call.op {
                timeline.removed(call.span(), *message);
            }
        }
        for life in timeline.lives.values_mut() {
            life.holds.sort_by_key(|hold| timeline.holds.get(*hold).map(|hold| hold.span.to));
        }
        timeline
    }

    pub(crate) fn hold(&self, delivery: usize) -> Option<&Hold<'a>> {
        self.holds.get(*self.by_delivery.get(&delivery)?)
    }

    pub(crate) fn life_of(&self, hold: &Hold<'_>) -> Option<&Life<'a>> {
        self.lives.get(&hold.delivered.message)
    }

    pub(crate) fn holds_of<'b>(&'b self, life: &'b Life<'a>) -> impl Iterator<Item = &'b Hold<'a>> + Clone {
        life.holds.iter().filter_map(|hold| self.holds.get(*hold))
    }

    /// Returns the latest moment at which an outstanding message becomes available.
    pub(crate) fn due_by(&self) -> Duration {
        let mut due = Duration::ZERO;
        for hold in &self.holds {
            due = due.max(match hold.fate {
                Fate::Lapsed | Fate::Unknown => hold.over_by,
                Fate::Settled(Act::Postpone { delay, .. }, span) => span.to.saturating_add(*delay),
                Fate::Settled(..) => Duration::ZERO,
            });
        }
        let arrivals = self.lives.values().flat_map(|life| &life.arrivals);
        let delays = arrivals
            .filter_map(|arrival| Some(arrival.span.to.saturating_add(arrival.pushed?.0.content.delay?)));
        let open = self.open_pulls.iter().map(|(_, span)| span.to);
        delays.chain(open).chain(self.taken_until).fold(due, Duration::max)
    }

    /// Returns how many messages purges took, according to their answers.
    pub(crate) fn purged(&self) -> usize {
        self.purges.iter().filter_map(|(_, _, took)| *took).sum()
    }

    fn life(&mut self, message: usize) -> &mut Life<'a> {
        self.lives.entry(message).or_default()
    }

    fn enter(&mut self, call: &'a Call) {
        let span = call.span();
        match &call.op {
            Asked::Push { partition, items } => self.push(call, partition, items),
            Asked::Pull { partition, lease, wait, answer, .. } => match answer {
                Answer::Ok(got) => {
                    self.pull(call, partition, *lease, got);
                    if self.rules.overfetch {
                        // Messages that it claimed beyond its answer, waiting or not, are handed on or
                        // released within slack.
                        let to = span.to.saturating_add(self.rules.slack);
                        self.open_pulls.push((partition, Span { from: span.to, to }));
                    }
                }
                Answer::Fail(_) => {}
                Answer::Unknown | Answer::Missing => {
                    // A pull whose answer is never heard ends with its wait.
                    let ended = span.to.min(span.from.saturating_add(wait.saturating_add(self.rules.slack)));
                    let to = ended.saturating_add(*lease + self.rules.slack);
                    self.open_pulls.push((partition, Span { from: span.from, to }));
                }
            },
            Asked::Settle { items } => {
                for item in items {
                    let lost = item.answer.ok() == Some(&Settling::Lost);
                    // If the settlement takes two steps, the lease may end between them.
                    let halved = lost && self.may_hold(item.delivery, span.from);
                    if !(lost && self.is_of_another(call, item.delivery)) {
                        self.settle(span, item.message, item.delivery, &item.action, &item.answer);
                    }
                    if halved && !self.rules.moves_once {
                        self.half_copied(span, item.message, &item.action);
                    }
                    for successor in &item.then {
                        // Nothing is promised about the order among the successors of one call: each is the
                        // first.
                        self.push(call, &successor.partition, std::slice::from_ref(&successor.pushed));
                        if halved && !self.rules.successors_once {
                            self.half_stored(span, successor);
                        }
                    }
                }
            }
            Asked::Extend { items } => {
                for item in items {
                    let lost = item.answer.ok() == Some(&Extending::Lost);
                    if !(lost && self.is_of_another(call, item.delivery)) {
                        self.extend(span, item.delivery, item.duration, &item.answer);
                    }
                }
            }
            Asked::Delete { partition, items } => {
                for item in items {
                    self.gone(partition, span, item.message, &item.answer, &Deletion::Deleted);
                }
            }
            Asked::Cancel { partition, items } => {
                for item in items {
                    self.gone(partition, span, item.message, &item.answer, &Cancellation::Removed);
                    if item.answer.ok() == Some(&Cancellation::Requested) {
                        self.life(item.message).cancelled.push(span);
                    }
                }
            }
            Asked::Amend { partition, change, items } => {
                for item in items {
                    let certain = match &item.answer {
                        Answer::Ok(Amendment::Amended) => true,
                        Answer::Unknown | Answer::Missing => false,
                        Answer::Ok(_) | Answer::Fail(_) => continue,
                    };
                    let amended = Amended { place: partition, span, change, certain };
                    self.life(item.message).amendments.push(amended);
                }
            }
            Asked::Purge { partition, answer, .. } => {
                let took = match answer {
                    Answer::Ok(took) => Some(*took),
                    Answer::Fail(_) => Some(0),
                    Answer::Unknown | Answer::Missing => None,
                };
                self.purges.push((partition, span, took));
            }
            Asked::Pause { partition, paused, answer } => {
                if !matches!(answer, Answer::Fail(_)) {
                    let certain = answer.ok().is_some();
                    self.pauses.push(Pause { place: partition, paused: *paused, span, certain });
                }
            }
            Asked::Close => self.closed(call),
            Asked::Crash if !self.rules.timed_leases => self.closed(call),
            Asked::Crash => self.ends.push((call.client(), span.from)),
            Asked::Removed { .. } => self.others_at_work = true, // see `removed`
            Asked::Took { lease, .. } => {
                self.others_at_work = true;
                self.taken_until = self.taken_until.max(Some(span.from.saturating_add(*lease)));
            }
            Asked::Note { text } if text.starts_with(DISRUPTED) => self.disrupted(span, text),
            Asked::Counts { .. } | Asked::Browse { .. } | Asked::Drained | Asked::Note { .. } => {}
        }
    }

    fn push(&mut self, call: &'a Call, partition: &'a PartitionId, items: &'a [Pushed]) {
        self.partitions.insert(partition.clone());
        for (at, item) in items.iter().enumerate() {
            let life = self.lives.entry(item.message).or_default();
            life.pushes.push((call, item));
            let certain = match item.answer {
                // If keys are remembered for a time, a repetition is dropped, and may get the same answer.
                Answer::Ok(Push::Stored) => {
                    item.content.dedup_key.is_none() || self.rules.dedup != Dedup::Window
                }
                Answer::Unknown | Answer::Missing | Answer::Ok(Push::StoredAs(_)) => false,
                Answer::Ok(Push::Replaced(other)) => {
                    self.replaced(call, partition, (item, at), other);
                    continue;
                }
                Answer::Ok(Push::Duplicate) | Answer::Fail(_) => continue,
            };
            let pushed = Some((item, at));
            life.arrivals.push(Arrival { place: partition, span: call.span(), certain, pushed });
        }
    }

    /// Returns whether the delivery may still have been held at this moment.
    fn may_hold(&self, delivery: Option<usize>, moment: Duration) -> bool {
        let hold = delivery.and_then(|delivery| self.hold(delivery));
        hold.is_some_and(|hold| hold.over_by >= moment && !matches!(hold.fate, Fate::Settled(..)))
    }

    /// A copy may have been stored although its delivery did not end.
    fn half_copied(&mut self, span: Span, message: usize, action: &'a Act) {
        let life = self.lives.entry(message).or_default();
        life.half_copied |= matches!(action, Act::Postpone { .. } | Act::Move { .. });
        if let Act::Move { to, headers } = action {
            life.headers.extend(headers);
            life.arrivals.push(Arrival { place: to, span, certain: false, pushed: None });
            self.partitions.insert(to.clone());
        }
    }

    /// A successor may have been stored although its delivery did not end.
    fn half_stored(&mut self, span: Span, Successor { partition, pushed }: &'a Successor) {
        let arrival = Arrival { place: partition, span, certain: false, pushed: Some((pushed, 0)) };
        self.life(pushed.message).arrivals.push(arrival);
    }

    /// Another process reported that it removed the message. Reports of several processes do not arrive in
    /// the order of events: the push may have been reported later.
    fn removed(&mut self, span: Span, message: usize) {
        let life = self.life(message);
        let gone = life.arrivals.iter().map(|arrival| {
            let late = arrival.span.from > span.from;
            let span = if late { Span { from: arrival.span.from, to: NEVER } } else { span };
            Departure { place: arrival.place.clone(), span, certain: true, moved: false }
        });
        let gone: Vec<_> = gone.collect();
        life.departures.extend(gone);
    }

    /// A message that was brought forward is treated as if it had arrived once more, with another delay.
    fn replaced(
        &mut self,
        call: &'a Call,
        place: &'a PartitionId,
        pushed: (&'a Pushed, usize),
        other: usize,
    ) {
        if pushed.0.on_duplicate == OnDuplicate::Earlier {
            let (span, pushed) = (call.span(), Some(pushed));
            self.life(other).arrivals.push(Arrival { place, span, certain: false, pushed });
        }
    }

    fn pull(&mut self, call: &'a Call, place: &'a PartitionId, lease: Duration, got: &'a [Delivered]) {
        let span = call.span();
        for delivered in got {
            self.by_delivery.insert(delivered.delivery, self.holds.len());
            self.lives.entry(delivered.message).or_default().holds.push(self.holds.len());
            self.holds.push(Hold {
                call,
                span,
                place,
                delivered,
                lease,
                sure_until: if self.rules.timed_leases { span.from.saturating_add(lease) } else { NEVER },
                over_by: if self.rules.timed_leases { span.to.saturating_add(lease) } else { NEVER },
                fate: Fate::Lapsed,
                tried: Vec::new(),
            });
        }
    }

    fn settle(
        &mut self,
        span: Span,
        message: usize,
        delivery: Option<usize>,
        action: &'a Act,
        answer: &'a Answer<Settling>,
    ) {
        let took_effect = match answer {
            Answer::Ok(Settling::Settled) => Some(true),
            Answer::Ok(Settling::Lost) | Answer::Fail(_) => Some(false),
            Answer::Unknown | Answer::Missing => None,
        };
        let hold = delivery.and_then(|delivery| self.by_delivery.get(&delivery).copied());
        let Some(hold) = hold.and_then(|hold| self.holds.get_mut(hold)) else { return };
        hold.tried.push(Try {
            span,
            action: Some(action),
            held: if matches!(answer, Answer::Fail(_)) { None } else { took_effect },
            told_cancelled: false,
            sure_until: hold.sure_until,
            over_by: hold.over_by,
        });
        hold.sure_until = hold.sure_until.min(span.from);
        match (took_effect, hold.fate) {
            (Some(true), Fate::Lapsed | Fate::Unknown) => hold.fate = Fate::Settled(action, span),
            (None, Fate::Lapsed) => hold.fate = Fate::Unknown,
            _ => {}
        }
        let place = hold.place.clone();
        if took_effect == Some(false) {
            return;
        }
        let (certain, life) = (took_effect.is_some(), self.lives.entry(message).or_default());
        if let Act::Postpone { headers: Some(headers), .. } | Act::Move { headers: Some(headers), .. } =
            action
        {
            life.headers.push(headers);
        }
        life.half_copied |= !certain && matches!(action, Act::Postpone { .. } | Act::Move { .. });
        match action {
            Act::Remove => life.departures.push(Departure { place, span, certain, moved: false }),
            Act::Move { to, .. } => {
                life.departures.push(Departure { place, span, certain, moved: true });
                life.arrivals.push(Arrival { place: to, span, certain, pushed: None });
                self.partitions.insert(to.clone());
            }
            Act::Release | Act::Retry | Act::Postpone { .. } => {}
        }
    }

    fn extend(
        &mut self,
        span: Span,
        delivery: Option<usize>,
        duration: Duration,
        answer: &'a Answer<Extending>,
    ) {
        let hold = delivery.and_then(|delivery| self.by_delivery.get(&delivery).copied());
        let Some(hold) = hold.and_then(|hold| self.holds.get_mut(hold)) else { return };
        let took_effect = answer.ok().map(|answer| *answer != Extending::Lost);
        hold.tried.push(Try {
            span,
            action: None,
            held: took_effect,
            told_cancelled: answer.ok() == Some(&Extending::CancelRequested),
            sure_until: hold.sure_until,
            over_by: hold.over_by,
        });
        if !self.rules.timed_leases {
            return;
        }
        match took_effect {
            Some(true) => {
                if hold.sure_until >= span.from {
                    hold.sure_until = span.from.saturating_add(duration);
                }
                hold.over_by = span.to.saturating_add(duration);
            }
            Some(false) => hold.sure_until = hold.sure_until.min(span.from),
            None => {
                hold.sure_until = hold.sure_until.min(span.from);
                hold.over_by = hold.over_by.max(span.to.saturating_add(duration));
            }
        }
    }

    fn gone<T: PartialEq>(
        &mut self,
        place: &PartitionId,
        span: Span,
        message: usize,
        answer: &Answer<T>,
        gone: &T,
    ) {
        let certain = match answer {
            Answer::Ok(answer) if answer == gone => true,
            Answer::Unknown | Answer::Missing => false,
            Answer::Ok(_) | Answer::Fail(_) => return,
        };
        self.life(message).departures.push(Departure { place: place.clone(), span, certain, moved: false });
    }

    /// If the lease is the connection, only the client that pulled can end the delivery.
    fn is_of_another(&self, call: &Call, delivery: Option<usize>) -> bool {
        let hold = delivery.and_then(|delivery| self.by_delivery.get(&delivery).copied());
        let hold = hold.and_then(|hold| self.holds.get(hold));
        !self.rules.timed_leases && hold.is_some_and(|hold| hold.call.client() != call.client())
    }

    /// If the lease is the connection, whatever ends connections may have ended it; if claims do not outlive
    /// the server, so may its death.
    fn disrupted(&mut self, span: Span, disruption: &str) {
        let killed = disruption == killed();
        if killed {
            self.deaths.push(span.from);
        }
        if self.rules.timed_leases && (self.rules.claims_last || !killed) {
            return;
        }
        for hold in &mut self.holds {
            hold.sure_no_longer_than(span.from);
        }
    }

    /// What a client held when it closed may come back at once.
    fn closed(&mut self, call: &'a Call) {
        self.ends.push((call.client(), call.invoked));
        for hold in self.holds.iter_mut().filter(|hold| hold.call.client() == call.client()) {
            hold.sure_no_longer_than(call.invoked);
        }
    }
}
