//! Deliberately faulty backends, each with one [`Fault`]: they prove that the suite finds it.
//!
//! Each wraps a right backend and changes one thing. A case names in [`Case::kills`](anyqueue_conformance::Case::kills) the faults
//! that it must find; `tests/kills.rs` runs it against them.
//!
//! Most are a `Quirk`, which overrides the calls that it spoils. Those of a server and its network are in a model of these, `wire`.

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
