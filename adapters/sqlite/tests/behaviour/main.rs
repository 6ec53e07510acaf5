//! What the SQLite backend does, behaviour by behaviour, through the storage traits and on real files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unchecked_time_subtraction,
    reason = "a panic is how a test fails"
)]

mod admin;
mod amend;
mod bulky;
mod common;
mod compaction;
mod control;
mod disk;
mod files;
mod lease;
mod ledger;
mod order;
mod paused;
mod push;
#[cfg(unix)]
mod replaced;
mod successors;
#[cfg(target_os = "linux")]
mod threads;
mod unreadable;
mod waiting;
mod whole;
