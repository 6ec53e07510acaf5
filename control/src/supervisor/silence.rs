//! Looks for processes that are alive but silent.

use std::convert::Infallible;
use std::time::Duration;

use anyqueue::control::{Change, ControlStore, Expect, Key, MAX_CONTROL_CHANGES};
use anyqueue::{Error, ErrorKind, Result};
use serde::Serialize;
use tokio::time::Instant;

use super::events::Event;
use super::shared::{Place, PlaceState, Shared};
use crate::entry::{FORMAT, encode};
use crate::registry::{Registry, WorkerInfo, key_of};

/// How many looks in a row must find a beat missing: after the machine slept, or its clock was set, one look
/// finds all of them missing.
const LOOKS: u32 = 3;
/// How long the supervisor's own entry stays.
const OWN_TTL: Duration = Duration::from_mins(5);

/// What the supervisor writes to see whether the store accepts writes.
#[derive(Serialize)]
struct Own {
    format: u32,
    pid: u32,
}

/// What was seen of one place.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Which of its processes this is about.
    life: u64,
    /// Whether the process has sent a beat.
    has_beaten: bool,
    /// How many looks in a row found it silent.
    silent: u32,
}

/// Looks again and again. Never returns.
pub(super) async fn watch(shared: &Shared, registry: &Registry) -> Infallible {
    let own = own_key();
    let mut seen = vec![Seen::default(); shared.places.len()];
    let (mut is_blind, mut last) = (false, Instant::now());
    loop {
        tokio::time::sleep(shared.options.look_every).await;
        // A supervisor that slept for long does not know what the others did in the meantime.
        if last.elapsed() > shared.options.look_every.saturating_mul(LOOKS) {
            seen.fill(Seen::default());
        }
        last = Instant::now();
        let look = look(registry, own.as_ref(), &shared.places);
        let found =
            tokio::time::timeout(shared.options.look_every, look).await.unwrap_or_else(|_| Err(late()));
        let was_blind = std::mem::replace(&mut is_blind, found.is_err());
        match found {
            Ok(found) => judge(shared, &mut seen, &found),
            Err(error) if !was_blind => shared.note(&Event::Blind { why: error.to_string() }),
            Err(_) => {}
        }
    }
}

fn late() -> Error {
    Error::new(ErrorKind::TimedOut, "no answer in time")
}

fn own_key() -> Result<Key> {
    Key::new(format!("supervisor/{}", uuid::Uuid::new_v4()))
}

/// What a look found in a place: nothing, or the id of the process whose beats are valid.
type Beat = Option<u32>;

/// Writes, and then reads the entries of all places. Silence means nothing in a store that accepts no writes.
async fn look(registry: &Registry, own: Result<&Key, &Error>, places: &[Place]) -> Result<Vec<Beat>> {
    let store = registry.store();
    prove_writable(store, own.map_err(Error::clone)?).await?;
    let mut beats = Vec::with_capacity(places.len());
    for some in places.chunks(MAX_CONTROL_CHANGES) {
        let keys: Vec<_> = some.iter().map(|place| key_of(&place.name)).collect::<Result<_>>()?;
        let found = store.get_many(&keys).await?;
        let entries = some.iter().zip(found.value);
        beats.extend(entries.map(|(place, entry)| {
            let worker = WorkerInfo::of(&place.name, &entry?);
            // An entry of a newer release is a beat too.
            let Ok(worker) = worker else { return Some(0) };
            (!worker.is_lost(found.now)).then_some(worker.pid)
        }));
    }
    Ok(beats)
}

async fn prove_writable(store: &ControlStore, own: &Key) -> Result<()> {
    let value = encode(&Own { format: FORMAT, pid: std::process::id() })?;
    store.apply(Change::put(own.clone(), Expect::Any, value).with_ttl(OWN_TTL)).await?;
    Ok(())
}

/// Counts what was found, and has processes killed that are silent for too long.
fn judge(shared: &Shared, seen: &mut [Seen], beats: &[Beat]) {
    for ((place, seen), beat) in shared.places.iter().zip(seen).zip(beats) {
        let state = *place.state();
        if seen.follow(&state, *beat, shared.options.start_within) >= LOOKS {
            place.hung.send_replace(state.life);
        }
    }
}

impl Seen {
    /// Takes up what a look found. Returns how many looks in a row found silence.
    fn follow(&mut self, state: &PlaceState, beat: Beat, start_within: Duration) -> u32 {
        let Some((pid, since)) = state.running else { return 0 };
        if self.life != state.life {
            *self = Self { life: state.life, ..Self::default() };
        }
        self.has_beaten |= beat == Some(pid);
        let may_be_starting = !self.has_beaten && since.elapsed() < start_within;
        self.silent = if beat.is_some() || may_be_starting { 0 } else { self.silent.saturating_add(1) };
        self.silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn running(life: u64) -> PlaceState {
        PlaceState { life, running: Some((7, Instant::now())), ..PlaceState::default() }
    }

    #[tokio::test]
    async fn silence_counts_after_a_beat_or_when_the_start_has_taken_too_long() {
        let mut seen = Seen::default();
        assert_eq!(seen.follow(&running(1), None, HOUR), 0, "it may be starting");
        assert_eq!(seen.follow(&running(1), Some(7), HOUR), 0);
        assert_eq!([1, 2, 3], [(); 3].map(|()| seen.follow(&running(1), None, HOUR)));
        assert_eq!(seen.follow(&running(1), Some(7), HOUR), 0, "a beat is life");
        assert_eq!(seen.follow(&running(2), None, HOUR), 0, "its successor may be starting");
        assert_eq!(seen.follow(&running(2), None, Duration::ZERO), 1, "for too long");
    }

    #[tokio::test]
    async fn the_beat_of_a_predecessor_is_not_the_first_of_its_successor() {
        let mut seen = Seen::default();
        assert_eq!(seen.follow(&running(1), Some(6), HOUR), 0);
        assert_eq!(seen.follow(&running(1), None, HOUR), 0, "it may still be starting");
    }

    #[tokio::test]
    async fn where_nothing_runs_nothing_is_silent() {
        let none = PlaceState { life: 1, ..PlaceState::default() };
        assert_eq!(Seen::default().follow(&none, None, Duration::ZERO), 0);
    }
}
