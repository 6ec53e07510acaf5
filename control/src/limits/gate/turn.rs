//! From the entry of a place, and what a process needs, to what the process gets of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue_worker::Ticket;

use super::place::{Place, State};
use super::record::PlaceRecord;
use super::rule::Rule;
use crate::limits::gcra::Gcra;
use crate::limits::holders::{millis, nanos};
use crate::limits::keeper::Keeper;
use crate::limits::plan::{Me, Moment, PAUSE, size};
use crate::limits::share::{Need, Part, part};
use crate::limits::stock::count;

/// The longest time for which a message of a full place is postponed.
const LONGEST: Duration = Duration::from_secs(30);

/// A ticket, or how long to wait.
pub(super) type Answer = std::result::Result<Ticket, Duration>;

/// What becomes of a place once its entry is changed.
pub(super) struct Turn {
    /// What this process then has of the cap.
    part: Option<Part>,
    /// Why no more tasks may start, and how long that will last, if it is known.
    closed: Option<Closed>,
    moment: Moment,
}

#[derive(Clone, Copy)]
enum Closed {
    /// The cap is used up; the first permits of others expire after this time, unless they are renewed.
    Cap(Option<Duration>),
    /// The rate allows the next task after this time.
    Rate(Duration),
}

impl Turn {
    /// Plans the start of one more task.
    pub(super) fn enter(
        keeper: &Keeper,
        place: &Place,
        rule: &Rule,
        record: &mut PlaceRecord,
        moment: Moment,
    ) -> Self {
        let now_ns = nanos(moment.now);
        let mut gcra = rule.rate.map(|rate| Gcra::new(rate, record.tat_ns, now_ns));
        if let Some(gcra) = &gcra {
            record.tat_ns = record.tat_ns.min(gcra.tat_ns());
        }
        let wait = gcra.filter(|gcra| gcra.available(now_ns) == 0);
        let wait = wait.map(|gcra| Duration::from_nanos(gcra.until_next(now_ns)));
        let asking = if wait.is_some() { 0 } else { place.lock().asking.max(1) };
        let (part, is_full) = Self::hold(keeper, place, rule, record, moment, asking);
        let of_cap = || {
            let lapse = record.holders.first_lapse(&keeper.me.session, moment.now);
            is_full.then_some(Closed::Cap(lapse))
        };
        let closed = wait.map(Closed::Rate).or_else(of_cap);
        if let (Some(gcra), None) = (&mut gcra, closed) {
            gcra.take(1, now_ns);
            record.tat_ns = gcra.tat_ns();
        }
        Self { part, closed, moment }
    }

    /// Plans a renewal: running tasks keep their permits, and those not in use go back.
    pub(super) fn renew(
        keeper: &Keeper,
        place: &Place,
        rule: &Rule,
        record: &mut PlaceRecord,
        moment: Moment,
    ) -> Self {
        let (part, _) = Self::hold(keeper, place, rule, record, moment, 0);
        Self { part, closed: None, moment }
    }

    /// Writes what this process should have of a cap. Also returns whether no more tasks can start. From here
    /// on, permits that others may get are no longer used, whether the entry is changed or not.
    fn hold(
        keeper: &Keeper,
        place: &Place,
        rule: &Rule,
        record: &mut PlaceRecord,
        moment: Moment,
        wanted: usize,
    ) -> (Option<Part>, bool) {
        let Some(cap) = rule.cap else { return (None, false) };
        let who = keeper.stock().who.clone();
        let (me, mut state) = (&keeper.me, place.lock());
        let in_use = count(state.in_use);
        let others = record.holders.others(&me.session);
        let part = part(cap, Need { in_use, started: in_use, peak: in_use, wanted: count(wanted) }, others);
        let missing = in_use.saturating_add(count(wanted)).saturating_sub(part.block);
        let there = record.holders.holder(&me.session);
        let was_lost = there.is_none() && others.held.saturating_add(in_use) > cap;
        let now_ms = millis(moment.now);
        let is_old = there.is_none_or(|there| there.until_ms < me.until(now_ms, me.every / 2));
        let differs = there.map(|there| (there.held, there.wanted)) != Some((part.block, missing));
        // A permit for a task that starts is valid for its whole time.
        let starts = wanted > 0 && part.block > in_use;
        let fits =
            !(is_old || differs || starts) || record.holders.hold(me.holder(&who, part, missing, now_ms));
        let part = if fits { part } else { Part { block: in_use, ..part } };
        // The permit of the task that starts is set aside: another task of this process must not take it
        // before the entry says so.
        let usable = size(part.block).saturating_sub(usize::from(starts));
        state.size = state.size.min(usable);
        state.most = size(part.most);
        if was_lost && state.revoke_at.is_some() {
            tracing::warn!(limit = %place.id.limit, running = state.in_use, "others have the permits of running tasks: they are stopped, and released");
            state.revoke();
        }
        (Some(part), !fits || part.block <= in_use)
    }

    /// Takes up the result of the turn.
    pub(super) fn commit(self, keeper: &Keeper, place: &Arc<Place>, written: bool, now: Instant) -> Answer {
        let (me, mut state) = (&keeper.me, place.lock());
        // If a task may start, the entry says so: if nothing was written, it said so before.
        if let Some(part) = self.part.filter(|_| written || self.closed.is_none()) {
            take_up(me, &mut state, part, self.moment.sent_at);
            state.renew_at = (part.block > 0).then(|| now + me.every);
        }
        state.is_waiting = matches!(self.closed, Some(Closed::Cap(_)));
        let (wait, pause) = match self.closed {
            None => return Ok(place.ticket(&mut state)),
            Some(Closed::Rate(wait)) => (wait.min(LONGEST), Duration::ZERO),
            Some(Closed::Cap(lapse)) => {
                let pause = (state.pause * 2).clamp(PAUSE.min(me.every), LONGEST);
                (lapse.map_or(pause, |lapse| lapse.min(pause)), pause)
            }
        };
        state.pause = pause;
        state.closed_until = Some(now + wait);
        Err(wait)
    }

    /// Notes that permits not in use went back.
    pub(super) fn commit_renewal(self, keeper: &Keeper, place: &Place, written: bool, now: Instant) {
        let (me, mut state) = (&keeper.me, place.lock());
        state.is_waiting = false;
        let Some(part) = self.part else {
            (state.size, state.revoke_at, state.renew_at) = (0, None, None);
            return;
        };
        if written {
            take_up(me, &mut state, part, self.moment.sent_at);
        }
        state.renew_at = (state.size > 0).then(|| now + me.every);
    }
}

/// Notes how many permits the entry grants this process, and until when they are valid.
fn take_up(me: &Me, state: &mut State, part: Part, sent_at: Instant) {
    let (until, lead) = (sent_at + me.valid_for, me.lead());
    state.size = size(part.block);
    state.starts_until = until.checked_sub(lead * 2).unwrap_or(sent_at);
    state.revoke_at = (part.block > 0).then(|| until.checked_sub(lead).unwrap_or(until));
}
