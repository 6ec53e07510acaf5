//! A call that was entered, and the changes that enter it.

use std::time::{Duration, SystemTime};

use anyqueue::Result;
use anyqueue::control::{Change, Expect, MAX_CONTROL_CHANGES, Version};

use super::call::Call;
use super::keys::{key_of, unreadable};
use super::record::Record;
use crate::entry::{encode, version_of};

/// The largest number of entries. Beyond it, the oldest are deleted.
pub const MAX_ENTRIES: u64 = 10_000;
/// How long an entry is kept.
pub const KEPT: Duration = Duration::from_hours(24 * 90);
/// How many further entries below the oldest are deleted along with new ones: entries that were left there
/// when a call of the store was interrupted.
const PURGED: u64 = 1;
/// The largest number of calls that are entered together: each writes one entry and deletes one, and one more
/// is deleted in total.
pub(super) const MAX_TOGETHER: usize = (MAX_CONTROL_CHANGES - 1) / 2;

/// A call that was entered, and is not yet known to have ended.
#[derive(Clone, Debug)]
#[must_use = "what came of it is to be entered too"]
pub struct Begun {
    pub(super) number: u64,
    pub(super) version: Version,
    pub(super) record: Record,
}

/// Makes the changes that enter calls under the numbers after the last one: first their entries, in order,
/// then the deletions that make room for them. At most [`MAX_TOGETHER`] calls.
pub(super) fn enter<'a>(
    calls: impl Iterator<Item = &'a Call>,
    last: u64,
    now: SystemTime,
) -> Result<(Vec<Begun>, Vec<Change>)> {
    let (mut begun, mut changes, mut number) = (Vec::new(), Vec::new(), last);
    for call in calls {
        number = number.checked_add(1).ok_or_else(|| unreadable(last))?;
        let record = Record::new(call, now);
        let put = Change::put(key_of(number)?, Expect::Absent, encode(&record)?).with_ttl(KEPT);
        begun.push(Begun { number, version: version_of(&put), record });
        changes.push(put);
    }
    // The entries that the new ones displace, and those left below them.
    let oldest = last.saturating_sub(MAX_ENTRIES.saturating_sub(1)).saturating_sub(PURGED).max(1);
    for old in oldest..=number.saturating_sub(MAX_ENTRIES) {
        changes.push(Change::delete(key_of(old)?, Expect::Any));
    }
    Ok((begun, changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_entered_together_fit_one_call_of_the_store() {
        let call = Call::new("POST", "/");
        for last in [0, 1, MAX_ENTRIES - 60, MAX_ENTRIES - 1, MAX_ENTRIES, 5 * MAX_ENTRIES] {
            let calls = std::iter::repeat_n(&call, MAX_TOGETHER);
            let (begun, changes) = enter(calls, last, SystemTime::UNIX_EPOCH).unwrap();
            let newest = begun.last().unwrap().number;
            assert_eq!((begun.len(), newest), (MAX_TOGETHER, last + MAX_TOGETHER as u64));
            assert!(changes.len() <= MAX_CONTROL_CHANGES);
            let deleted: Vec<_> =
                changes.iter().skip(MAX_TOGETHER).map(|change| change.key().clone()).collect();
            let lowest = (last + 1).saturating_sub(MAX_ENTRIES + PURGED).max(1);
            let expected = lowest..=newest.saturating_sub(MAX_ENTRIES);
            assert_eq!(deleted, expected.map(|old| key_of(old).unwrap()).collect::<Vec<_>>(), "after {last}");
        }
    }
}
