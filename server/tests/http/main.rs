//! The service over HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::format_push_string
)]

mod admission;
mod audit;
mod away;
mod bed;
mod between;
mod bodies;
mod bulk;
mod certificates;
mod client;
#[allow(dead_code, reason = "the unit tests use the rest")]
mod counting;
mod cron;
mod cut;
mod deep;
mod ended;
mod etags;
mod external;
mod failing;
mod filters;
mod forms;
mod guard;
mod jobs;
mod left;
mod limits;
mod manage;
mod mistakes;
mod notifications;
mod openapi;
mod overdue;
mod pages;
mod place;
mod rights;
mod series;
mod shell;
mod slow;
mod startup;
mod steps;
mod tasks;
mod tls;
mod traces;
mod transfer;
mod typescript;
mod watched;
mod work;
