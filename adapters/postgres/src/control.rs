//! The calls for control entries.

use std::collections::HashMap;
use std::time::SystemTime;

use anyqueue::adapter::{ControlStorage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Expect, Key, Stamped, Version};
use anyqueue::{Bytes, Error, ErrorKind, Operation, Page, Result};
use sqlx::postgres::PgRow;

use crate::PostgresQueue;
use crate::ends::moment;
use crate::error::{ERRORS, NAME};
use crate::sql::{get, int, millis};

/// A time to live of this length or more never ends.
const FOREVER_MS: i64 = i64::MAX / 2;

#[async_trait]
impl ControlStorage for PostgresQueue {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        let mut wanted: Vec<_> = keys.iter().map(Key::as_str).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let query = self.inner.statements.control_get.query().bind(wanted);
        let rows = self.fetch(query, Operation::Control).await.map_err(Error::repeatable)?;
        let found = read_all(&rows).map_err(stamp)?;
        let by_key: HashMap<_, _> = found.value.iter().map(|entry| (&entry.key, entry)).collect();
        let entries = keys.iter().map(|key| by_key.get(key).map(|entry| (*entry).clone()));
        Ok(Stamped::new(found.now, entries.collect()))
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        let (from, before) = range(prefix, page.after.as_ref());
        // No key has a control character, and the server accepts no text with a zero.
        let limit = if prefix.chars().any(char::is_control) { 0 } else { page.limit };
        let (from, before) = if limit == 0 { (String::new(), None) } else { (from, before) };
        let query = self.inner.statements.control_list.query().bind(from).bind(before).bind(int(limit));
        let rows = self.fetch(query, Operation::Control).await.map_err(Error::repeatable)?;
        read_all(&rows).map_err(stamp)
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        let columns = Columns::of(changes);
        let query = self.inner.statements.control_apply.query_of(columns.bytes);
        let query = query.bind(columns.keys).bind(columns.expects).bind(columns.expected);
        let query = query.bind(columns.versions).bind(columns.ttls_ms).bind(columns.values);
        let rows = self.fetch(query, Operation::Control).await?;
        read_applied(changes, &rows).map_err(stamp)
    }
}

/// Changes, as columns.
#[derive(Default)]
struct Columns<'c> {
    keys: Vec<&'c str>,
    expects: Vec<i16>,
    expected: Vec<Option<i64>>,
    /// The versions that are written. Deletions have none.
    versions: Vec<Option<i64>>,
    ttls_ms: Vec<Option<i64>>,
    values: Vec<Option<&'c [u8]>>,
    /// The approximate wire size.
    bytes: usize,
}

impl<'c> Columns<'c> {
    fn of(changes: &'c [Change]) -> Self {
        const PLAIN_BYTES: usize = 64;
        let mut columns = Self::default();
        for change in changes {
            let (expect, expected) = match change.expect() {
                Expect::Any => (0, None),
                Expect::Absent => (1, None),
                Expect::Version(version) => (2, Some(version.get().cast_signed())),
            };
            let (ttl, value) = match change {
                Change::Put { ttl, value, .. } => (*ttl, Some(&value[..])),
                _ => (None, None),
            };
            columns.keys.push(change.key().as_str());
            columns.expects.push(expect);
            columns.expected.push(expected);
            columns.versions.push(change.version().map(|version| version.get().cast_signed()));
            columns.ttls_ms.push(ttl.map(millis).filter(|ttl_ms| *ttl_ms < FOREVER_MS));
            columns.values.push(value);
            columns.bytes += change.key().as_str().len() + value.map_or(0, <[u8]>::len) + PLAIN_BYTES;
        }
        columns
    }
}

/// Returns a range of keys: those with this prefix that come after the given key. The end is `None` if there
/// is no upper bound.
fn range(prefix: &str, after: Option<&Key>) -> (String, Option<String>) {
    let least = ' '; // no key has a lesser character
    let from = after.map(|after| format!("{after}{least}")).unwrap_or_default();
    (from.max(prefix.to_owned()), end_of(prefix))
}

