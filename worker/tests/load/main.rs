//! How tasks of different weight, and partitions with slots of their own, share what the machine has room for.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

mod governed;
mod heavy;
mod meter;
mod per_kind;
mod reserve;
mod resize;
