//! Entries that are listed in the wrong order, for the wrong prefix, or on the wrong pages.

use std::cmp::Ordering;

use anyqueue_conformance::Fault;

use super::BREAKS;
use super::model::but;
use super::rules::{Odd, entries, living};
use crate::quirk::{Entry, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    // The rows are in the order in which they were written.
    plain(Fault::EntriesUnsorted, BREAKS, || but(|rules| rules.order = |_, _| Ordering::Equal)),
    plain(Fault::EntriesOrderedCaseless, BREAKS, || {
        but(|rules| {
            rules.order = |one, other| {
                let [folded, other_folded] = [one, other].map(|entry| entry.key.as_str().to_lowercase());
                folded.cmp(&other_folded).then(one.key.cmp(&other.key))
            };
        })
    }),
    subtle(Fault::EntriesOrderedUtf16, BREAKS, || {
        but(|rules| {
            rules.order = |one, other| one.key.as_str().encode_utf16().cmp(other.key.as_str().encode_utf16());
        })
    }),
    plain(Fault::EntryPagesSkip, BREAKS, || but(|rules| rules.odd = Some(Odd::SkipsFirst))),
    plain(Fault::EntryPagesRepeat, BREAKS, || but(|rules| rules.is_later = Ordering::is_ge)),
    plain(Fault::EntryPagesEndAtDeleted, BREAKS, || but(|rules| rules.odd = Some(Odd::NeedsLast))),
    plain(Fault::EntryPagesCut, BREAKS, || {
        but(|rules| rules.page = |rows, limit, now| entries(living(rows, now), limit.min(10)))
    }),
    plain(Fault::EntryPagesBeyond, BREAKS, || {
        but(|rules| rules.page = |rows, limit, now| entries(living(rows, now), limit + 1))
    }),
    plain(Fault::EntryPrefixAsLike, BREAKS, || {
        but(|rules| rules.has_prefix = |key, prefix| matches(key, prefix, Some('%'), Some('_')))
    }),
    plain(Fault::EntryPrefixAsGlob, BREAKS, || {
        but(|rules| rules.has_prefix = |key, prefix| matches(key, prefix, Some('*'), Some('?')))
    }),
    plain(Fault::EntryPrefixTrimmed, BREAKS, || {
        but(|rules| rules.has_prefix = |key, prefix| key.starts_with(prefix.trim_end_matches('/')))
    }),
    plain(Fault::EntryPrefixCaseless, BREAKS, || {
        but(|rules| {
            rules.has_prefix = |key, prefix| key.to_lowercase().starts_with(&prefix.to_lowercase());
        })
    }),
    plain(Fault::EntryPrefixAnywhere, BREAKS, || {
        but(|rules| rules.has_prefix = |key, prefix| key.contains(prefix))
    }),
];

/// Returns whether the key begins as the pattern says, in which one character stands for any text and one for
/// any single character.
fn matches(key: &str, pattern: &str, any: Option<char>, one: Option<char>) -> bool {
    let (mut rest, mut key_rest) = (pattern.chars(), key.chars());
    let Some(first) = rest.next() else { return true };
    if Some(first) == any {
        let starts = key.char_indices().map(|(at, _)| at).chain([key.len()]);
        return starts.filter_map(|at| key.get(at..)).any(|tail| matches(tail, rest.as_str(), any, one));
    }
    let is_here = key_rest.next().is_some_and(|letter| letter == first || Some(first) == one);
    is_here && matches(key_rest.as_str(), rest.as_str(), any, one)
}
