//! Schedules: when they come, held against a slow oracle, and that each time of theirs is run exactly once.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "in a test, a panic is the message"
)]

mod bed;
mod beside;
mod cancel_old;
mod clocks;
mod cut;
mod cut_off;
mod cuts;
mod damaged;
mod following;
mod instants;
mod manage;
mod metrics;
mod nodes;
mod oracle;
mod policies;
mod servers;
mod steps;
