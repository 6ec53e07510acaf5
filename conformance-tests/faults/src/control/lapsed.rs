//! Entries that live for another time than they were given, and expired ones that are still returned.

use std::time::{Duration, SystemTime};

use anyqueue::control::{Change, Expect};
use anyqueue_conformance::Fault;

use super::BREAKS;
use super::kept::changed;
use super::model::but;
use super::rules::{Met, entries, expects, living, to_millis};
use crate::quirk::{Client, Entry, plain, subtle};

/// How late an entry expires under the fault of late expiry.
const LATE: Duration = Duration::from_millis(700);

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::EntryNeverLapses, BREAKS, || {
        but(|rules| rules.stores = |met| changed(met, |entry| entry.expires_at = None))
    }),
    plain(Fault::EntryLapsesEarly, BREAKS, || {
        but(|rules| {
            rules.stores =
                |met| changed(met, |entry| entry.expires_at = ttl(met).map(|ttl| met.now + ttl / 2));
        })
    }),
    plain(Fault::EntryLapsesLate, BREAKS, || {
        but(|rules| {
            rules.is_found = |row, now| row.lives(now - LATE);
            rules.page = |rows, limit, now| entries(living(rows, now - LATE), limit);
        })
    }),
    plain(Fault::EntryLapsesInSeconds, BREAKS, || {
        but(|rules| {
            rules.stores = |met| {
                let end = ttl(met).and_then(|ttl| {
                    met.now.checked_add(Duration::from_secs(ttl.as_millis().div_ceil(1000).try_into().ok()?))
                });
                changed(met, |entry| entry.expires_at = end)
            };
        })
    }),
    plain(Fault::EntryLapsesByClientClock, BREAKS, || {
        but(|rules| rules.now = |client| to_millis(client.clock.wall()))
    }),
    plain(Fault::EntryEndUntold, BREAKS, || {
        but(|rules| {
            rules.found = |_, mut found| {
                found.iter_mut().flatten().for_each(|entry| entry.expires_at = None);
                found
            };
        })
    }),
    plain(Fault::EntryEndKept, BREAKS, || {
        but(|rules| {
            rules.stores = |met| {
                let former = met.there().map(|row| row.entry.expires_at);
                changed(met, |entry| entry.expires_at = former.unwrap_or(entry.expires_at))
            };
        })
    }),
    plain(Fault::EntryEndDropped, BREAKS, || {
        but(|rules| {
            rules.stores = |met| {
                let is_new = met.there().is_none();
                changed(met, |entry| entry.expires_at = entry.expires_at.filter(|_| is_new))
            };
        })
    }),
    plain(Fault::LapsedEntryFound, BREAKS, || but(|rules| rules.is_found = |row, _| !row.is_deleted)),
    plain(Fault::LapsedEntryListed, BREAKS, || {
        but(|rules| rules.page = |rows, limit, _| entries(rows, limit))
    }),
    plain(Fault::LapsedEntryBlocks, BREAKS, || {
        but(|rules| {
            rules.expects = |met| match met.change.expect() {
                Expect::Absent => met.there_once().is_none(),
                _ => expects(met),
            };
        })
    }),
    plain(Fault::LapsedEntryMatches, BREAKS, || {
        but(|rules| {
            rules.expects = |met| match met.change.expect() {
                Expect::Version(version) => met.there_once().is_some_and(|row| row.entry.version == version),
                _ => expects(met),
            };
        })
    }),
    plain(Fault::LapsedEntryTold, BREAKS, || {
        but(|rules| rules.refuses = |met| met.there_once().map(|row| row.entry.clone()))
    }),
    subtle(Fault::LapsedEntriesFillPages, BREAKS, || {
        but(|rules| {
            rules.page = |mut rows, limit, now| {
                rows.truncate(limit);
                entries(living(rows, now), limit)
            };
        })
    }),
    plain(Fault::EntryClockStands, BREAKS, || {
        but(|rules| rules.stamp = |_| SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365 * 50))
    }),
    plain(Fault::EntryClockInSeconds, BREAKS, || but(|rules| rules.stamp = in_seconds)),
    plain(Fault::EntryClockOfClient, BREAKS, || {
        but(|rules| rules.stamp = |client| to_millis(client.clock.wall()))
    }),
];

fn ttl(met: &Met<'_>) -> Option<Duration> {
    if let Change::Put { ttl, .. } = met.change { *ttl } else { None }
}

fn in_seconds(client: &Client) -> SystemTime {
    let since = client.server.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}
