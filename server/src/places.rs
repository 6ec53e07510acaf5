//! How many workers that this instance has registered may still be there.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::problem::{Answer, Problem};

/// The most registered workers of one instance. All instances together should have no more than a registry lists.
pub(crate) const MAX_REGISTERED: usize = 5_000;

/// A place for each worker that was registered here, by its name, so that a worker that comes back needs no
/// second one.
#[derive(Default)]
pub(crate) struct Places(Mutex<HashMap<String, Place>>);

struct Place {
    /// How long the worker's entry stays if it is not heard from, and until when that is.
    stays_for: Duration,
    until: Instant,
    /// Whether the worker is registered already, or only about to be.
    is_registered: bool,
}

impl Place {
    fn new(stays_for: Duration, is_registered: bool) -> Self {
        let now = Instant::now();
        Self { stays_for, until: now.checked_add(stays_for).unwrap_or(now), is_registered }
    }
}

impl Places {
    /// Takes a place for a worker that is about to be registered, unless it has one.
    pub(crate) fn take(&self, name: &str, stays_for: Duration) -> Answer<()> {
        let mut places = self.lock();
        if places.contains_key(name) {
            return Ok(());
        }
        if places.len() >= MAX_REGISTERED {
            let now = Instant::now();
            places.retain(|_, place| now < place.until);
        }
        if places.len() >= MAX_REGISTERED {
            return Err(full());
        }
        places.insert(name.to_owned(), Place::new(stays_for, false));
        Ok(())
    }

    /// The worker is registered.
    pub(crate) fn keep(&self, name: &str, stays_for: Duration) {
        self.lock().insert(name.to_owned(), Place::new(stays_for, true));
    }

    /// The worker was not registered. One that was registered before keeps its place.
    pub(crate) fn give_up(&self, name: &str) {
        let mut places = self.lock();
        if places.get(name).is_some_and(|place| !place.is_registered) {
            places.remove(name);
        }
    }

    /// The worker lives. Heartbeats of workers that were registered elsewhere take no place here.
    pub(crate) fn heard(&self, name: &str) {
        if let Some(place) = self.lock().get_mut(name) {
            *place = Place::new(place.stays_for, true);
        }
    }

    /// The worker has left, or was forgotten.
    pub(crate) fn leave(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn full() -> Problem {
    Problem::busy(format!(
        "{MAX_REGISTERED} workers are registered with this instance, and no more can be: register with another one, or work without, which needs only a name in pulls; a \
         worker that leaves (DELETE /v1/workers/{{worker}} with its session) makes room at once, one that dies some minutes later"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LONG: Duration = Duration::from_mins(6);

    #[test]
    fn no_more_are_registered_than_there_is_room_for_and_who_comes_back_has_room() {
        let places = Places::default();
        for number in 0..MAX_REGISTERED {
            places.take(&number.to_string(), LONG).unwrap();
            places.keep(&number.to_string(), LONG);
        }
        let refused = places.take("more", LONG).unwrap_err();
        assert_eq!((refused.status, refused.retry), (503, "safe"));
        assert!(places.take("7", LONG).is_ok(), "it has a place");
        places.give_up("7");
        assert!(places.take("more", LONG).is_err(), "and keeps it if it was too early");
        places.leave("7");
        assert!(places.take("more", LONG).is_ok());
        places.give_up("more");
        assert!(places.take("another", LONG).is_ok(), "it was not registered");
    }

    #[test]
    fn a_place_is_free_once_its_worker_was_not_heard_of_for_as_long_as_its_entry_stays() {
        let places = Places::default();
        for number in 0..MAX_REGISTERED {
            places.keep(&number.to_string(), if number < 2 { Duration::ZERO } else { LONG });
        }
        places.heard("elsewhere");
        for name in ["one", "two"] {
            places.take(name, LONG).unwrap();
            places.keep(name, LONG);
        }
        assert!(places.take("three", LONG).is_err(), "the others live");
    }
}
