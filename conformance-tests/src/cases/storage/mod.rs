//! Cases with nothing between them and the adapter: the clauses that an adapter must keep by itself.

mod admin;
mod amend;
mod backlog;
mod bounds;
mod cancel;
mod compaction;
mod concurrency;
mod control;
mod crowd;
mod dead;
mod dedup;
mod delay;
mod exchange;
mod fates;
mod fault;
mod groups;
mod helpers;
mod kill;
mod lease;
mod ledger;
mod life;
mod numbers;
mod partitions;
mod pause;
mod payload;
mod priority;
mod pull;
mod punctual;
mod push;
mod random;
mod rivals;
mod settle;
mod successors;
pub(super) mod unreadable;
mod urgent;
mod waiting;
mod whole;
mod window;

use crate::case::Case;

/// The groups, in the order of the contract.
pub(super) const GROUPS: &[&[Case]] = &[
    push::CASES,
    payload::CASES,
    unreadable::CASES,
    pull::CASES,
    cancel::CASES,
    priority::CASES,
    partitions::CASES,
    concurrency::CASES,
    settle::action::CASES,
    settle::headers::CASES,
    settle::moves::CASES,
    settle::token::CASES,
    settle::batch::CASES,
    successors::stored::CASES,
    successors::fenced::CASES,
    successors::keys::CASES,
    successors::killed::CASES,
    exchange::CASES,
    fates::CASES,
    lease::CASES,
    delay::CASES,
    groups::CASES,
    whole::claimed::CASES,
    whole::left::CASES,
    whole::ended::CASES,
    whole::held::CASES,
    whole::crowd::CASES,
    dedup::CASES,
    window::CASES,
    compaction::CASES,
    amend::outcome::CASES,
    amend::priority::CASES,
    amend::moment::CASES,
    amend::group::CASES,
    amend::disabled::CASES,
    amend::removed::CASES,
    amend::crowd::CASES,
    urgent::CASES,
    ledger::stored::CASES,
    ledger::fenced::CASES,
    ledger::told::CASES,
    ledger::filtered::CASES,
    ledger::kept::CASES,
    ledger::merged::CASES,
    ledger::removed::CASES,
    ledger::counted::CASES,
    ledger::life::CASES,
    ledger::killed::CASES,
    control::kept::CASES,
    control::apart::CASES,
    control::compared::CASES,
    control::raced::CASES,
    control::listed::CASES,
    control::lapsed::CASES,
    control::killed::CASES,
    dead::CASES,
    waiting::CASES,
    crowd::CASES,
    rivals::CASES,
    punctual::CASES,
    numbers::CASES,
    bounds::CASES,
    backlog::CASES,
    admin::CASES,
    pause::CASES,
    life::CASES,
    kill::CASES,
    fault::CASES,
    random::CASES,
];
