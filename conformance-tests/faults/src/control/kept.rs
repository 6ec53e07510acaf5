//! Entries that come back in another form than they were written in, or that only one client sees.

use anyqueue::control::{Change, Entry, Key, Version};
use anyqueue_conformance::Fault;

use super::BREAKS;
use super::model::{but, shared};
use super::rules::{Found, Met, Odd, Together, entries, living, stores};
use crate::quirk::{Entry as Listed, plain, subtle};

pub(crate) const FAULTS: &[Listed] = &[
    plain(Fault::EntryValueCut, BREAKS, || {
        but(|rules| rules.stores = |met| changed(met, |entry| entry.value.truncate(64 << 10)))
    }),
    plain(Fault::EntryValueAsText, BREAKS, || {
        but(|rules| {
            rules.stores = |met| {
                changed(met, |entry| entry.value = String::from_utf8_lossy(&entry.value).into_owned().into())
            };
        })
    }),
    plain(Fault::EntryEmptyAbsent, BREAKS, || {
        but(|rules| rules.is_found = |row, now| row.lives(now) && !row.entry.value.is_empty())
    }),
    plain(Fault::EntryVersionIn32Bits, BREAKS, || {
        but(|rules| rules.version = |version| version & 0xFFFF_FFFF)
    }),
    subtle(Fault::EntryVersionAsDouble, BREAKS, || but(|rules| rules.version = as_double)),
    subtle(Fault::EntryVersionSigned, BREAKS, || {
        but(|rules| rules.version = |version| version.min(u64::MAX >> 1))
    }),
    plain(Fault::EntryVersionOfServer, BREAKS, || {
        but(|rules| rules.stores = |met| changed(met, |entry| entry.version = Version::random()))
    }),
    plain(Fault::EntryKeepsVersion, BREAKS, || {
        but(|rules| {
            rules.stores = |met| {
                let former = met.there().map(|row| row.entry.version);
                changed(met, |entry| entry.version = former.unwrap_or(entry.version))
            };
        })
    }),
    plain(Fault::EntryKeysCaseless, BREAKS, || but(|rules| rules.name = |key| key.as_str().to_lowercase())),
    plain(Fault::EntryKeysTrimmed, BREAKS, || {
        but(|rules| rules.name = |key| key.as_str().trim_end().to_owned())
    }),
    plain(Fault::EntryKeysCut, BREAKS, || but(|rules| rules.name = cut)),
    plain(Fault::EntryDeleteForgotten, BREAKS, || {
        but(|rules| {
            rules.stores = |met| match met.change {
                Change::Delete { .. } => met.there().map(|row| row.entry.clone()),
                _ => stores(met),
            };
        })
    }),
    plain(Fault::EntryEleventhLost, BREAKS, || but(|rules| rules.together = Together::EleventhLost)),
    plain(Fault::EntriesFoundSorted, BREAKS, || but(|rules| rules.found = in_order)),
    plain(Fault::EntriesFoundOnly, BREAKS, || {
        but(|rules| rules.found = |_, found| found.into_iter().flatten().map(Some).collect())
    }),
    plain(Fault::EntriesFoundOnce, BREAKS, || but(|rules| rules.found = once)),
    plain(Fault::EntriesOfOneClient, BREAKS, || {
        but(|rules| rules.is_seen = |client, row| row.by == client.number)
    }),
    plain(Fault::EntriesDieWithClient, BREAKS, || {
        but(|rules| rules.at_close = |client, rows| rows.retain(|row| row.by != client.number))
    }),
    plain(Fault::InitForgetsEntries, BREAKS, || but(|rules| rules.at_init = |_, rows| rows.clear())),
    plain(Fault::EntriesShareNamespaces, BREAKS, shared),
    plain(Fault::EntriesPurged, BREAKS, || but(|rules| rules.at_purge = Vec::clear)),
    plain(Fault::EntriesCounted, BREAKS, || but(|rules| rules.odd = Some(Odd::AreCounted))),
    plain(Fault::EntriesArePartitions, BREAKS, || but(|rules| rules.odd = Some(Odd::ArePartition))),
    plain(Fault::EntriesListedEmpty, BREAKS, || {
        but(|rules| {
            rules.page = |rows, limit, now| {
                let mut page = entries(living(rows, now), limit);
                for entry in &mut page {
                    entry.value.clear();
                }
                page
            };
        })
    }),
];

/// Returns what the change would leave, with a further change.
pub(super) fn changed(met: &Met<'_>, change: impl FnOnce(&mut Entry)) -> Option<Entry> {
    let mut entry = stores(met)?;
    change(&mut entry);
    Some(entry)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "this loss is the fault"
)]
fn as_double(version: u64) -> u64 {
    version as f64 as u64
}

fn cut(key: &Key) -> String {
    let bytes = key.as_str().as_bytes();
    String::from_utf8_lossy(bytes.get(..255).unwrap_or(bytes)).into_owned()
}

fn in_order(keys: &[Key], found: Found) -> Found {
    let mut pairs: Vec<_> = keys.iter().zip(found).collect();
    pairs.sort_by_key(|(key, _)| *key);
    pairs.into_iter().map(|(_, found)| found).collect()
}

fn once(keys: &[Key], found: Found) -> Found {
    let is_first = |(number, key): (usize, &Key)| keys.iter().take(number).all(|former| former != key);
    let first: Vec<_> = keys.iter().enumerate().map(is_first).collect();
    found.into_iter().zip(first).map(|(found, is_first)| found.filter(|_| is_first)).collect()
}
