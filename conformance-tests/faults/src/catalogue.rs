//! Which quirk implements which fault.

use std::sync::Arc;

use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Entry, Quirk};
use crate::{
    amend, client, control, groups, inspect, keys, lease, ledger, limits, pull, push, settle, time, whole,
};

const TOPICS: &[&[Entry]] = &[
    push::batch::FAULTS,
    push::options::FAULTS,
    push::compaction::FAULTS,
    amend::change::FAULTS,
    amend::disabled::FAULTS,
    amend::urgent::FAULTS,
    keys::freed::FAULTS,
    keys::window::FAULTS,
    client::names::FAULTS,
    settle::stored_anew::FAULTS,
    groups::locked::FAULTS,
    groups::matured::FAULTS,
    whole::claimed::FAULTS,
    whole::ended::FAULTS,
    whole::left::FAULTS,
    settle::actions::FAULTS,
    pull::redelivery::FAULTS,
    lease::extend::FAULTS,
    pull::exchange::FAULTS,
    inspect::at_rest::FAULTS,
    inspect::pause::FAULTS,
    client::lifetime::FAULTS,
    pull::wake::FAULTS,
    pull::sharing::FAULTS,
    settle::fields::FAULTS,
    settle::batch::FAULTS,
    settle::successors::FAULTS,
    keys::compared::FAULTS,
    ledger::settled::FAULTS,
    ledger::content::FAULTS,
    ledger::told::FAULTS,
    ledger::time::FAULTS,
    ledger::clients::FAULTS,
    ledger::recorded::FAULTS,
    ledger::removed::FAULTS,
    ledger::cancelled::FAULTS,
    ledger::counted::FAULTS,
    control::kept::FAULTS,
    control::compared::FAULTS,
    control::listed::FAULTS,
    control::lapsed::FAULTS,
    limits::numbers::FAULTS,
    time::lateness::FAULTS,
    inspect::beside_work::FAULTS,
    limits::bounds::FAULTS,
    client::crowd::FAULTS,
    client::threads::FAULTS,
    time::clocks::FAULTS,
];

fn entry(fault: Fault) -> Option<&'static Entry> {
    TOPICS.iter().flat_map(|topic| topic.iter()).find(|entry| entry.fault == fault)
}

/// Returns the fault's quirk, which the clients of a namespace share. None for the faults of
/// [`Basic`](crate::basic::Basic), of which each client has its own, and for those of the model of a server.
pub(crate) fn quirk(fault: Fault) -> Option<Arc<dyn Quirk>> {
    entry(fault).map(|entry| (entry.make)())
}

/// Returns the clauses that the fault breaks, if it was written from the contract alone; otherwise none.
pub fn breaks(fault: Fault) -> &'static [Clause] {
    entry(fault).map_or(&[], |entry| entry.breaks)
}

/// Returns whether the fault was written from the contract alone and shows only in a rare situation.
pub fn is_subtle(fault: Fault) -> bool {
    entry(fault).is_some_and(|entry| entry.subtle)
}
