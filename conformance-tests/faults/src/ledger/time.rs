//! Ends whose time is wrong, or that are kept for another time than they say.

use std::time::{Duration, SystemTime};

use anyqueue_conformance::Fault;

use super::model::but;
use super::rules::{Call, to_millis};
use super::store::BREAKS;
use crate::quirk::{Client, Entry, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::EndedByClientClock, BREAKS, || {
        but(|rules| rules.stamp = |client| to_millis(client.clock.wall()))
    }),
    plain(Fault::EndedInMicros, BREAKS, || but(|rules| rules.stamp = in_micros)),
    plain(Fault::LapsedListed, BREAKS, || but(|rules| rules.sees_lapsed = &[Call::List])),
    plain(Fault::LapsedFound, BREAKS, || but(|rules| rules.sees_lapsed = &[Call::Find])),
    plain(Fault::LapsedCounted, BREAKS, || but(|rules| rules.sees_lapsed = &[Call::Count])),
    plain(Fault::LapsedByClientClock, BREAKS, || but(|rules| rules.now = |client| client.clock.wall())),
    plain(Fault::EndLapsesEarly, BREAKS, || but(|rules| rules.expires = |at, keep| after(at, keep? / 2))),
    subtle(Fault::EndLapsesInSeconds, BREAKS, || {
        but(|rules| rules.expires = |at, keep| after(at, Duration::from_secs(keep?.as_secs())))
    }),
    plain(Fault::EndForeverLapses, BREAKS, || {
        but(|rules| rules.expires = |at, keep| after(at, keep.unwrap_or_default()))
    }),
];

fn after(at: SystemTime, keep: Duration) -> Option<SystemTime> {
    at.checked_add(keep)
}

fn in_micros(client: &Client) -> SystemTime {
    to_millis(client.server.wall()) + Duration::from_micros(123)
}
