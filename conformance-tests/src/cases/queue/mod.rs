//! Cases through the portable `Queue`: the clauses that core keeps, over any adapter.

mod admin;
mod amend;
mod beside;
mod bounds;
mod close;
mod control;
mod crowd;
mod dead;
mod edges;
mod fault;
mod lease;
mod ledger;
mod limits;
mod pull;
mod push;
mod refuse;
mod settle;
mod skew;
mod steps;
mod stream;
mod successors;
mod times;
mod unreadable;
mod whole;

use crate::case::Case;

/// The groups, in the order of the contract.
pub(super) const GROUPS: &[&[Case]] = &[
    push::CASES,
    refuse::CASES,
    bounds::CASES,
    pull::CASES,
    whole::CASES,
    settle::CASES,
    successors::CASES,
    lease::CASES,
    dead::CASES,
    unreadable::CASES,
    limits::CASES,
    edges::CASES,
    skew::CASES,
    times::CASES,
    steps::CASES,
    stream::CASES,
    crowd::CASES,
    admin::CASES,
    amend::CASES,
    ledger::CASES,
    ledger::told::CASES,
    control::CASES,
    beside::CASES,
    fault::CASES,
    close::CASES,
];
