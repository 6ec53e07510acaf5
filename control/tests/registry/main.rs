//! Workers that tell of themselves, hear orders, and are missed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

mod bed;
mod clocks;
mod fair;
mod faults;
mod lost;
mod nodes;
mod orders;
mod store;
