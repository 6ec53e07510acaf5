//! The deliveries that were handed out to each worker last, until the worker confirms that it got them.
//!
//! A response can be lost on its way: its messages would then be leased to nobody. A worker that names itself
//! says with its next pull which response it received last; what was handed out since then and not received
//! goes back at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::access;
use crate::held::Held;

/// The most workers whose last pull is remembered. If a further worker does not receive a message, it is
/// delivered again when its lease ends.
const MAX_WORKERS: usize = 10_000;

/// The key of a worker: workers with different tokens are different, even with the same name.
pub(crate) fn puller(worker: &str) -> String {
    let who = access::caller().map(|access| access.name().to_owned()).unwrap_or_default();
    format!("{who}\n{worker}")
}

/// The last pull of each worker.
#[derive(Default)]
pub(crate) struct Handed(Mutex<HashMap<String, Last>>);

struct Last {
    pull: String,
    held: Vec<Held>,
    ends_at: Instant,
}

impl Handed {
    /// A worker pulls again, and has received this: returns what it has not received.
    pub(crate) fn unreceived(&self, worker: &str, received: Option<&str>) -> Vec<Held> {
        let last = self.lock().remove(worker);
        last.filter(|last| received != Some(last.pull.as_str()) && Instant::now() < last.ends_at)
            .map(|last| last.held)
            .unwrap_or_default()
    }

    /// Remembers what was sent to a worker.
    pub(crate) fn sent(&self, worker: &str, pull: &str, held: Vec<Held>, lease: Duration) {
        let mut all = self.lock();
        if all.len() >= MAX_WORKERS && !all.contains_key(worker) {
            return;
        }
        let now = Instant::now();
        let ends_at = now.checked_add(lease).unwrap_or(now);
        all.insert(worker.to_owned(), Last { pull: pull.to_owned(), held, ends_at });
    }

    /// Forgets deliveries whose leases have ended.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain(|_, last| now < last.ends_at);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn what_was_not_received_is_released_once_and_what_was_is_not() {
        let handed = Handed::default();
        handed.sent("a", "1", vec![Held::Pinned(1)], LEASE);
        assert_eq!(handed.unreceived("b", None).len(), 0, "another worker");
        assert_eq!(handed.unreceived("a", Some("0")).len(), 1);
        assert_eq!(handed.unreceived("a", Some("0")).len(), 0, "once");
        handed.sent("a", "2", vec![Held::Pinned(1)], LEASE);
        assert_eq!(handed.unreceived("a", Some("2")).len(), 0, "it has them");
        handed.sent("a", "3", vec![Held::Pinned(1)], Duration::ZERO);
        assert_eq!(handed.unreceived("a", None).len(), 0, "their lease has ended");
    }

    #[test]
    fn no_more_workers_are_remembered_than_there_is_room_for() {
        let handed = Handed::default();
        for number in 0..MAX_WORKERS + 10 {
            handed.sent(&number.to_string(), "1", Vec::new(), LEASE);
        }
        assert_eq!(handed.lock().len(), MAX_WORKERS);
        handed.sent("7", "2", vec![Held::Pinned(1)], LEASE);
        assert_eq!(handed.unreceived("7", Some("1")).len(), 1, "one that is known is remembered anew");
    }
}
