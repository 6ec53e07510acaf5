//! What the conformance suite does not ask: each error that the service can answer with, what settlements do about it, what is sent
//! and how often.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod ages;
mod common;
mod cost;
mod delays;
mod entries;
mod faults;
mod fences;
mod groups;
mod joins;
mod level_poll;
mod redrive;
mod requests;
mod successor_faults;
mod successors;
mod unreadable;
mod wire;
