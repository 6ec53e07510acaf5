//! What this backend promises beyond the suite, on brokers of the tests' own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod alarms;
mod cluster;
mod common;
mod faults;
mod killed;
mod load;
mod logs;
mod modes;
mod opening;
mod refusals;
mod strict;
mod tls;
