//! What the suite does not ask: opening, rights, other processes' migrations, broken connections and servers, a standby that takes over, proxies, TLS, the application's
//! own transactions, compaction, the ledger's tables, and the cost of calls.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where something fails")]

mod amend;
mod amend_content;
mod amend_disabled;
mod amend_faults;
mod amend_races;
mod common;
mod compaction;
mod compaction_content;
mod compaction_cost;
mod compaction_faults;
mod connections;
mod control;
mod control_races;
mod cost;
mod failover;
mod faults;
mod in_line;
mod isolation;
mod ledger;
mod ledger_cost;
mod ledger_counted;
mod ledger_merge;
mod ledger_purge;
mod locks;
mod looks;
mod model;
mod moves;
mod older_release;
mod opening;
mod pgbouncer;
mod pressure;
mod push_in;
mod races;
mod refusals;
mod successor_cost;
mod successor_faults;
mod successor_refusals;
mod successors;
mod tls;
mod together;
mod upgrade;
mod urgent;
mod whole_group_races;
mod whole_groups;
