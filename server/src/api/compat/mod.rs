//! Requests as other systems have them, for programs that speak their protocols already. Each says the same as requests of ours, in other words.

pub(crate) mod job_tasks;
mod job_wire;
mod job_worker;
pub(crate) mod jobs;
mod nothing;
mod notification;
pub(crate) mod notifications;
mod oldest;
mod tenant;
