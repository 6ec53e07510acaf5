//! What this backend promises beyond the suite, on brokers of the tests' own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod common;
mod faults;
mod modes;
mod opening;
mod strict;
