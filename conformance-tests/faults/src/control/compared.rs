//! Changes that are made though the entry is not as expected, are not made though it is, or return something
//! wrong.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::Result;
use anyqueue::adapter::{ControlStorage as _, async_trait};
use anyqueue::control::{Applied, Change, Expect, Key, Stamped};
use anyqueue_conformance::Fault;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::BREAKS;
use super::model::but;
use super::rules::{Met, Odd, Together, expects, stores};
use crate::quirk::{Client, Entry, Kept, Quirk, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::EntryVersionIgnored, BREAKS, || {
        but(|rules| rules.expects = |met| is_version(met) || expects(met))
    }),
    plain(Fault::EntryVersionForPresence, BREAKS, || {
        but(|rules| rules.expects = |met| (is_version(met) && met.there().is_some()) || expects(met))
    }),
    plain(Fault::EntryAbsentIgnored, BREAKS, || {
        but(|rules| rules.expects = |met| met.change.expect() == Expect::Absent || expects(met))
    }),
    subtle(Fault::EntryFormerVersion, BREAKS, || {
        but(|rules| rules.expects = |met| is_former(met) || expects(met))
    }),
    plain(Fault::EntryDeleteUnasked, BREAKS, || {
        but(|rules| rules.expects = |met| is_delete(met) || expects(met))
    }),
    plain(Fault::EntryDeleteOfNothing, BREAKS, || {
        but(|rules| rules.expects = |met| expects(met) && !(is_delete(met) && met.there().is_none()))
    }),
    plain(Fault::EntryAnyKeeps, BREAKS, || {
        but(|rules| {
            rules.stores = |met| {
                let there = met.there().filter(|_| met.change.expect() == Expect::Any && !is_delete(met));
                there.map(|row| row.entry.clone()).or_else(|| stores(met))
            };
        })
    }),
    plain(Fault::EntryConflictWrites, BREAKS, || but(|rules| rules.odd = Some(Odd::WritesConflicts))),
    plain(Fault::EntryConflictSilent, BREAKS, || but(|rules| rules.refuses = |_| None)),
    plain(Fault::EntryConflictTellsNew, BREAKS, || {
        but(|rules| rules.refuses = |met| met.there().and_then(|_| stores(met)))
    }),
    plain(Fault::EntryRace, BREAKS, || but(|rules| rules.odd = Some(Odd::LooksFirst))),
    plain(Fault::EntriesDeadlock, BREAKS, || Arc::new(Deadlock::default())),
    plain(Fault::EntriesAllOrNone, BREAKS, || but(|rules| rules.together = Together::AllOrNone)),
    plain(Fault::EntriesStopAtConflict, BREAKS, || but(|rules| rules.together = Together::StopAtConflict)),
    plain(Fault::EntriesSeeStart, BREAKS, || but(|rules| rules.together = Together::SeeStart)),
    plain(Fault::EntryResultsReversed, BREAKS, || but(|rules| rules.together = Together::Reversed)),
];

fn is_version(met: &Met<'_>) -> bool {
    matches!(met.change.expect(), Expect::Version(_))
}

fn is_delete(met: &Met<'_>) -> bool {
    matches!(met.change, Change::Delete { .. })
}

fn is_former(met: &Met<'_>) -> bool {
    let Expect::Version(version) = met.change.expect() else { return false };
    met.there().is_some_and(|row| row.former.contains(&version))
}

/// A call locks its keys one by one, in the order in which they were given.
#[derive(Debug, Default)]
struct Deadlock(Kept<HashMap<Key, Arc<Mutex<()>>>>);

impl Deadlock {
    async fn lock(&self, key: &Key) -> OwnedMutexGuard<()> {
        let lock = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        lock.lock_owned().await
    }
}

#[async_trait]
impl Quirk for Deadlock {
    async fn change_entries(&self, client: &Client, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        let mut locks: HashMap<&Key, OwnedMutexGuard<()>> = HashMap::new();
        for change in changes {
            if !locks.contains_key(change.key()) {
                locks.insert(change.key(), self.lock(change.key()).await);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        client.right.apply(changes).await
    }
}
