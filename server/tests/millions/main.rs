//! Ten million ended tasks behind the service: what it shows of them at once, and what it takes to read a million.

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
#[path = "../browser/browser.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod browser;
#[path = "../http/client.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod client;

mod pages;
mod store;
mod stream;
