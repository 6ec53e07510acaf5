//! Whether a message may start, by what is known about its places, or by asking the store.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::control::{Applied, Entry, Key};
use anyqueue::{Clock, Error, ErrorKind, MessageData, Result};
use anyqueue_worker::Admission;

use super::place::Place;
use super::record::PlaceRecord;
use super::rule::Rule;
use super::turn::{Answer, Turn};
use crate::limits::keeper::Keeper;
use crate::limits::plan::Moment;

/// How often a change is tried if others are first.
pub(super) const ROUNDS: usize = 16;
/// How long a message waits if it is not known whether it may start.
pub(super) const UNKNOWN: Duration = Duration::from_secs(1);

/// The shortest time by which a message is postponed, and by how much that varies, so that not all messages
/// come back at once.
const SHORTEST: Duration = Duration::from_millis(50);
const SPREAD: Duration = Duration::from_secs(1);

/// A task that is asking the store; dropped when it no longer is.
struct Asking<'a>(&'a Place);

impl<'a> Asking<'a> {
    fn of(place: &'a Place) -> Self {
        place.lock().asking += 1;
        Self(place)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.asking = state.asking.saturating_sub(1);
    }
}

impl Keeper {
    /// Whether a message may start, by all limits that apply to it.
    pub(in crate::limits) async fn admit(&self, message: &MessageData) -> Admission {
        let Some(clock) = self.clock.get().filter(|_| !self.stock().is_leaving) else {
            return Admission::Closed(UNKNOWN);
        };
        let mut tickets = Vec::new();
        for rule in self.gates.rules().iter() {
            let Some(id) = rule.place(message) else { continue };
            if rule.is_unreadable {
                return Admission::Closed(self.me.every);
            }
            let place = self.gates.place(id, clock.now());
            match self.enter(&place, rule, clock).await {
                Ok(ticket) => tickets.push(ticket),
                // The tickets of other limits are released.
                Err(wait) => return Admission::Closed(wait + wait.min(SPREAD).mul_f64(fastrand::f64())),
            }
        }
        Admission::Open(tickets)
    }

    async fn enter(&self, place: &Arc<Place>, rule: &Rule, clock: &Clock) -> Answer {
        if let Some(answer) = known(place, rule, clock.now()) {
            return answer;
        }
        let _asking = Asking::of(place);
        let asked = async {
            let _turn = place.turn.lock().await;
            match known(place, rule, clock.now()) {
                Some(answer) => Ok(answer),
                None => self.ask(place, rule, clock).await,
            }
        };
        let answer = tokio::select! {
            biased;
            answer = asked => answer,
            () = clock.sleep(self.me.valid_for / 3) => Err(Error::new(ErrorKind::TimedOut, "no answer")),
        };
        answer.unwrap_or_else(|error| {
            tracing::debug!(limit = %place.id.limit, %error, "a limit cannot be checked: a task waits");
            Err(UNKNOWN)
        })
    }

    async fn ask(&self, place: &Arc<Place>, rule: &Rule, clock: &Clock) -> Result<Answer> {
        let key = place.id.key()?;
        let (mut moment, mut there) = self.look_at(&key, clock).await?;
        for _ in 0..ROUNDS {
            let before = PlaceRecord::of_place(&place.id, there.as_ref(), moment.now)?;
            let mut record = before.clone();
            let turn = Turn::enter(self, place, rule, &mut record, moment);
            let change =
                if record == before { None } else { record.change(&key, there.as_ref(), moment.now)? };
            let Some(change) = change else { return Ok(turn.commit(self, place, false, clock.now())) };
            let sent_at = clock.now();
            let applied = self.store.apply(change).await?;
            match applied.value {
                Applied::Done => return Ok(turn.commit(self, place, true, clock.now())),
                Applied::Conflict(instead) => {
                    (moment, there) = (Moment { sent_at, now: applied.now }, instead);
                }
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "others keep changing the entry"))
    }

    pub(super) async fn look_at(&self, key: &Key, clock: &Clock) -> Result<(Moment, Option<Entry>)> {
        let sent_at = clock.now();
        let found = self.store.get(key).await?;
        let now: SystemTime = found.now;
        Ok((Moment { sent_at, now }, found.value))
    }
}

/// The answer that needs no call: there is a permit, or it is known that there is none.
fn known(place: &Arc<Place>, rule: &Rule, now: Instant) -> Option<Answer> {
    let ticket = if rule.rate.is_none() { place.take(now) } else { None };
    if let Some(ticket) = ticket {
        return Some(Ok(ticket));
    }
    let state = place.lock();
    let until = state.closed_until.filter(|until| *until > now)?;
    Some(Err(until.saturating_duration_since(now).max(SHORTEST)))
}
