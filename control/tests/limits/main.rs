//! Limits that processes share: never exceeded, never leaked.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a test may stop at anything"
)]

mod bed;
mod calls;
mod caps;
mod clocks;
mod cut;
mod entries;
mod faults;
mod gates;
mod messages;
mod passed_on;
mod processes;
mod random;
mod rates;
mod servers;
mod values;
mod workers;
