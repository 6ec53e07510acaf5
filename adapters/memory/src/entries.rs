//! The entries of the control store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::SystemTime;

use anyqueue::control::{Applied, Change, Entry, Expect, Key, MAX_CONTROL_CALL_BYTES};
use anyqueue::{ErrorKind, Operation, Page, Result};

use crate::error::error;

/// The limit for the bytes of all keys and values.
const MAX_BYTES: usize = 64 * MAX_CONTROL_CALL_BYTES;
/// The most expired entries that one call frees: more than the changes in a call, so that expired ones do not
/// pile up.
const FREED_AT_ONCE: usize = 1000;

/// The entries of a store.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    by_key: BTreeMap<Key, Entry>,
    by_end: BTreeSet<(SystemTime, Key)>,
    bytes: usize,
}

impl Entries {
    pub(crate) fn get(&self, key: &Key, now: SystemTime) -> Option<&Entry> {
        self.by_key.get(key).filter(|entry| lives(entry, now))
    }

    pub(crate) fn list(&self, prefix: &str, page: &Page<Key>, now: SystemTime) -> Vec<Entry> {
        let from = match &page.after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.clone()),
            _ => Key::new(prefix).map_or(Bound::Unbounded, Bound::Included),
        };
        let from_there = self.by_key.range((from, Bound::Unbounded)).map(|(_, entry)| entry);
        let with_prefix = from_there.take_while(|entry| entry.key.as_str().starts_with(prefix));
        with_prefix.filter(|entry| lives(entry, now)).take(page.limit).cloned().collect()
    }

    pub(crate) fn apply(&mut self, change: &Change, now: SystemTime) -> Result<Applied> {
        let there = self.get(change.key(), now);
        let as_expected = match change.expect() {
            Expect::Any => true,
            Expect::Absent => there.is_none(),
            Expect::Version(version) => there.is_some_and(|entry| entry.version == version),
        };
        if !as_expected {
            return Ok(Applied::Conflict(there.cloned()));
        }
        match change {
            Change::Put { key, version, value, ttl, .. } => {
                let expires_at = ttl.and_then(|ttl| now.checked_add(ttl));
                let entry = Entry::new(key.clone(), *version, value.clone()).with_expires_at(expires_at);
                let bytes = self.bytes + size(&entry) - self.by_key.get(key).map_or(0, size);
                if bytes > MAX_BYTES {
                    let text = format!("the control entries have {} of {MAX_BYTES} bytes", self.bytes);
                    return Err(error(Operation::Control, ErrorKind::Full, text));
                }
                self.remove(key);
                if let Some(end) = expires_at {
                    self.by_end.insert((end, key.clone()));
                }
                self.bytes = bytes;
                self.by_key.insert(key.clone(), entry);
            }
            _ => self.remove(change.key()),
        }
        Ok(Applied::Done)
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.by_key.remove(key) else { return };
        self.bytes -= size(&entry);
        if let Some(end) = entry.expires_at {
            self.by_end.remove(&(end, entry.key));
        }
    }

    pub(crate) fn free_expired(&mut self, now: SystemTime) {
        for _ in 0..FREED_AT_ONCE {
            let first = self.by_end.first().filter(|(end, _)| *end <= now);
            let Some((_, key)) = first else { return };
            let key = key.clone();
            self.remove(&key);
        }
    }
}

fn lives(entry: &Entry, now: SystemTime) -> bool {
    entry.expires_at.is_none_or(|end| end > now)
}

fn size(entry: &Entry) -> usize {
    entry.key.as_str().len() + entry.value.len()
}
