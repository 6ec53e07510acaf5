//! Schedules: when they come, held against a slow oracle, and that each time of theirs is run exactly once.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "in a test, a panic is the message")]

mod instants;
mod oracle;
