//! The parts of a control store's behaviour, each correct until a fault replaces it.

use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

use anyqueue::control::{Change, Entry, Expect, Key, Version};

use crate::quirk::Client;

/// An entry, the client that wrote it, and the versions that its key had before.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) entry: Entry,
    pub(super) by: usize,
    pub(super) is_deleted: bool,
    pub(super) former: Vec<Version>,
}

impl Row {
    pub(super) fn lives(&self, now: SystemTime) -> bool {
        !self.is_deleted && self.entry.expires_at.is_none_or(|end| end > now)
    }
}

/// How the changes of one call affect each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// Only in that a later change sees what an earlier one left.
    InOrder,
    AllOrNone,
    StopAtConflict,
    SeeStart,
    Reversed,
    EleventhLost,
}

/// Faults that no rule describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Odd {
    WritesConflicts,
    /// Other calls come between the check and the write.
    LooksFirst,
    /// A page that continues another leaves out its first entry.
    SkipsFirst,
    /// A page continues only after a key that exists.
    NeedsLast,
    AreCounted,
    ArePartition,
}

/// What was found under the keys of a call.
pub(super) type Found = Vec<Option<Entry>>;

/// A change, what is under its key, and the time.
pub(super) struct Met<'a> {
    pub(super) change: &'a Change,
    /// The row, even if it was deleted or has expired.
    pub(super) row: Option<&'a Row>,
    pub(super) now: SystemTime,
}

impl Met<'_> {
    /// Returns the entry that is there.
    pub(super) fn there(&self) -> Option<&Row> {
        self.row.filter(|row| row.lives(self.now))
    }

    /// Returns the entry that is there, or that has expired.
    pub(super) fn there_once(&self) -> Option<&Row> {
        self.row.filter(|row| !row.is_deleted)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The name of a key inside the store.
    pub(super) name: fn(&Key) -> String,
    /// A version as it is stored.
    pub(super) version: fn(u64) -> u64,
    /// The time by which entries expire.
    pub(super) now: fn(&Client) -> SystemTime,
    /// The time that is returned with a result.
    pub(super) stamp: fn(&Client) -> SystemTime,
    /// Whether a call sees this entry.
    pub(super) is_seen: fn(&Client, &Row) -> bool,
    /// Whether the entry is as the change expects.
    pub(super) expects: fn(&Met<'_>) -> bool,
    /// The entry that a change leaves; `None` if there is none.
    pub(super) stores: fn(&Met<'_>) -> Option<Entry>,
    /// What a conflict returns.
    pub(super) refuses: fn(&Met<'_>) -> Option<Entry>,
    pub(super) together: Together,
    /// Whether this row is found by its key at this time.
    pub(super) is_found: fn(&Row, SystemTime) -> bool,
    /// What a call returns, given what was found under these keys.
    pub(super) found: fn(&[Key], Found) -> Found,
    pub(super) has_prefix: fn(&str, &str) -> bool,
    pub(super) order: fn(&Entry, &Entry) -> Ordering,
    /// Whether an entry that compares like this to the last of the previous page is on this page.
    pub(super) is_later: fn(Ordering) -> bool,
    /// Cuts a page from the entries that come on it or later, expired ones included.
    pub(super) page: fn(Vec<Row>, limit: usize, SystemTime) -> Vec<Entry>,
    /// What a client does with the entries when it starts, when it closes, and when it purges a partition.
    pub(super) at_init: fn(&Client, &mut Vec<Row>),
    pub(super) at_close: fn(&Client, &mut Vec<Row>),
    pub(super) at_purge: fn(&mut Vec<Row>),
    pub(super) odd: Option<Odd>,
}

impl Rules {
    pub(super) fn is(&self, odd: Odd) -> bool {
        self.odd == Some(odd)
    }
}

pub(super) const RIGHT: Rules = Rules {
    name: |key| key.as_str().to_owned(),
    version: |version| version,
    now: |client| to_millis(client.server.wall()),
    stamp: |client| to_millis(client.server.wall()),
    is_seen: |_, _| true,
    expects,
    stores,
    refuses: |met| met.there().map(|row| row.entry.clone()),
    together: Together::InOrder,
    is_found: Row::lives,
    found: |_, found| found,
    has_prefix: |key, prefix| key.starts_with(prefix),
    order: |one, other| one.key.cmp(&other.key),
    is_later: Ordering::is_gt,
    page: |rows, limit, now| entries(living(rows, now), limit),
    at_init: |_, _| {},
    at_close: |_, _| {},
    at_purge: |_| {},
    odd: None,
};

pub(super) fn expects(met: &Met<'_>) -> bool {
    match met.change.expect() {
        Expect::Any => true,
        Expect::Absent => met.there().is_none(),
        Expect::Version(version) => met.there().is_some_and(|row| row.entry.version == version),
    }
}

pub(super) fn stores(met: &Met<'_>) -> Option<Entry> {
    match met.change {
        Change::Put { key, version, value, ttl, .. } => {
            let end = ttl.and_then(|ttl| met.now.checked_add(ttl));
            Some(Entry::new(key.clone(), *version, value.clone()).with_expires_at(end))
        }
        _ => None,
    }
}

pub(super) fn living(mut rows: Vec<Row>, now: SystemTime) -> Vec<Row> {
    rows.retain(|row| row.lives(now));
    rows
}

pub(super) fn entries(rows: Vec<Row>, limit: usize) -> Vec<Entry> {
    rows.into_iter().take(limit).map(|row| row.entry).collect()
}

/// Truncates to the millisecond.
pub(super) fn to_millis(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    time - Duration::from_nanos(u64::from(since.subsec_nanos() % 1_000_000))
}
