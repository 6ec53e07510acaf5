//! What a process has of one value of a limit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::control::Key;
use anyqueue::{CancellationToken, Result};
use anyqueue_worker::Ticket;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use crate::limits::keys::PLACES;

/// How many bytes of the hash of a value the key of its entry has.
const HASH_BYTES: usize = 16;
/// The longest part of a value that is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 200;

/// A value of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::limits) struct PlaceId {
    pub(super) limit: Arc<str>,
    /// A value may be long, so its hash stands for it.
    hash: [u8; HASH_BYTES],
    /// The part of the value that is shown.
    pub(super) shown: Arc<str>,
}

impl PlaceId {
    pub(super) fn new(limit: &Arc<str>, value: &str) -> Self {
        let digest = Sha256::digest(value.as_bytes());
        let mut hash = [0; HASH_BYTES];
        hash.iter_mut().zip(digest).for_each(|(byte, hashed)| *byte = hashed);
        let shown = value.get(..value.floor_char_boundary(MAX_SHOWN_BYTES)).unwrap_or(value);
        Self { limit: limit.clone(), hash, shown: shown.into() }
    }

    pub(super) fn key(&self) -> Result<Key> {
        use std::fmt::Write as _;
        let mut key = format!("{PLACES}{}/", self.limit);
        for byte in self.hash {
            let _ = write!(key, "{byte:02x}");
        }
        Key::new(key)
    }
}

/// What a process has of one value.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: PlaceId,
    state: Mutex<State>,
    /// Only one caller changes the entry at a time: whoever wrote it last knows what it says about this
    /// process.
    pub(super) turn: tokio::sync::Mutex<()>,
    given: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct State {
    /// How many tasks are running.
    pub(super) in_use: usize,
    /// How many permits this process has by the entry, and how many of them it may use while others want
    /// some.
    pub(super) size: usize,
    pub(super) most: usize,
    /// How many tasks are asking the store for a permit.
    pub(super) asking: usize,
    /// Until when tasks may start, and when running tasks have to stop.
    pub(super) starts_until: Instant,
    pub(super) revoke_at: Option<Instant>,
    /// When the entry has to be renewed.
    pub(super) renew_at: Option<Instant>,
    /// Whether the entry says that this process waits for permits.
    pub(super) is_waiting: bool,
    /// The time before which the store is not asked again, and the length of the last pause.
    pub(super) closed_until: Option<Instant>,
    pub(super) pause: Duration,
    pub(super) revoked: CancellationToken,
    pub(super) used: u64,
}

impl Place {
    pub(super) fn new(id: PlaceId, given: Arc<Notify>, now: Instant) -> Self {
        let state = State {
            in_use: 0,
            size: 0,
            most: usize::MAX,
            asking: 0,
            starts_until: now,
            revoke_at: None,
            renew_at: None,
            is_waiting: false,
            closed_until: None,
            pause: Duration::ZERO,
            revoked: CancellationToken::new(),
            used: 0,
        };
        Self { id, state: Mutex::new(state), turn: tokio::sync::Mutex::default(), given }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is known about the place that must not be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.in_use == 0 && state.size == 0 && state.asking == 0 && self.turn.try_lock().is_ok()
    }

    /// Takes a permit, if there is one.
    pub(super) fn take(self: &Arc<Self>, now: Instant) -> Option<Ticket> {
        let mut state = self.lock();
        let is_free = state.in_use < state.size.min(state.most) && now < state.starts_until;
        is_free.then(|| self.ticket(&mut state))
    }

    /// Makes a ticket, whether there is a permit or not.
    pub(super) fn ticket(self: &Arc<Self>, state: &mut State) -> Ticket {
        state.in_use += 1;
        (state.closed_until, state.pause) = (None, Duration::ZERO);
        let place = self.clone();
        Ticket::new(state.revoked.clone(), move || place.release())
    }

    fn release(&self) {
        let mut state = self.lock();
        state.in_use = state.in_use.saturating_sub(1);
        // The next task need not wait for what others know about the place.
        (state.closed_until, state.pause) = (None, Duration::ZERO);
        drop(state);
        self.given.notify_one();
    }
}

impl State {
    /// Stops running tasks.
    pub(super) fn revoke(&mut self) {
        std::mem::take(&mut self.revoked).cancel();
        (self.revoke_at, self.size) = (None, 0);
    }
}
