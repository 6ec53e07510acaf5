//! Deliberately faulty backends, each with one fault: they prove that the suite finds it.
//!
//! Each wraps a right backend and changes one thing. A case names in [`Case::kills`](crate::Case::kills) the faults that it
//! must find; `tests/kills.rs` runs it against them.

mod batches;
mod fault;
mod fields;
mod harness;
mod hollow;
mod identity;
mod inspect;
mod keys;
mod lateness;
mod numbers;
mod processes;
mod pull;
mod push;
mod reader;
mod reader_clients;
mod reader_disguise;
mod reader_exchange;
mod reader_groups;
mod reader_inspect;
mod reader_keys;
mod reader_lease;
mod reader_names;
mod reader_pause;
mod reader_push;
mod reader_reborn;
mod reader_redelivery;
mod reader_settle;
mod reader_sharing;
mod reader_storage;
mod reader_wake;
mod settle;
mod spoilt;
mod state;
mod storage;
mod wire;

pub use fault::Fault;
pub use harness::{FaultyHarness, HollowHarness};
pub use hollow::Hollow;
pub use spoilt::{Spoilt, main};
