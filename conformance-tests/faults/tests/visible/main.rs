//! Each fault that was written from the contract alone can be seen through the traits: the same steps show one thing on
//! the memory backend, and another on the faulty one.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_imports,
    unreachable_pub,
    reason = "a test crate: what is not as expected shall panic, and every file of it uses the whole lab"
)]

use anyqueue_conformance::Fault;
use anyqueue_faults::breaks;

#[macro_use]
mod lab;
mod batches;
mod beside;
mod bounds;
mod clients;
mod clocks;
mod crowd;
mod delivery;
mod fields;
mod inspect;
mod keys;
mod lateness;
mod leases;
mod numbers;
mod options;
mod push;
mod settle;
mod threads;
mod waiting;

#[test]
fn every_one_is_seen() {
    let seen = [
        batches::SEEN,
        beside::SEEN,
        bounds::SEEN,
        clients::SEEN,
        crowd::SEEN,
        clocks::SEEN,
        delivery::SEEN,
        fields::SEEN,
        inspect::SEEN,
        keys::SEEN,
        lateness::SEEN,
        leases::SEEN,
        numbers::SEEN,
        options::SEEN,
        push::SEEN,
        settle::SEEN,
        threads::SEEN,
        waiting::SEEN,
    ];
    let seen = seen.concat();
    for fault in Fault::ALL {
        assert_eq!(seen.contains(fault), !breaks(*fault).is_empty(), "{fault:?}");
    }
}

#[tokio::test]
async fn plain_use_shows_none_of_them() {
    let right = lab::plain_use(&lab::Lab::right()).await;
    for fault in Fault::ALL.iter().filter(|fault| !breaks(**fault).is_empty()) {
        assert_eq!(lab::plain_use(&lab::Lab::wrong(*fault)).await, right, "{fault:?}");
    }
}
