//! Faults of the ends of tasks.

pub(crate) mod cancelled;
pub(crate) mod clients;
pub(crate) mod content;
pub(crate) mod counted;
mod model;
pub(crate) mod recorded;
pub(crate) mod removed;
mod rules;
pub(crate) mod settled;
mod store;
pub(crate) mod time;
pub(crate) mod told;
