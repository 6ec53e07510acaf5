//! The names of partitions that a handle has registered on the server recently, so that it does not have to
//! do so with every call.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many partitions are remembered. Beyond that, all are forgotten and registered again.
const REMEMBERED: usize = 10_000;
/// How long a name is remembered. The server may have lost it meanwhile, for instance by FLUSHALL or a
/// fail-over.
const FORGET_AFTER: Duration = Duration::from_mins(1);

/// Names, and when they were registered.
#[derive(Debug, Default)]
pub(crate) struct RecentNames {
    // A std mutex, because it is held for a few instructions and never across an await.
    names: Mutex<HashMap<String, Instant>>,
}

impl RecentNames {
    pub(crate) fn is_recent(&self, name: &str) -> bool {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(name).is_some_and(|at| at.elapsed() < FORGET_AFTER)
    }

    pub(crate) fn add(&self, name: &str) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= REMEMBERED {
            names.clear();
        }
        names.insert(name.to_owned(), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_told_again_when_time_has_passed() {
        let recent_names = RecentNames::default();
        assert!(!recent_names.is_recent("a"));
        recent_names.add("a");
        assert!(recent_names.is_recent("a") && !recent_names.is_recent("b"));
        let before = Instant::now().checked_sub(FORGET_AFTER).unwrap();
        recent_names.names.lock().unwrap().insert("a".to_owned(), before);
        assert!(!recent_names.is_recent("a"));
    }
}
