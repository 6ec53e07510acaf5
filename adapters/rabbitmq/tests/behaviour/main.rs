//! What this backend promises beyond the suite, on brokers of the tests' own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod alarms;
mod aside;
mod cluster;
mod common;
mod delay_queues;
mod delays;
mod faults;
mod killed;
mod load;
mod logs;
mod making;
mod modes;
mod opening;
mod refusals;
mod removed;
mod strict;
mod successor_faults;
mod successors;
mod tls;
mod unseen;
