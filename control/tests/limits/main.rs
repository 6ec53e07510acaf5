//! Limits that processes share: never exceeded, never leaked.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a test may stop at anything"
)]

mod bed;
mod caps;
mod entries;
mod faults;
mod messages;
mod random;
mod rates;
mod servers;
mod workers;
