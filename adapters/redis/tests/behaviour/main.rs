//! What the conformance suite does not ask: this server's own faults, settings, costs and limits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod amend;
mod amend_faults;
mod bulky;
mod common;
mod compaction;
mod compaction_faults;
mod connections;
mod control;
mod cost;
mod disk;
mod failover;
mod faults;
mod ledger;
mod ledger_across_slots;
mod ledger_cost;
mod ledger_counted;
mod ledger_like_memory;
mod lines;
mod missing_records;
mod old;
mod opening;
mod resent;
mod resharding;
mod streams;
mod successors;
mod successors_across_slots;
mod successors_cost;
mod successors_faults;
mod tls;
mod unreadable;
mod urgent;
mod whole_groups;
mod whole_groups_like_memory;
mod whole_groups_load;
mod windows;