/// The first text after all those that begin with this one. In UTF-8, bytes are ordered like characters.
fn end_of(prefix: &str) -> Option<String> {
    let mut kept = prefix.to_owned();
    while let Some(last) = kept.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            kept.push(next);
            return Some(kept);
        }
    }
    None
}

/// Reads the time, which is in a row of its own, and the entries.
fn read_all(rows: &[PgRow]) -> Result<Stamped<Vec<Entry>>> {
    let (first, others) = rows.split_first().ok_or_else(unexpected)?;
    let entry = |row| {
        let key = Key::new(get::<&str>(row, 1)?).map_err(corrupt)?;
        read_entry(key, row, 2)?.ok_or_else(unexpected)
    };
    Ok(Stamped::new(now(first)?, others.iter().map(entry).collect::<Result<_>>()?))
}

fn read_applied(changes: &[Change], rows: &[PgRow]) -> Result<Stamped<Vec<Applied>>> {
    let first = rows.first().ok_or_else(unexpected)?;
    let applied = |(change, row): (&Change, &PgRow)| {
        if get(row, 1)? {
            return Ok(Applied::Done);
        }
        read_entry(change.key().clone(), row, 2).map(Applied::Conflict)
    };
    Ok(Stamped::new(now(first)?, changes.iter().zip(rows).map(applied).collect::<Result<_>>()?))
}

/// Reads version, expiry and value, starting at this column; `None` if there is no version.
fn read_entry(key: Key, row: &PgRow, column: usize) -> Result<Option<Entry>> {
    let Some(version) = get::<Option<i64>>(row, column)? else { return Ok(None) };
    let version = Version::from_u64(version.cast_unsigned());
    let expires_at = get::<Option<i64>>(row, column + 1)?.map(moment);
    let value = Bytes::copy_from_slice(get(row, column + 2)?);
    Ok(Some(Entry::new(key, version, value).with_expires_at(expires_at)))
}

fn now(row: &PgRow) -> Result<SystemTime> {
    get(row, 0).map(moment)
}

fn unexpected() -> Error {
    ERRORS.error(ErrorKind::Internal, "the server returned fewer rows than it was asked for")
}

fn corrupt(error: Error) -> Error {
    let text = "the key of a control entry cannot be read: delete its row from the table control_entry";
    ERRORS.error(ErrorKind::Corrupt, text).with_source(error)
}

fn stamp(error: Error) -> Error {
    error.with_backend(NAME).with_operation(Operation::Control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_first_text_that_does_not_begin_with_it() {
        for (prefix, end) in [
            ("worker/", Some("worker0")),
            ("a", Some("b")),
            ("%_", Some("%`")),
            ("a\u{10FFFF}\u{10FFFF}", Some("b")),
            ("\u{D7FF}", Some("\u{E000}")),
            ("\u{10FFFF}", None),
            ("", None),
        ] {
            assert_eq!(end_of(prefix).as_deref(), end, "{prefix:?}");
        }
    }

    #[test]
    fn a_range_has_the_keys_of_its_prefix_after_a_key_and_no_others() {
        let keys = ["a", "a ", "a%", "a/", "a/b", "a0", "b", "a\u{10FFFF}", "ä", "\u{10FFFF}\u{10FFFF}"];
        for (prefix, after) in
            keys.into_iter().chain([""]).flat_map(|prefix| keys.map(|after| (prefix, after)))
        {
            for after in [None, Some(after)] {
                let (from, before) = range(prefix, after.map(|after| Key::new(after).unwrap()).as_ref());
                for key in keys {
                    let is_in = key >= from.as_str() && before.as_deref().is_none_or(|before| key < before);
                    let expected = key.starts_with(prefix) && after.is_none_or(|after| key > after);
                    assert_eq!(is_in, expected, "{key:?} with {prefix:?} after {after:?}");
                }
            }
        }
    }
}
