//! Real processes that fail, hang, are recycled and are ended.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]
#![cfg(unix)]

mod bed;
mod ends;
mod lives;
mod silence;
