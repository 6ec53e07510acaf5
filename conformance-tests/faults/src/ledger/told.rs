//! Ends that are listed, counted or found in the wrong way.

use anyqueue::adapter::EndedQuery;
use anyqueue_conformance::Fault;

use super::model::but;
use super::rules::{Call, without_result};
use super::store::BREAKS;
use crate::quirk::{Entry, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::EndedOldestFirst, BREAKS, || but(|rules| rules.order = Ord::cmp)),
    subtle(Fault::EndedIdsAscending, BREAKS, || {
        but(|rules| rules.order = |one, other| other.ended_at.cmp(&one.ended_at).then(one.id.cmp(&other.id)))
    }),
    subtle(Fault::EndedPagesSkip, BREAKS, || but(|rules| rules.is_later = |_, moments| moments.is_gt())),
    plain(Fault::EndedPagesRepeat, BREAKS, || but(|rules| rules.is_later = |in_order, _| in_order.is_ge())),
    subtle(Fault::EndedSinceExclusive, BREAKS, || {
        but(|rules| {
            rules.matches = |_, query, ended| {
                query.matches(ended.end.state, ended.ended_at) && query.since != Some(ended.ended_at)
            };
        })
    }),
    subtle(Fault::EndedBeforeInclusive, BREAKS, || {
        but(|rules| {
            rules.matches = |_, query, ended| {
                let mut any_end = query.clone();
                any_end.before = any_end.before.filter(|before| *before != ended.ended_at);
                any_end.matches(ended.end.state, ended.ended_at)
            };
        })
    }),
    plain(Fault::EndedListIgnoresStates, BREAKS, || {
        but(|rules| {
            rules.matches = |call, query, ended| {
                let query = if call == Call::List { in_any_state(query) } else { query.clone() };
                query.matches(ended.end.state, ended.ended_at)
            };
        })
    }),
    plain(Fault::EndedCountIgnoresStates, BREAKS, || {
        but(|rules| {
            rules.matches = |call, query, ended| {
                let query = if call == Call::Count { in_any_state(query) } else { query.clone() };
                query.matches(ended.end.state, ended.ended_at)
            };
        })
    }),
    plain(Fault::EndedCountIgnoresTimes, BREAKS, || {
        but(|rules| {
            rules.matches = |call, query, ended| {
                let query = if call == Call::Count { at_any_time(query) } else { query.clone() };
                query.matches(ended.end.state, ended.ended_at)
            };
        })
    }),
    plain(Fault::EndedFirstStateOnly, BREAKS, || {
        but(|rules| {
            rules.matches = |_, query, ended| {
                let mut first = query.clone();
                first.states.truncate(1);
                first.matches(ended.end.state, ended.ended_at)
            };
        })
    }),
    plain(Fault::EndedListsResults, BREAKS, || but(|rules| rules.listed = Clone::clone)),
    plain(Fault::EndedFoundWithoutResult, BREAKS, || but(|rules| rules.found = without_result)),
    plain(Fault::EndedCountBelowCap, BREAKS, || but(|rules| rules.counted = |count, cap| count.min(cap - 1))),
    plain(Fault::EndedCountBeyondCap, BREAKS, || but(|rules| rules.counted = |count, _| count)),
    plain(Fault::EndedPartitionsShared, BREAKS, || but(|rules| rules.is_here = |_, _, _| true)),
];

fn in_any_state(query: &EndedQuery) -> EndedQuery {
    let mut query = query.clone();
    query.states.clear();
    query
}

fn at_any_time(query: &EndedQuery) -> EndedQuery {
    let mut query = query.clone();
    (query.since, query.before) = (None, None);
    query
}
