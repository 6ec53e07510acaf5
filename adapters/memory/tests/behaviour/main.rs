//! What the memory backend does, behaviour by behaviour, through the storage traits alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unchecked_time_subtraction,
    reason = "a panic is how a test fails"
)]

mod admin;
mod counted;
mod delivery;
mod fixture;
mod model;
mod options;
mod waiting;
