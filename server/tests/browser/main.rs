//! The pages in a browser: each page and each action on it, with a script and without, by keyboard, and under attack.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::format_push_string
)]

#[path = "../http/bed.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod bed;
mod browser;
#[path = "../http/client.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod client;

mod actions;
mod ended;
mod furnished;
mod hostile;
mod live;
mod reach;
