//! Keeping what tasks have of places, and releasing what they no longer need.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::control::Applied;
use anyqueue::{Clock, Error, ErrorKind, Result};
use futures_util::stream::{self, StreamExt};

use super::Gates;
use super::admit::{ROUNDS, UNKNOWN};
use super::place::Place;
use super::record::PlaceRecord;
use super::turn::Turn;
use crate::limits::keeper::Keeper;
use crate::limits::plan::Moment;

/// The time from the end of a task until its permit goes back. In the meantime, the next task of the same
/// value can take it over.
const GIVE_PAUSE: Duration = Duration::from_millis(50);
/// How many entries are changed at the same time.
const AT_ONCE: usize = 16;

impl Place {
    /// Whether its entry has to be written. A process that is leaving no longer waits for permits.
    fn is_due(&self, now: Instant, is_leaving: bool) -> bool {
        let state = self.lock();
        let is_surplus = state.in_use < state.size && state.asking == 0;
        is_surplus || state.renew_at.is_some_and(|at| at <= now) || is_leaving && state.is_waiting
    }
}

impl Gates {
    /// Stops tasks whose permits are about to end. Returns when to look next.
    pub(in crate::limits) fn revoke_due(&self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for place in self.all_places() {
            let mut state = place.lock();
            let Some(at) = state.revoke_at.filter(|_| state.in_use > 0) else { continue };
            if at <= now {
                tracing::warn!(limit = %place.id.limit, running = state.in_use, "the permits of running tasks could not be kept in time: they are stopped, and released");
                state.revoke();
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        next
    }

    fn renew_at(&self) -> Option<Instant> {
        self.all_places().iter().filter_map(|place| place.lock().renew_at).min()
    }
}

impl Keeper {
    /// Keeps what tasks have. Never returns.
    pub(in crate::limits) async fn tend(&self, clock: &Clock) {
        loop {
            let failed = self.tend_once(clock).await;
            let now = clock.now();
            let look = now + self.me.every;
            let wake = self.gates.renew_at().map_or(look, |at| at.min(look));
            let pause = if failed { UNKNOWN.min(self.me.every) } else { GIVE_PAUSE };
            tokio::select! { () = clock.sleep_until(wake) => {}, () = self.gates.given.notified() => {} }
            clock.sleep(pause).await;
        }
    }

    /// Writes what is due. Returns whether some of it failed.
    pub(in crate::limits) async fn tend_once(&self, clock: &Clock) -> bool {
        let (now, is_leaving) = (clock.now(), self.stock().is_leaving);
        let due = self.gates.all_places().into_iter().filter(|place| place.is_due(now, is_leaving));
        let renewed =
            stream::iter(due).map(|place| self.renew_in_time(place, clock)).buffer_unordered(AT_ONCE);
        renewed.fold(false, |failed, renewed| async move { failed || !renewed }).await
    }

    async fn renew_in_time(&self, place: Arc<Place>, clock: &Clock) -> bool {
        let renewed = tokio::select! {
            biased;
            renewed = self.renew(&place, clock) => renewed,
            () = clock.sleep(self.me.valid_for / 3) => Err(Error::new(ErrorKind::TimedOut, "no answer")),
        };
        if let Err(error) = &renewed {
            tracing::debug!(limit = %place.id.limit, %error, "permits cannot be renewed: trying again");
        }
        renewed.is_ok()
    }

    async fn renew(&self, place: &Arc<Place>, clock: &Clock) -> Result<()> {
        let _turn = place.turn.lock().await;
        let Some(rule) = self.gates.rule(&place.id.limit) else {
            // The limit is gone; what its entry says expires.
            let mut state = place.lock();
            (state.size, state.revoke_at, state.renew_at) = (0, None, None);
            return Ok(());
        };
        let key = place.id.key()?;
        let (mut moment, mut there) = self.look_at(&key, clock).await?;
        for _ in 0..ROUNDS {
            let before = PlaceRecord::of_place(&place.id, there.as_ref(), moment.now)?;
            let mut record = before.clone();
            let turn = Turn::renew(self, place, &rule, &mut record, moment);
            let change =
                if record == before { None } else { record.change(&key, there.as_ref(), moment.now)? };
            let Some(change) = change else {
                turn.commit_renewal(self, place, false, clock.now());
                return Ok(());
            };
            let sent_at = clock.now();
            let applied = self.store.apply(change).await?;
            match applied.value {
                Applied::Done => {
                    turn.commit_renewal(self, place, true, clock.now());
                    return Ok(());
                }
                Applied::Conflict(instead) => {
                    (moment, there) = (Moment { sent_at, now: applied.now }, instead);
                }
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "others keep changing the entry"))
    }
}
