//! The life of each server: stopped, killed, frozen, restarted on the same data and address, and gone without a trace.

// Clippy knows tests by their attribute, and not the functions that they share.
#![allow(clippy::unwrap_used)]

mod command;
mod fixture;
mod ministack;
mod orphans;
mod pgbouncer;
mod postgres;
mod rabbitmq;
mod redis;
