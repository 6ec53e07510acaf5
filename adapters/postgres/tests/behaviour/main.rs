//! What the suite does not ask: opening, rights, several processes' migrations, broken connections, the application's own transactions,
//! and the cost of calls.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

mod common;
mod connections;
mod cost;
mod opening;
mod push_in;
#[path = "../server/mod.rs"]
mod server;
