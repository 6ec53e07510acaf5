//! Deliberately faulty backends, each with one [`Fault`]. They prove that the suite finds the fault.
//!
//! Each backend wraps a correct one and changes one thing. A case names in
//! [`Case::kills`](anyqueue_conformance::Case::kills) the faults that it must find; `tests/kills.rs` runs it
//! against them.
//!
//! Most faults are a `Quirk`, which overrides the calls that it spoils. The faults of a server and its
//! network are in `wire`, a model of both.

mod amend;
mod basic;
mod catalogue;
mod client;
mod control;
mod groups;
mod harness;
mod hollow;
mod inspect;
mod keys;
mod lease;
mod ledger;
mod limits;
mod plain;
mod pull;
mod push;
mod quirk;
mod repeating;
mod right;
mod settle;
mod spoilt;
mod state;
mod storage;
mod time;
mod whole;
mod wire;

pub use anyqueue_conformance::Fault;
pub use catalogue::{breaks, is_subtle};
pub use harness::{FaultyHarness, HollowHarness};
pub use hollow::Hollow;
pub use spoilt::{Spoilt, main};
