//! Ends that only one client sees.

use anyqueue_conformance::Fault;

use super::model::but;
use super::store::BREAKS;
use crate::quirk::{Entry, plain};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::EndsOfOneClient, BREAKS, || {
        but(|rules| rules.is_seen = |client, row| row.by == client.number)
    }),
    plain(Fault::EndsDieWithClient, BREAKS, || {
        but(|rules| rules.at_close = |client, rows| rows.retain(|row| row.by != client.number))
    }),
    plain(Fault::InitForgetsEnds, BREAKS, || but(|rules| rules.at_init = |_, rows| rows.clear())),
];
