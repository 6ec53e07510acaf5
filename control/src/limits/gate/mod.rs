//! Limits that depend on the message: on its kind, or on the value of a header. They act after a pull, when
//! the message is at hand.
//!
//! Each value has an entry of its own, its *place*, which holds who has how many permits until when, and the
//! state of the rate. The entry expires when those do. A process remembers the places that it used last, and
//! which of them are closed, so that most messages of a full place cost no call.

mod admit;
mod place;
mod record;
mod rule;
mod rules;
mod tend;
mod turn;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::Notify;

use place::{Place, PlaceId};
pub(super) use record::PlaceRecord;
use rule::Rule;

/// How many places a process remembers at most, not counting those that its tasks are in.
const MAX_PLACES: usize = 10_000;

/// What a process knows about the limits that depend on the message.
#[derive(Debug, Default)]
pub(super) struct Gates {
    rules: RwLock<Arc<[Rule]>>,
    places: Mutex<HashMap<PlaceId, Arc<Place>>>,
    /// Counts the uses of places, to find the one used the longest ago.
    uses: AtomicU64,
    /// Signals that something can be released.
    given: Arc<Notify>,
}

impl Gates {
    /// Whether there are such limits.
    pub(super) fn are_there(&self) -> bool {
        !self.rules().is_empty()
    }

    fn rules(&self) -> Arc<[Rule]> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn places(&self) -> MutexGuard<'_, HashMap<PlaceId, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a value. If there are too many, the idle place that was used the longest ago is
    /// forgotten.
    fn place(&self, id: PlaceId, now: Instant) -> Arc<Place> {
        let uses = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut places = self.places();
        if let Some(place) = places.get(&id) {
            place.lock().used = uses;
            return place.clone();
        }
        if places.len() >= MAX_PLACES {
            let idle = places.iter().filter(|(_, place)| place.is_idle());
            let oldest = idle.min_by_key(|(_, place)| place.lock().used).map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                places.remove(&oldest);
            }
        }
        let place = Arc::new(Place::new(id.clone(), self.given.clone(), now));
        place.lock().used = uses;
        places.insert(id, place.clone());
        place
    }

    fn all_places(&self) -> Vec<Arc<Place>> {
        self.places().values().cloned().collect()
    }
}
