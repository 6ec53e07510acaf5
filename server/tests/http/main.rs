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
mod bulk;
mod client;
mod cron;
mod cut;
mod deep;
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
mod shell;
mod slow;
mod steps;
mod tasks;
mod tls;
mod transfer;
mod typescript;
mod work;
