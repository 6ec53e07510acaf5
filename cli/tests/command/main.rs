//! The command as people and programs run it: the real binary, on SQLite files and on private servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]
#![cfg(all(unix, feature = "sqlite"))]

mod amend;
mod basics;
mod bed;
#[cfg(feature = "conformance")]
mod conformance;
mod cron;
mod dead;
mod doctor;
mod frozen;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod killed;
mod ledger;
mod limits;
mod mistakes;
mod pages;
#[cfg(feature = "conformance")]
mod progress;
mod push;
#[cfg(feature = "serve")]
mod serve;
#[cfg(all(feature = "serve", target_os = "linux"))]
mod serve_load;
mod servers;
mod small_disk;
mod supervise;
mod tasks;
mod terminal;
mod tokens;
mod transfer;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod values;
mod work;
mod workers;
